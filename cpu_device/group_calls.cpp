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

/// The running thread has begun another call than the block's latest, or one of another name.
void Block::begin_next_block_call(const char* name) {
  const Thread& thread = *current_;
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
}

/// The threads of the block wait here. When the last one has arrived, thread 0 goes on; the others do so when it has
/// handed them the result. A thread of the block that does something else meanwhile is noticed as at a barrier. Returns
/// true if the running thread is thread 0 and goes on.
bool Block::arrive_at_block_call(const char* name) {
  begin_block_call(name);
  check_before_meeting();
  Thread& thread = *current_;
  Thread& leader = threads_[0];
  const bool leads = &thread == &leader, last = ++at_call_ == live_;
  warps_[thread.linear / 32].at_barrier |= 1u << thread.linear % 32;
  if (leads) {
    thread.result = nullptr;
    return last;
  }
  thread.result = leader.result_of_leader;
  with_leader_.push(thread);
  if (last) ready_.push(leader);
  return false;
}

/// Fails because the running thread has not begun the block's latest call and is about to wait or to end.
void Block::fail_outside_block_call(const char* does) {
  fail_by_part([=, this] {
    return std::string("this thread ") + does + ", but others of its block call " + block_call_ + "() with the block";
  });
}

// --- Calls of lanes.

/// Returns true if the running thread was in no call of lanes before. Otherwise, another call of the library makes this
/// one, and it is a part of that call.
bool Block::begin_lanes_call(unsigned mask, const char* name) {
  Thread& thread = *current_;
  if (thread.lanes_call != nullptr) return false;
  thread.lanes_call = name;
  thread.lanes_mask = mask;
  thread.lanes_met = false;
  Warp& warp = warps_[thread.linear / 32];
  ++warp.in_calls;
  if ((mask & (~warp.live | warp.at_barrier)) != 0)
    fail_in_lanes_call((mask & ~warp.live) != 0 ? "have ended" : "wait at a barrier of the block");
  return true;
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

/// Fails if the running thread and `other`, which have met at a warp operation, are in different calls.
void Block::check_same_lanes_call(const Thread& other) {
  if (same_name(current_->lanes_call, other.lanes_call)) return;
  const auto call = [](const Thread& thread) {
    return thread.lanes_call ? std::string(thread.lanes_call) + "()" : std::string("an operation of the warp");
  };
  fail_by_part(
      [&] { return "this thread calls " + call(*current_) + ", but other lanes of the group call " + call(other); });
}

/// The running thread arrives at a call of the lanes of `mask`. When the last one has arrived, their leader, the lowest
/// lane, goes on. Returns true if that is the running thread.
bool Block::arrive_at_lanes_call(unsigned mask, const char* name) {
  Thread& thread = *current_;
  const unsigned index = thread.linear / 32, lane = 1u << thread.linear % 32, leader = mask & -mask;
  Warp& warp = warps_[index];
  Thread& leading = lane_thread(index, static_cast<unsigned>(__builtin_ctz(mask)));
  thread.ends_lanes_call = begin_lanes_call(mask, name);
  check_lanes_at_meeting();
  thread.operation = Meeting::lanes_call;
  thread.mask = mask;
  // The leader is mostly there already, in the same call. If not, the lanes are looked at one by one.
  const bool joins = (warp.waiting & leader) != 0 && (mask & lane) != 0 && leading.mask == mask &&
                     leading.operation == Meeting::lanes_call && leading.lanes_call == thread.lanes_call;
  if (!joins) check_same_operation(mask, Meeting::lanes_call);
  thread.result = lane == leader ? nullptr : thread.result_of_leader;
  warp.waiting |= lane;
  if ((warp.waiting & mask) != mask || !warp_complete(index, mask)) return false;
  warp.waiting &= ~leader;  // so that the meeting is not found complete once more
  if (lane != leader) ready_.push(leading);
  return lane == leader;
}

/// Copies the result to each lane, since lanes may be in another group's call before all have seen this one's. A size
/// that the compiler knows needs no call.
void Block::hand_result_to_lanes(unsigned mask, const void* result, std::size_t bytes) {
  const unsigned index = current_->linear / 32;
  Warp& warp = warps_[index];
  for (unsigned lanes = mask; lanes != 0; lanes &= lanes - 1) {
    Thread& thread = lane_thread(index, static_cast<unsigned>(__builtin_ctz(lanes)));
    if (thread.ends_lanes_call) thread.lanes_call = nullptr, --warp.in_calls;
    if (&thread == current_) continue;
    if (bytes == 8) {
      std::memcpy(thread.result_of_leader, result, 8);
    } else {
      std::memcpy(thread.result_of_leader, result, bytes);
    }
    ready_.push(thread);
  }
  warp.waiting &= ~mask;
}

/// `mask`: the lanes; 0: the block.
void Block::hand_result(unsigned mask, const void* result, std::size_t bytes) {
  if (mask != 0) return hand_result_to_lanes(mask, result, bytes);
  std::memcpy(current_->result_of_leader, result, bytes);
  at_call_ = 0;
  for (Warp& warp : warps_) warp.at_barrier = 0;
  ready_.append(with_leader_);
}

// --- Functions that kernels call.

bool begin_call(const char* name, unsigned mask) {
  if (t_running == nullptr) return false;
  if (mask != 0) return t_running->begin_lanes_call(mask, name);
  t_running->begin_block_call(name);
  return false;
}

void end_lanes_call() noexcept { t_running->end_lanes_call(); }

void hand_result(unsigned mask, const void* result, std::size_t bytes) { t_running->hand_result(mask, result, bytes); }

}  // namespace cpu_device::detail
