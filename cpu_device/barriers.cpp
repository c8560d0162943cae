#include "cpu_device/block.hpp"
#include "cpu_device/detail/warp.hpp"

#include <cstdio>
#include <stdexcept>
#include <string>

namespace cpu_device::detail {

namespace {

std::string hex(unsigned value) {
  char text[16];
  std::snprintf(text, sizeof text, "0x%08x", value);
  return text;
}

}  // namespace

// --- The block barrier: it is complete when every thread that has not ended has arrived.

/// Returns true if the running thread goes on, as it is the last one to arrive.
bool Block::arrive_at_barrier(bool predicate) {
  check_before_meeting();
  Thread& thread = *current_;
  thread.result = &barrier_count_;  // the next barrier, which changes it, cannot complete before this thread arrives
  barrier_holding_ += predicate;
  if (at_barrier_.size() + 1 == live_) {
    release_barrier();
    ++barrier_count_.arrived;
    progress();
    return true;
  }
  at_barrier_.push(thread);
  warps_[thread.linear / 32].at_barrier |= 1u << thread.linear % 32;
  return false;
}

void Block::release_barrier() {
  barrier_count_ = {static_cast<int>(at_barrier_.size()), barrier_holding_};
  barrier_holding_ = 0;
  for (Warp& warp : warps_) warp.at_barrier = 0;
  ready_.append(at_barrier_);
}

// --- Warp operations: one is complete when every lane of its mask that has not ended waits with that mask.

bool Block::warp_complete(unsigned warp, unsigned mask) {
  const unsigned needed = mask & warps_[warp].live;
  if ((warps_[warp].waiting & needed) != needed) return false;
  for (unsigned lanes = needed; lanes != 0; lanes &= lanes - 1) {
    if (lane_thread(warp, static_cast<unsigned>(__builtin_ctz(lanes))).mask != mask) return false;
  }
  return true;
}

/// Gives the lanes their results and makes the waiting lanes ready. Each lane has its own copy of its results: a lane
/// that runs ahead to its next operation changes nothing that another lane has yet to read.
void Block::finish_warp(unsigned warp, unsigned mask) {
  const unsigned present = mask & warps_[warp].live;
  unsigned holding = 0;
  std::uint64_t values[32];
  for (unsigned lanes = present; lanes != 0; lanes &= lanes - 1) {
    const auto lane = static_cast<unsigned>(__builtin_ctz(lanes));
    values[lane] = lane_thread(warp, lane).value;
    holding |= static_cast<unsigned>(values[lane] != 0) << lane;
  }
  for (unsigned lanes = present; lanes != 0; lanes &= lanes - 1) {
    const auto lane = static_cast<unsigned>(__builtin_ctz(lanes));
    Thread& thread = lane_thread(warp, lane);
    if (thread.operation == Meeting::shuffle) {
      if (thread.source_lane < 32 && (present >> thread.source_lane & 1)) thread.value = values[thread.source_lane];
    } else if (thread.operation == Meeting::ballot) {
      thread.lanes = holding;
    } else if (thread.operation == Meeting::gather) {
      thread.lanes = present;
      for (unsigned rest = present; rest != 0; rest &= rest - 1)
        thread.values[__builtin_ctz(rest)] = values[__builtin_ctz(rest)];
    }
    if (thread.waits == Waits::warp) ready_.push(thread);  // not the caller, which arrived last and runs
  }
  warps_[warp].waiting &= ~present;
}

/// Fails if the running thread, which arrives at `operation`, is not in its mask, or lanes that wait for it there do
/// not do the same.
void Block::check_same_operation(unsigned mask, Meeting operation) {
  const unsigned warp = current_->linear / 32, lane = current_->linear % 32;
  if (!(mask >> lane & 1))
    fail("lane " + std::to_string(lane) + " called a warp operation with mask " + hex(mask) + ", which it is not in");
  for (unsigned lanes = mask & warps_[warp].waiting; lanes != 0; lanes &= lanes - 1) {
    const Thread& other = lane_thread(warp, static_cast<unsigned>(__builtin_ctz(lanes)));
    if (other.mask != mask) continue;
    check_same_lanes_call(other);
    if (other.operation != operation) fail("lanes of mask " + hex(mask) + " met in different warp operations");
    break;  // the other ones have met this one
  }
}

/// Returns true if the running lane goes on, as it is the last one to arrive.
bool Block::arrive_at_warp_operation(Meeting operation, unsigned mask, std::uint64_t value, std::uint64_t other) {
  Thread& thread = *current_;
  const unsigned warp = thread.linear / 32;
  check_lanes_at_meeting();
  thread.operation = operation;
  thread.mask = mask;
  thread.value = value;
  thread.result = operation == Meeting::shuffle ? static_cast<const void*>(&thread.value) : &thread.lanes;
  if (operation == Meeting::gather) {
    thread.values = reinterpret_cast<std::uint64_t*>(other);
  } else {
    thread.source_lane = static_cast<unsigned>(other);
  }
  check_same_operation(mask, operation);
  warps_[warp].waiting |= 1u << thread.linear % 32;
  if (!warp_complete(warp, mask)) return false;
  finish_warp(warp, mask);
  return true;
}

// --- Convergence: CUDA does not promise which lanes __activemask() finds together. The most useful answer is all lanes
// that arrive at the same call before the block can do nothing else.

unsigned Block::converge(const void* site) {
  current_->site = site;
  converging_.push(*current_);
  suspend(Waits::convergence);
  return current_->lanes;
}

void Block::release_converged() {
  for (Thread* thread = converging_.front(); thread; thread = thread->next) {
    thread->lanes = 0;
    for (Thread* other = converging_.front(); other; other = other->next) {
      if (other->linear / 32 == thread->linear / 32 && other->site == thread->site)
        thread->lanes |= 1u << other->linear % 32;
    }
  }
  idle_turns_ = 0;
  ready_.append(converging_);
}

// --- Functions that kernels call.

[[gnu::noinline]] unsigned active_lanes() noexcept {
  if (!t_running) return 1;
  return t_running->converge(__builtin_return_address(0));
}

}  // namespace cpu_device::detail
