#pragma once
/// @file Runs the threads of one case in every order that matters, on the memory of memory.hpp.
///
/// A thread is a fiber that stops before each atomic access. Which goes on is chosen by the explorer; executions that
/// differ only in the order of accesses that do not touch each other are run once (sleep sets: a thread whose next
/// access was tried first sleeps in the other branches until somebody stores to its word; a load then reads what has
/// been added since).
///
/// A waiting thread gives way with give_way(): it goes on once a word that it looked at has a newer value, and then
/// reads that value: waiting is assumed to end when what is waited for was stored. Where nobody can go on any more, the
/// case hangs.

#include "site.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace gpusock::model {

/// What one execution consists of: filled anew for each by the case.
class Run {
 public:
  /// A thread that ends by itself.
  void thread(std::function<void()> body) { threads_.push_back({std::move(body), false}); }
  /// One that serves the others, `step` by step, until they have ended and it has nothing left to do.
  void server(std::function<void()> step) { threads_.push_back({std::move(step), true}); }
  /// Deadlines may pass at any moment; else time stands still.
  void let_time_pass() { time_passes_ = true; }
  /// What came of it, as one of the case's outcomes. Without it: "".
  void at_end(std::function<std::string()> tell) { tell_ = std::move(tell); }

  /// Owns what the threads share.
  template <class T, class... Arguments>
  T& make(Arguments&&... arguments) {
    auto owned = std::make_shared<T>(std::forward<Arguments>(arguments)...);
    T& result = *owned;
    worlds_.push_back(std::move(owned));
    return result;
  }

 private:
  friend class Machine;
  struct Body {
    std::function<void()> call;
    bool serves;
  };
  std::vector<Body> threads_;
  std::function<std::string()> tell_ = [] { return std::string(); };
  bool time_passes_ = false;
  std::vector<std::shared_ptr<void>> worlds_;
};

/// One thing to check.
struct Case {
  std::string name;
  std::function<void(Run&)> make;
  std::vector<std::string> outcomes;       ///< every legal one; each must be seen where all executions are explored
  std::uint64_t executions_max = 200'000;  ///< of the bounded run; what is not explored then is sampled
};

struct Limits {
  double scale = 1;          ///< times executions_max
  std::uint64_t seed = 1;    ///< of the random executions
  bool must_see_all = true;  ///< is an outcome that is never seen an error
  bool traces = true;        ///< tell what led to a failure
};

struct Verdict {
  bool ok = true;
  std::string failure;    ///< what went wrong, and after which accesses
  bool complete = false;  ///< were all executions explored
  std::uint64_t executions = 0;
  std::uint64_t pruned = 0;  ///< given up as equal to others
  std::uint64_t steps = 0;   ///< atomic accesses in all of them
};

Verdict check(const Case& one, const Limits& limits);
/// So many random executions only.
Verdict sample(const Case& one, std::uint64_t seed, std::uint64_t executions);

/// What must hold: for the threads of a case and for its at_end().
void require(bool holds, std::string_view what);

// For the threads of a case.

/// One turn of a wait.
void give_way();

/// The same for a thread that waits for a lock, which it looked at last: the words that it looked at before still count
/// as looked at when it gives way next.
void give_way_to_lock();
/// Which of the case's threads calls, in the order in which they were made.
int thread_number();

/// Counts what a case's threads read and write in some memory, each atomic or plain access as one. A copy by memcpy is
/// one access.
class Traffic {
 public:
  void add(const void* memory, std::size_t bytes) { ranges_.push_back({static_cast<const std::byte*>(memory), bytes}); }
  void clear() { loads = stores = 0; }
  void note(const void* address, bool reads, bool writes) {
    const auto at = static_cast<const std::byte*>(address);
    for (const Range& range : ranges_) {
      if (at < range.begin || at >= range.begin + range.bytes) continue;
      loads += reads ? 1 : 0;
      stores += writes ? 1 : 0;
    }
  }

  int loads = 0, stores = 0;

 private:
  struct Range {
    const std::byte* begin;
    std::size_t bytes;
  };
  std::vector<Range> ranges_;
};
inline Traffic* counted_traffic = nullptr;  ///< what counts now; nullptr: nothing does

// For the atomic references and the compiler's hooks.

class Machine;
inline Machine* running_machine = nullptr;  ///< whose thread's own code is running; nullptr: the checker's, or a case's
                                            ///< beginning or end
inline Machine* ended_machine = nullptr;    ///< whose execution has ended, while the case's at_end() runs

std::uint64_t load(std::uint64_t* word, Order order, Where where);
void store(std::uint64_t* word, std::uint64_t value, Order order, Where where);
/// Stores what `change` makes of the value before, and returns that.
std::uint64_t modify(std::uint64_t* word, const std::function<std::uint64_t(std::uint64_t)>& change, Order order,
                     Where where);
bool compare_exchange(std::uint64_t* word, std::uint64_t& expected, std::uint64_t desired, bool weak, Order success,
                      Order failure, Where where);
void fence(Order order, Where where);
void plain_access(const void* address, std::size_t bytes, bool writes);
/// Nanoseconds, for code that asks the operating system's clock: it stands still at kEarly, and where time may pass it
/// jumps by kLate, at any moment.
inline constexpr std::uint64_t kEarly = 1'000'000, kLate = 1'000'000'000'000;
std::uint64_t now_ns();

}  // namespace gpusock::model
