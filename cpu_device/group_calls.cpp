// Finds calls of a group that only a part of its threads makes.
//
// A call of the block: each thread counts those that it has begun. Wherever threads of a block meet, they have begun
// the same number of calls, and so has each thread that ends. So a thread that waits or ends elsewhere is noticed at
// once, also while another one spins in the call. A call of lanes: other lanes may have made any number of calls in
// other groups. A lane notes the call that it is in, and whether it has met the others in it.
//
// Nothing here finds a part of a group that waits for the others without a barrier.
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

/// `what` makes the words: nothing of them may be left on the stack, which is never unwound.
template <class Words>
void Block::fail_by_part(Words what) {
  fail(words_or_none([&] {
    return what() +
           ". All threads of a group must make each of its calls: let all of them make it, or pass this_thread() or a "
           "group of those that do";
  }));
}

// --- Calls of the block.

void Block::begin_block_call(const char* name) {
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
}

/// The running thread, which has not begun the block's latest call, is about to wait or to end.
void Block::fail_outside_block_call(const char* does) {
  fail_by_part([=, this] {
    return std::string("this thread ") + does + ", but others of its block call " + block_call_ + "() with the block";
  });
}

// --- Calls of lanes.

bool Block::begin_lanes_call(unsigned mask, const char* name) {
  Thread& thread = *current_;
  if (thread.lanes_call != nullptr) return false;  // a call of the library that makes another one
  thread.lanes_call = name;
  thread.lanes_mask = mask;
  thread.lanes_met = false;
  Warp& warp = warps_[thread.linear / 32];
  ++warp.in_calls;
  if ((mask & ~warp.live) != 0) fail_in_lanes_call("have ended");
  if ((mask & warp.at_barrier) != 0) fail_in_lanes_call("wait at a barrier of the block");
  return true;
}

void Block::end_lanes_call() {
  current_->lanes_call = nullptr;
  --warps_[current_->linear / 32].in_calls;
}

/// The running thread is in a call of lanes. `others`: what lanes of the group do instead.
void Block::fail_in_lanes_call(const char* others) {
  fail_by_part([=, this] {
    return std::string("this thread calls ") + current_->lanes_call +
           "() with lanes of its warp, but others of these lanes " + others;
  });
}

/// The running thread, which is in no call of lanes, is about to wait for its block, or to end: fails if another lane
/// is in a call that it cannot end without this one.
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

/// The running thread meets lanes of its warp.
void Block::check_lanes_at_meeting() {
  Thread& thread = *current_;
  if (thread.lanes_call == nullptr) return;
  thread.lanes_met = true;
  if ((thread.lanes_mask & ~warps_[thread.linear / 32].live) != 0) fail_in_lanes_call("have ended");
}

/// Two lanes have met at an operation of the warp.
void Block::check_same_lanes_call(const Thread& other) {
  if (same_name(current_->lanes_call, other.lanes_call)) return;
  const auto call = [](const Thread& thread) {
    return thread.lanes_call ? std::string(thread.lanes_call) + "()" : std::string("an operation of the warp");
  };
  fail_by_part(
      [&] { return "this thread calls " + call(*current_) + ", but other lanes of the group call " + call(other); });
}

// --- What kernels call.

void begin_block_call(const char* name) {
  if (t_running) t_running->begin_block_call(name);
}

bool begin_lanes_call(unsigned mask, const char* name) { return t_running && t_running->begin_lanes_call(mask, name); }

void end_lanes_call() noexcept { t_running->end_lanes_call(); }

}  // namespace cpu_device::detail
