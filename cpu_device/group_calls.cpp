// Calls of a group: the threads meet, and the leader makes the call. Finds calls that only a part of a group makes.
//
// Calls of the block: each thread counts the calls that it has begun. Threads of a block that meet must have begun the
// same number of calls, and so must a thread that ends. So a thread that waits or ends elsewhere is noticed at once,
// even while another one spins in the call. Calls of lanes: other lanes may have made any number of calls in other
// groups. So a lane notes the call that it is in, and whether it has met the others in it.
//
// This code does not find a part of a group that waits for the others without a barrier.
#include "cpu_device/block.hpp"
#include "cpu_device/detail/group_call.hpp"

#include <cstring>
#include <string>

namespace cpu_device::detail {

namespace {

bool same_name(const char* a, const char* b) {
  return a == b || (a != nullptr && b != nullptr && std::strcmp(a, b) == 0);
}

/// Copies the leader's result to where another thread wants it. A size that the compiler knows needs no call.
void copy_result(const CallResult& leaders, const CallResult& other) {
  if (leaders.bytes == 8) {
    std::memcpy(other.at, leaders.at, 8);
  } else if (leaders.bytes == 4) {
    std::memcpy(other.at, leaders.at, 4);
  } else {
    std::memcpy(other.at, leaders.at, leaders.bytes);
  }
}

}  // namespace

/// Fails with the text that `what` makes. No string may be left on this stack, because it is never unwound.
template <class Words>
void Block::fail_by_part(Words what) {
  fail(words_or_none([&] {
    return what() +
           ". All threads of a group must make each of its calls: let all of them make it, or pass this_thread() or a "
           "group of those that do";
  }));
}

// --- Calls of the block.

CallBegun Block::begin_block_call(const char* name) {
  Thread& thread = *current_;
  ++thread.block_calls;
  if (thread.block_calls > block_calls_) {
    block_calls_ = thread.block_calls;
    block_call_ = name;
    const char* const where = live_ != thread_count_ ? " have ended"
                              : !at_barrier_.empty() ? " wait at a barrier"
                                                     : nullptr;
    if (where) {
      fail_by_part([=] {
        return std::string("this thread calls ") + name + "() with its block, but others of the block" + where;
      });
    }
  } else if (thread.block_calls == block_calls_ && !same_name(name, block_call_)) {
    fail_by_part([=, this] {
      return std::string("this thread calls ") + name + "() with its block, but others of the block call " +
             block_call_ + "()";
    });
  }
  return {true, leaders_make_calls_};
}

/// The running thread is about to meet its block. Fails if others cannot come, as they are in another call.
void Block::check_before_meeting() {
  if (current_->block_calls != block_calls_) fail_outside_block_call("waits at a barrier");
  if (warps_[current_->linear / 32].in_calls != 0) check_lanes_calls("waits at a barrier");
}

/// The threads of the block wait here. When the last one has arrived, thread 0 goes on; the others do so when it has
/// handed them the result. A thread of the block that does something else meanwhile is noticed as at a barrier.
bool Block::arrive_at_block_call(const CallResult& result) {
  check_before_meeting();
  Thread& thread = *current_;
  Thread& leader = threads_[0];
  const bool leads = &thread == &leader, last = ++at_call_ == live_;
  thread.result = &result;
  warps_[thread.linear / 32].at_barrier |= 1u << thread.linear % 32;
  if (!leads) with_leader_.push(thread);
  if (!leads && last) ready_.push(leader);
  if (!leads || !last) suspend(Waits::block_call);
  return leads;
}

void Block::hand_result_to_block() {
  at_call_ = 0;
  for (Warp& warp : warps_) warp.at_barrier = 0;
  for (Thread* other = with_leader_.front(); other != nullptr; other = other->next)
    copy_result(*current_->result, *other->result);
  ready_.append(with_leader_);
}

/// Fails because the running thread has not begun the block's latest call and is about to wait or to end.
void Block::fail_outside_block_call(const char* does) {
  fail_by_part([=, this] {
    return std::string("this thread ") + does + ", but others of its block call " + block_call_ + "() with the block";
  });
}

// --- Calls of lanes.

CallBegun Block::begin_lanes_call(unsigned mask, const char* name) {
  Thread& thread = *current_;
  if (thread.lanes_call != nullptr) return {false, leaders_make_calls_};  // another call of the library makes this one
  thread.lanes_call = name;
  thread.lanes_mask = mask;
  thread.lanes_met = false;
  Warp& warp = warps_[thread.linear / 32];
  ++warp.in_calls;
  if ((mask & ~warp.live) != 0) fail_in_lanes_call("have ended");
  if ((mask & warp.at_barrier) != 0) fail_in_lanes_call("wait at a barrier of the block");
  return {true, leaders_make_calls_};
}

void Block::end_lanes_call() {
  current_->lanes_call = nullptr;
  --warps_[current_->linear / 32].in_calls;
}

/// Fails because the running thread is in a call of lanes and other lanes of the group are not: `others` says why.
void Block::fail_in_lanes_call(const char* others) {
  fail_by_part([=, this] {
    return std::string("this thread calls ") + current_->lanes_call +
           "() with lanes of its warp, but others of these lanes " + others;
  });
}

/// The running thread is in no call of lanes, and is about to wait for its block or to end. Fails if another lane is in
/// a call that it cannot end without the running thread.
void Block::check_lanes_calls(const char* does) {
  const Thread& thread = *current_;
  for (unsigned lane = 0; lane < 32; ++lane) {
    const unsigned linear = thread.linear / 32 * 32 + lane;
    if (linear >= next_unstarted_ || linear == thread.linear) continue;
    const Thread& other = threads_[linear];
    const bool needs_us = other.carrier != nullptr && other.lanes_call != nullptr &&
                          (other.lanes_mask >> thread.linear % 32 & 1) != 0;
    if (needs_us && (!other.lanes_met || (warps_[linear / 32].waiting >> lane & 1) != 0)) {
      fail_by_part([&] {
        return std::string("this thread ") + does + ", but other lanes of its warp call " + other.lanes_call +
               "() with it";
      });
    }
  }
}

/// Notes that the running thread meets lanes of its warp. Fails if lanes of its call's group have ended.
void Block::check_lanes_at_meeting() {
  Thread& thread = *current_;
  if (thread.lanes_call == nullptr) return;
  thread.lanes_met = true;
  if ((thread.lanes_mask & ~warps_[thread.linear / 32].live) != 0) fail_in_lanes_call("have ended");
}

/// Fails if the running thread and `other`, which have met at a warp operation, are in different calls.
void Block::check_same_lanes_call(const Thread& other) {
  if (same_name(current_->lanes_call, other.lanes_call)) return;
  const auto call = [](const Thread& thread) {
    return thread.lanes_call ? std::string(thread.lanes_call) + "()" : std::string("an operation of the warp");
  };
  fail_by_part(
      [&] { return "this thread calls " + call(*current_) + ", but other lanes of the group call " + call(other); });
}

bool Block::arrive_at_lanes_call(unsigned mask, const CallResult& result) {
  current_->result = &result;
  warp_meet(mask, WarpOperation::call, 0, 0, nullptr);
  return (mask & -mask) == 1u << current_->linear % 32;
}

/// The running thread has arrived at a call of the lanes of `mask`. `complete`: as the last one; their leader, the
/// lowest lane, then goes on.
void Block::wait_for_leader(unsigned warp, unsigned mask, bool complete) {
  Thread& leader = lane_thread(warp, static_cast<unsigned>(__builtin_ctz(mask)));
  const bool leads = current_ == &leader;
  if (complete) warps_[warp].waiting &= ~(mask & -mask);  // so that the meeting is not found complete once more
  if (complete && !leads) ready_.push(leader);
  if (!complete || !leads) suspend(Waits::warp);
}

void Block::hand_result_to_lanes(unsigned mask) {
  const unsigned warp = current_->linear / 32;
  for (unsigned others = mask & (mask - 1); others != 0; others &= others - 1)
    copy_result(*current_->result, *lane_thread(warp, static_cast<unsigned>(__builtin_ctz(others))).result);
  finish_warp(warp, mask);
}

// --- Functions that kernels call.

CallBegun begin_block_call(const char* name) {
  return t_running ? t_running->begin_block_call(name) : CallBegun{false, false};
}

CallBegun begin_lanes_call(unsigned mask, const char* name) {
  return t_running ? t_running->begin_lanes_call(mask, name) : CallBegun{false, false};
}

bool arrive_at_block_call(const CallResult& result) { return t_running->arrive_at_block_call(result); }

bool arrive_at_lanes_call(unsigned mask, const CallResult& result) {
  return t_running->arrive_at_lanes_call(mask, result);
}

void hand_result_to_block() { t_running->hand_result_to_block(); }

void hand_result_to_lanes(unsigned mask) { t_running->hand_result_to_lanes(mask); }

void end_lanes_call() noexcept { t_running->end_lanes_call(); }

}  // namespace cpu_device::detail
