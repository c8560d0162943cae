#pragma once
/// @file The one schedule of a simulated run: fibers that run one at a time, events, and a clock that leaps where all
/// of them wait. What runs next is the seed's choice. Fibers are those of the CPU device (cpu_device/fiber.hpp).

#include "cpu_device/fiber.hpp"
#include "tests/support/sim/random.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <queue>
#include <string>
#include <vector>

namespace gpusock::sim {

/// Thrown through a fiber that is not to go on: its process was killed, or the run is over.
struct Killed {};

class Fiber {
 public:
  const std::string& name() const { return name_; }
  bool done() const { return done_; }
  bool killed() const { return killed_; }
  std::uint64_t turns() const { return turns_; }
  void* const owner;  ///< whose it is: the schedule does not care

  /// While it is not 0 the fiber must not be unwound: it is in the middle of what a process does as a whole.
  int whole = 0;
  /// While it is not 0 what runs on the fiber is the simulation's own (shortage.hpp).
  int outside = 0;

 private:
  friend class Schedule;
  Fiber(std::string name, void* whose, std::function<void()> body)
      : owner(whose), name_(std::move(name)), body_(std::move(body)) {}

  std::string name_;
  std::function<void()> body_;
  struct Stack* stack_ = nullptr;
  std::uint64_t wake_at_ns_ = 0;
  bool done_ = false;
  bool killed_ = false;
  std::uint32_t number_ = 0;
  std::uint64_t turns_ = 0;
};

class Schedule {
 public:
  /// `turn_accesses`: after about so many accesses to shared words a fiber must give way.
  Schedule(std::uint64_t seed, std::uint64_t turn_accesses);
  ~Schedule();  ///< ends all fibers
  Schedule(const Schedule&) = delete;
  Schedule& operator=(const Schedule&) = delete;

  std::uint64_t now_ns() const { return now_ns_; }
  /// Time goes on a little by being looked at.
  std::uint64_t read_clock_ns() { return now_ns_ += 10; }
  Random& random() { return random_; }

  Fiber& spawn(std::string name, void* owner, std::function<void()> body);
  /// `event` happens at this time, on no fiber.
  void at(std::uint64_t time_ns, std::function<void()> event);
  void after(std::uint64_t delay_ns, std::function<void()> event) { at(now_ns_ + delay_ns, std::move(event)); }
  void wake(Fiber& fiber);
  /// Unwinds the fibers of this owner, which must not be the running one's.
  void kill(void* owner);

  /// One turn of one fiber, or time goes on; false where nothing will ever happen.
  bool turn();

  // Of the running fiber.
  Fiber* running() const { return running_; }
  void yield() { sleep_until(now_ns_); }
  void sleep_until(std::uint64_t time_ns);  ///< or until somebody wakes it
  void sleep(std::uint64_t duration_ns) { sleep_until(now_ns_ + duration_ns); }
  void may_turn() {
    if (running_ != nullptr && --accesses_left_ == 0) turn_away();
  }

  const std::vector<std::unique_ptr<Fiber>>& fibers() const { return fibers_; }
  std::uint64_t turns() const { return turns_; }
  /// Equal for equal runs.
  std::uint64_t trace() const { return trace_; }
  void note(std::uint64_t word) { trace_ = (trace_ ^ word) * 0x100000001b3u; }

  static constexpr std::uint64_t kNever = ~std::uint64_t{0};

  /// Told whose fiber runs from now on; nullptr: nobody's.
  std::function<void(void* owner)> on_switch = [](void*) {};

 private:
  struct Event {
    std::uint64_t time_ns;
    std::uint64_t number;
    std::function<void()> happen;
    bool operator<(const Event& other) const {
      return time_ns != other.time_ns ? time_ns > other.time_ns : number > other.number;
    }
  };

  void happen();
  void turn_away();
  void resume(Fiber& fiber);
  void suspend();

  Random random_;
  std::uint64_t turn_accesses_;
  std::uint64_t accesses_left_ = 1;
  std::uint64_t now_ns_ = 1'000'000'000;
  std::uint64_t trace_ = 0xcbf29ce484222325u;
  std::uint64_t turns_ = 0;
  std::uint64_t events_made_ = 0;
  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::vector<Fiber*> live_;
  std::vector<Fiber*> runnable_;
  std::priority_queue<Event> events_;
  Fiber* running_ = nullptr;
};

}  // namespace gpusock::sim
