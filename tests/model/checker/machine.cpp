#include "machine.hpp"

#include <algorithm>
#include <cstdio>

namespace gpusock::model {
namespace {

constexpr std::uint64_t kStepsMax = 20'000;  // of one execution: more are an endless loop
constexpr std::uint64_t kJumpsChosen = 2;    // how often time may pass at any moment
constexpr std::uint64_t kJumpsMax = 16;      // and how often when everybody waits

/// A stack that its owner keeps.
struct KeptStack {
  using traits_type = boost::context::stack_traits;
  boost::context::stack_context allocate() { return {}; }
  void deallocate(boost::context::stack_context&) noexcept {}
};

}  // namespace

/// Lets a thread run until it stands before its next access, waits, or has ended.
void Machine::resume(int which) {
  current_ = which;
  running_machine = this;
  Thread& thread = threads_[static_cast<std::size_t>(which)];
  thread.fiber = std::move(thread.fiber).resume();
  running_machine = nullptr;
}

std::optional<std::string> Machine::execute(const Case& one) {
  Run run;
  one.make(run);
  start(run);
  schedule();
  abandon_all();
  if (!memory_.race().empty()) fail(memory_.race());
  if (!failure_.empty() || pruned_) return std::nullopt;
  ended_machine = this;
  std::string outcome = run.tell_ ? run.tell_() : std::string();
  ended_machine = nullptr;
  if (!failure_.empty()) return std::nullopt;
  return outcome;
}

void Machine::start(const Run& run) {
  count_ = static_cast<int>(run.threads_.size());
  if (count_ > kThreadsMax) fail("more threads than kThreadsMax");
  memory_.reset(count_);
  explorer_.begin();
  time_passes_ = run.time_passes_;
  current_ = -1;
  last_ = 0;
  abandoning_ = pruned_ = false;
  late_ = 0;
  steps_of_this_ = 0;
  events_.clear();
  for (int i = 0; i < count_; ++i) {
    Thread& thread = threads_[static_cast<std::size_t>(i)];
    thread = Thread{};
    thread.body = run.threads_[static_cast<std::size_t>(i)].call;
    thread.serves = run.threads_[static_cast<std::size_t>(i)].serves;
    auto& stack = stacks_[static_cast<std::size_t>(i)];
    if (stack == nullptr) stack.reset(new std::byte[kStackBytes]);
    boost::context::stack_context context;
    context.size = kStackBytes;
    context.sp = stack.get() + kStackBytes;
    thread.fiber = boost::context::fiber(std::allocator_arg,
                                         boost::context::preallocated(context.sp, context.size, context), KeptStack{},
                                         [this, i](boost::context::fiber&& scheduler) {
                                           scheduler_ = std::move(scheduler);
                                           run_thread(i);
                                           return std::move(scheduler_);
                                         });
  }
}

void Machine::run_thread(int which) {
  Thread& thread = threads_[static_cast<std::size_t>(which)];
  try {
    for (;;) {
      thread.body();
      if (!thread.serves) break;
      model::give_way();
    }
    const Inside inside;
    store_delayed();
  } catch (const Abandoned&) {
  }
  thread.next = Next::ended;
}

/// Goes on until every thread has ended, or nobody can go on, or it failed.
void Machine::schedule() {
  std::vector<int> candidates;
  while (failure_.empty() && !pruned_) {
    bool ran = false, any_enabled = false, all_ended = true;
    candidates.clear();
    for (int i = 0; i < count_; ++i) {  // what touches no word goes first: its order does not matter
      Thread& thread = threads_[static_cast<std::size_t>(i)];
      if (thread.next == Next::run || (thread.next == Next::wait && has_news(thread))) {
        resume(i);
        ran = true;
        break;
      }
      if (thread.next == Next::access) any_enabled = true;
      if (thread.next == Next::access && may_go(i)) candidates.push_back(i);
      if (thread.next != Next::ended && !thread.serves) all_ended = false;
    }
    if (ran) continue;
    if (candidates.empty()) {
      if (any_enabled) {
        pruned_ = true;
      } else if (!all_ended && time_passes_ && late_ < kJumpsMax) {
        ++late_;  // nothing else will happen any more
        for (Thread& thread : threads_) {
          if (thread.next == Next::wait) thread.next = Next::run;
        }
        continue;
      } else if (!all_ended) {
        fail("hangs: threads wait, and nobody will store what they wait for");
      }
      return;
    }
    pick(candidates);
  }
}

bool Machine::may_go(int which) const {
  const Thread& thread = threads_[static_cast<std::size_t>(which)];
  if (thread.asleep == kAwake) return true;
  return thread.asleep != kForGood && memory_.can_read_newer_than(which, thread.location, thread.asleep);
}

void Machine::pick(const std::vector<int>& candidates) {
  std::vector<int> order = candidates;
  std::stable_partition(order.begin(), order.end(), [this](int i) { return i == last_; });
  const std::uint32_t chosen = explorer_.choose_thread(order, last_);
  for (std::uint32_t i = 0; i < chosen && !explorer_.is_random(); ++i) {  // these were tried from here
    Thread& tried = threads_[static_cast<std::size_t>(order[i])];
    tried.asleep = tried.operation == Operation::load ? memory_.last_message_id() : kForGood;
  }
  current_ = last_ = order[chosen];
  Thread& thread = threads_[static_cast<std::size_t>(current_)];
  thread.newer_than = thread.asleep;
  thread.asleep = kAwake;
  resume(current_);
}

/// An access was made: threads that stand before one which it does not commute with need to be tried again.
void Machine::wake_others(int which, Operation operation, int location, bool sequential) {
  for (int i = 0; i < count_; ++i) {
    Thread& other = threads_[static_cast<std::size_t>(i)];
    if (i == which || other.asleep == kAwake || other.next != Next::access) continue;
    const bool stored = operation == Operation::store || operation == Operation::modify;
    const bool would_store = other.operation == Operation::store || other.operation == Operation::modify;
    if (stored && would_store && other.location == location) other.asleep = kAwake;
    if (sequential && other.sequential) other.asleep = kAwake;
  }
}

void Machine::abandon_all() {
  abandoning_ = true;
  for (int i = 0; i < count_; ++i) {
    Thread& thread = threads_[static_cast<std::size_t>(i)];
    if (thread.next != Next::ended && thread.fiber) resume(i);
    thread.fiber = {};
  }
}

void Machine::leave_to_scheduler() {
  scheduler_ = std::move(scheduler_).resume();
  running_machine = nullptr;  // an access is being made
  if (abandoning_) throw Abandoned{};
}

void Machine::stand_before(Operation operation, int location, bool sequential) {
  if (abandoning_) throw Abandoned{};
  memory_.adopt_plain_stores();
  Thread& thread = threads_[static_cast<std::size_t>(current_)];
  thread.operation = operation;
  thread.location = location;
  thread.sequential = sequential;
  thread.next = Next::access;
  const int self = current_;
  leave_to_scheduler();
  threads_[static_cast<std::size_t>(self)].next = Next::run;
  if (++steps_of_this_ > kStepsMax) {
    fail("does not end");
    throw Abandoned{};
  }
  ++steps_;
}

void Machine::done(Operation operation, Order order, const Site& site, int location, std::uint64_t value, bool stale) {
  const int self = current_;
  events_.push_back({static_cast<std::uint8_t>(self), &site, location, order, value, stale});
  wake_others(self, operation, location, operation == Operation::fence && order == Order::seq_cst);
  threads_[static_cast<std::size_t>(self)].next = Next::run;
  if (!memory_.race().empty()) fail(memory_.race());
  if (!failure_.empty()) throw Abandoned{};
}

int Machine::choose_message(int location) {
  const Thread& thread = threads_[static_cast<std::size_t>(current_)];
  memory_.readable(current_, location, thread.newer_than, choices_);
  return choices_[explorer_.choose(static_cast<std::uint32_t>(choices_.size()))];
}

std::uint64_t Machine::load(std::uint64_t* word, Order asked, const Site& site) {
  before_own(word);
  const Order order = sites().order(site, asked);
  const int location = memory_.locate(word);
  stand_before(Operation::load, location);
  const int message = sites().is(site, Weakening::left_out) ? 0 : choose_message(location);
  const bool stale = message + 1 != static_cast<int>(memory_.location(location).messages.size());
  const std::uint64_t value = memory_.read(current_, location, message, order);
  look_at(location, message);
  done(Operation::load, order, site, location, value, stale);
  after_step();
  return value;
}

void Machine::store(std::uint64_t* word, std::uint64_t value, Order order, const Site& site) {
  Thread& thread = threads_[static_cast<std::size_t>(current_)];
  if (sites().is(site, Weakening::left_out)) return;
  if (thread.delayed && thread.delayed->site == &site) store_delayed();
  before_own(word);
  const bool until_wait = sites().is(site, Weakening::too_late);
  if (sites().is(site, Weakening::late) || until_wait) {
    thread.delayed = Delayed{word, value, order, &site, until_wait};
    return;
  }
  store_now(word, value, order, site);
  after_step();
}

void Machine::store_now(std::uint64_t* word, std::uint64_t value, Order asked, const Site& site) {
  const Order order = sites().order(site, asked);
  const int location = memory_.locate(word);
  stand_before(Operation::store, location);
  memory_.writable(current_, location, choices_);
  const int behind = choices_[explorer_.choose(static_cast<std::uint32_t>(choices_.size()))];
  memory_.write(current_, location, behind, value, order);
  know_own(location, behind + 1);
  done(Operation::store, order, site, location, value);
}

/// The step behind a late store has been made: now the store.
void Machine::after_step() {
  const Thread& thread = threads_[static_cast<std::size_t>(current_)];
  if (thread.delayed && !thread.delayed->until_wait) store_delayed();
}

void Machine::store_delayed() {
  Thread& thread = threads_[static_cast<std::size_t>(current_)];
  if (!thread.delayed) return;
  const Delayed late = *thread.delayed;
  thread.delayed.reset();
  store_now(late.word, late.value, late.order, *late.site);
}

/// A thread's own accesses of one word keep their order.
void Machine::before_own(const std::uint64_t* word) {
  const Thread& thread = threads_[static_cast<std::size_t>(current_)];
  if (thread.delayed && thread.delayed->word == word) store_delayed();
}

std::uint64_t Machine::modify(std::uint64_t* word, const std::function<std::uint64_t(std::uint64_t)>& change,
                              Order asked, const Site& site) {
  if (sites().is(site, Weakening::apart)) {
    const std::uint64_t before = load(word, asked, site);
    return store(word, change(before), asked, site), before;
  }
  before_own(word);
  const Order order = sites().order(site, asked);
  const int location = memory_.locate(word);
  stand_before(Operation::modify, location);
  memory_.writable(current_, location, choices_);
  const int message = choices_[explorer_.choose(static_cast<std::uint32_t>(choices_.size()))];
  const std::uint64_t before = memory_.location(location).messages[static_cast<std::size_t>(message)].value;
  const std::uint64_t after = change(before);
  memory_.modify(current_, location, message, after, order);
  look_at(location, message + 1);
  done(Operation::modify, order, site, location, after);
  after_step();
  return before;
}

bool Machine::compare_exchange(std::uint64_t* word, std::uint64_t& expected, std::uint64_t desired, bool weak,
                               Order success, Order failure, const Site& site) {
  if (sites().is(site, Weakening::apart)) {
    const std::uint64_t before = load(word, success, site);
    if (before == expected) return store(word, desired, success, site), true;
    return expected = before, false;
  }
  before_own(word);
  const int location = memory_.locate(word);
  stand_before(Operation::modify, location);
  Thread& thread = threads_[static_cast<std::size_t>(current_)];
  const auto& messages = memory_.location(location).messages;
  memory_.readable(current_, location, 0, choices_);
  std::erase_if(choices_, [&](int i) {  // one that holds what is expected, and whose successor is another's, cannot be
                                        // taken, nor refused
    return messages[static_cast<std::size_t>(i)].value == expected && i + 1 < static_cast<int>(messages.size()) &&
           messages[static_cast<std::size_t>(i) + 1].follows_closely;
  });
  const int message = choices_[explorer_.choose(static_cast<std::uint32_t>(choices_.size()))];
  const std::uint64_t before = messages[static_cast<std::size_t>(message)].value;
  bool takes = before == expected;
  if (takes && weak && thread.spurious_failures == 0 && explorer_.choose(2) == 1) {
    ++thread.spurious_failures;  // one per thread is enough to see what comes of it
    takes = false;
  }
  const Order order = takes ? sites().order(site, success) : sites().failure_order(site, failure);
  if (takes) {
    memory_.modify(current_, location, message, desired, order);
  } else {
    expected = memory_.read(current_, location, message, order);
  }
  look_at(location, takes ? message + 1 : message);
  done(takes ? Operation::modify : Operation::load, order, site, location, takes ? desired : before);
  after_step();
  return takes;
}

void Machine::fence(Order asked, const Site& site) {
  if (sites().is(site, Weakening::no_fence)) return;
  const Order order = sites().order(site, asked);
  if (order == Order::seq_cst) stand_before(Operation::fence, -1, true);
  memory_.fence(current_, order);
  done(Operation::fence, order, site, -1, 0);
}

void Machine::plain(const void* address, std::size_t bytes, bool writes) {
  const auto where = static_cast<const std::byte*>(address);
  for (int i = 0; i < count_; ++i) {  // a thread's stack is its own
    const std::byte* stack = stacks_[static_cast<std::size_t>(i)].get();
    if (where >= stack && where < stack + kStackBytes) return;
  }
  if (!abandoning_) memory_.plain(current_, address, bytes, writes);
}

void Machine::look_at(int location, int index) {
  const Message& message = memory_.location(location).messages[static_cast<std::size_t>(index)];
  auto& looks = threads_[static_cast<std::size_t>(current_)].looked_at;
  std::erase_if(looks, [&](const Look& look) { return look.location == location; });
  looks.push_back({location, message.stamp, message.value});
}

/// A thread's own store is no look, but what it stored is not news to it. First in the list: give_way_to_lock() takes
/// the last.
void Machine::know_own(int location, int index) {
  look_at(location, index);
  auto& looks = threads_[static_cast<std::size_t>(current_)].looked_at;
  std::rotate(looks.begin(), looks.end() - 1, looks.end());
}

bool Machine::has_news(const Thread& thread) const {
  return std::any_of(thread.looked_at.begin(), thread.looked_at.end(), [&](const Look& look) {
    const Message& newest = memory_.location(look.location).messages.back();
    return newest.value != look.value && newest.stamp > look.stamp;
  });
}

void Machine::give_way() {
  if (abandoning_) throw Abandoned{};
  memory_.adopt_plain_stores();
  store_delayed();
  const int self = current_;
  Thread& thread = threads_[static_cast<std::size_t>(self)];
  if (!has_news(thread)) {
    thread.next = Next::wait;
    leave_to_scheduler();
    current_ = self;
    thread.next = Next::run;
  }
  for (const Look& look : thread.looked_at) {
    Stamp& seen = memory_.thread(self).now.seen[static_cast<std::size_t>(look.location)];
    seen = std::max(seen, memory_.location(look.location).messages.back().stamp);
  }
  thread.looked_at.clear();
  if (++steps_of_this_ > kStepsMax) {
    fail("does not end");
    throw Abandoned{};
  }
}

void Machine::give_way_to_lock() {
  auto& looks = threads_[static_cast<std::size_t>(current_)].looked_at;
  if (looks.empty()) return give_way();
  const std::vector<Look> before(looks.begin(), looks.end() - 1);
  looks.erase(looks.begin(), looks.end() - 1);
  give_way();
  looks = before;
}

std::uint64_t Machine::now_ns() {
  if (time_passes_ && late_ < kJumpsChosen && !abandoning_ && explorer_.choose(2) == 1) ++late_;
  return kEarly + late_ * kLate;
}

void Machine::fail(std::string what) {
  if (failure_.empty()) failure_ = std::move(what);
}

std::string Machine::trace() const {
  std::string text;
  char line[256];
  for (const Event& event : events_) {
    const std::string& file = event.site->file;
    std::snprintf(line, sizeof line, "    thread %d  %-17s %-8s word %-2d = 0x%llx%s  %s:%u\n", event.thread,
                  to_string(event.site->operation), to_string(event.order), event.location,
                  static_cast<unsigned long long>(event.value), event.stale ? " (stale)" : "",
                  file.substr(file.rfind('/') + 1).c_str(), event.site->line);
    text += line;
  }
  return text;
}

}  // namespace gpusock::model
