#pragma once
/// @file The fibers of one execution and how one access of theirs goes.

#include "explorer.hpp"
#include "memory.hpp"
#include "run.hpp"

#include <boost/context/fiber.hpp>

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace gpusock::model {

class Machine {
 public:
  /// While it lives, the checker's code runs and not the thread's.
  class Inside {
   public:
    Inside() : machine_(running_machine) { running_machine = nullptr; }
    ~Inside() { running_machine = machine_; }
    Inside(const Inside&) = delete;
    Inside& operator=(const Inside&) = delete;
    Machine* operator->() const { return machine_; }
    explicit operator bool() const { return machine_ != nullptr; }

   private:
    Machine* machine_;
  };

  explicit Machine(Explorer& explorer) : explorer_(explorer) {}

  /// Runs one execution; its outcome, or nothing where it was pruned or failed().
  std::optional<std::string> execute(const Case& one);

  const std::string& failure() const { return failure_; }
  std::uint64_t steps() const { return steps_; }
  std::string trace() const;

  // For the thread that runs.
  int current() const { return current_; }
  std::uint64_t load(std::uint64_t* word, Order order, const Site& site);
  void store(std::uint64_t* word, std::uint64_t value, Order order, const Site& site);
  std::uint64_t modify(std::uint64_t* word, const std::function<std::uint64_t(std::uint64_t)>& change, Order order,
                       const Site& site);
  bool compare_exchange(std::uint64_t* word, std::uint64_t& expected, std::uint64_t desired, bool weak, Order success,
                        Order failure, const Site& site);
  void fence(Order order, const Site& site);
  void plain(const void* address, std::size_t bytes, bool writes);
  void give_way();
  void give_way_to_lock();
  std::uint64_t now_ns();
  void fail(std::string what);

 private:
  static constexpr std::uint32_t kAwake = 0;      ///< not asleep
  static constexpr std::uint32_t kForGood = ~0u;  ///< until a store
  static constexpr std::size_t kStackBytes = 256 << 10;

  struct Abandoned {};  ///< thrown through the threads of an execution that is over

  struct Delayed {
    std::uint64_t* word;
    std::uint64_t value;
    Order order;
    const Site* site;
    bool until_wait;
  };

  enum class Next : std::uint8_t { run, access, wait, ended };

  struct Look {  ///< what a thread last saw, or stored
    int location;
    Stamp stamp;
    std::uint64_t value;
  };

  struct Thread {
    boost::context::fiber fiber;
    std::function<void()> body;
    bool serves = false;
    Next next = Next::run;
    Operation operation = Operation::load;  ///< of the access it stands before
    int location = -1;
    bool sequential = false;        ///< that access is a sequentially consistent fence
    std::uint32_t asleep = kAwake;  ///< else: messages up to this id were tried
    std::uint32_t newer_than = 0;   ///< a load's restriction, while it is made
    std::vector<Look> looked_at;    ///< since its last turn of waiting
    std::optional<Delayed> delayed;
    int spurious_failures = 0;
  };

  struct Event {
    std::uint8_t thread;
    const Site* site;
    int location;
    Order order;
    std::uint64_t value;
    bool stale;
  };

  void start(const Run& run);
  void run_thread(int which);
  void schedule();
  bool may_go(int which) const;
  void pick(const std::vector<int>& candidates);
  void wake_others(int which, Operation done, int location, bool sequential);
  void abandon_all();

  void stand_before(Operation operation, int location, bool sequential = false);
  void done(Operation operation, Order order, const Site& site, int location, std::uint64_t value, bool stale = false);
  int choose_message(int location);
  void store_now(std::uint64_t* word, std::uint64_t value, Order order, const Site& site);
  void after_step();
  void store_delayed();
  void before_own(const std::uint64_t* word);
  void look_at(int location, int message);
  void know_own(int location, int index);
  bool has_news(const Thread& thread) const;
  void leave_to_scheduler();
  void resume(int which);

  Explorer& explorer_;
  Memory memory_;
  std::array<Thread, kThreadsMax> threads_;
  std::array<std::unique_ptr<std::byte[]>, kThreadsMax> stacks_;
  boost::context::fiber scheduler_;
  int count_ = 0;
  int current_ = -1;
  int last_ = 0;
  bool abandoning_ = false;
  bool pruned_ = false;
  bool time_passes_ = false;
  std::uint64_t late_ = 0;  ///< how often time has passed
  std::uint64_t steps_ = 0;
  std::uint64_t steps_of_this_ = 0;
  std::string failure_;
  std::vector<Event> events_;
  std::vector<int> choices_;  // scratch
};

}  // namespace gpusock::model
