#include "tests/support/sim/schedule.hpp"

#include <algorithm>
#include <exception>
#include <utility>

namespace gpusock::sim {

using cpu_device::detail::Carrier;

/// A stack, kept from one run to the next. It runs one body after the other.
struct Stack {
  Stack() : carrier(&Stack::carry) {}

  static void carry(Carrier& self) {
    for (;;) {
      Stack* here = running;
      try {
        here->body();
      } catch (const Killed&) {
      }
      here->body = nullptr;
      here->ended = true;
      self.switch_to(native());
    }
  }
  static Carrier& native() {
    static Carrier carrier;
    return carrier;
  }

  Carrier carrier;
  std::function<void()> body;
  bool ended = false;
  static inline Stack* running = nullptr;
};

namespace {

std::vector<std::unique_ptr<Stack>>& idle_stacks() {
  static std::vector<std::unique_ptr<Stack>> stacks;
  return stacks;
}

Stack* take_stack() {
  if (idle_stacks().empty()) return new Stack;
  Stack* stack = idle_stacks().back().release();
  idle_stacks().pop_back();
  return stack;
}

}  // namespace

Schedule::Schedule(std::uint64_t seed, std::uint64_t turn_accesses) : random_(seed), turn_accesses_(turn_accesses) {}

Schedule::~Schedule() {
  for (std::size_t i = 0; i < live_.size();) {
    Fiber& fiber = *live_[i];
    fiber.killed_ = true;
    resume(fiber);
    if (!fiber.done_) ++i;  // cannot be: a killed fiber does not wait
  }
}

Fiber& Schedule::spawn(std::string name, void* owner, std::function<void()> body) {
  fibers_.push_back(std::unique_ptr<Fiber>(new Fiber(std::move(name), owner, std::move(body))));
  Fiber& fiber = *fibers_.back();
  fiber.number_ = static_cast<std::uint32_t>(fibers_.size());
  fiber.wake_at_ns_ = now_ns_;
  live_.push_back(&fiber);
  return fiber;
}

void Schedule::at(std::uint64_t time_ns, std::function<void()> event) {
  events_.push({time_ns, events_made_++, std::move(event)});
}

void Schedule::wake(Fiber& fiber) { fiber.wake_at_ns_ = std::min(fiber.wake_at_ns_, now_ns_); }

void Schedule::kill(void* owner) {
  const std::vector<Fiber*> all = live_;
  for (Fiber* fiber : all) {
    if (fiber->owner != owner || fiber == running_) continue;
    fiber->killed_ = true;
    resume(*fiber);
  }
}

void Schedule::happen() {
  while (!events_.empty() && events_.top().time_ns <= now_ns_) {
    const auto event = std::move(const_cast<Event&>(events_.top()).happen);
    events_.pop();
    event();
  }
}

bool Schedule::turn() {
  happen();
  runnable_.clear();
  std::uint64_t next_ns = events_.empty() ? kNever : events_.top().time_ns;
  for (Fiber* fiber : live_) {
    if (fiber->wake_at_ns_ <= now_ns_) {
      runnable_.push_back(fiber);
    } else {
      next_ns = std::min(next_ns, fiber->wake_at_ns_);
    }
  }
  if (runnable_.empty()) {
    if (next_ns == kNever) return false;
    now_ns_ = next_ns;
    return true;
  }
  ++turns_;
  Fiber& chosen = *runnable_[runnable_.size() == 1 ? 0 : random_.below(runnable_.size())];
  ++chosen.turns_;
  note(chosen.number_ ^ now_ns_ << 8);
  accesses_left_ = 1 + random_.below(2 * turn_accesses_);
  now_ns_ += 20 + (random_() & 255);
  resume(chosen);
  return true;
}

void Schedule::resume(Fiber& fiber) {
  if (fiber.stack_ == nullptr) {
    if (fiber.killed_) {  // it never began
      fiber.body_ = nullptr;
      fiber.done_ = true;
      std::erase(live_, &fiber);
      return;
    }
    fiber.stack_ = take_stack();
    fiber.stack_->body = std::move(fiber.body_);
    fiber.stack_->ended = false;
  }
  Fiber* before = std::exchange(running_, &fiber);
  Stack::running = fiber.stack_;
  on_switch(fiber.owner);
  Stack::native().switch_to(fiber.stack_->carrier);
  running_ = before;
  on_switch(nullptr);
  if (!fiber.stack_->ended) return;
  idle_stacks().emplace_back(std::exchange(fiber.stack_, nullptr));
  fiber.done_ = true;
  std::erase(live_, &fiber);
}

void Schedule::suspend() {
  Fiber& fiber = *running_;
  if (!fiber.killed_) fiber.stack_->carrier.switch_to(Stack::native());
  if (fiber.killed_ && fiber.whole == 0) throw Killed{};
}

void Schedule::sleep_until(std::uint64_t time_ns) {
  running_->wake_at_ns_ = time_ns;
  suspend();
  accesses_left_ = std::max<std::uint64_t>(accesses_left_, 1);
}

/// Whoever is being unwound is not sent away; neither is a step that handles an exception: those of a thread end in
/// order.
void Schedule::turn_away() {
  accesses_left_ = 1 + turn_accesses_;
  if (running_->whole != 0 && (std::uncaught_exceptions() != 0 || std::current_exception() != nullptr)) return;
  if (running_->killed_ && (running_->whole != 0 || std::uncaught_exceptions() != 0)) return;
  running_->wake_at_ns_ = now_ns_;
  suspend();
}

}  // namespace gpusock::sim
