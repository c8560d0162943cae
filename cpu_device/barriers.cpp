#include "cpu_device/block.hpp"
#include "cpu_device/detail/warp.hpp"

#include <cstdio>
#include <stdexcept>
#include <string>

namespace cpu_device::detail {

namespace {

Block& running(const char* what) {
  if (t_running) return *t_running;
  throw std::logic_error(std::string(what) + " was called outside of a kernel");
}

std::string hex(unsigned value) {
  char text[16];
  std::snprintf(text, sizeof text, "0x%08x", value);
  return text;
}

}  // namespace

// --- The block barrier: it is complete when every thread that has not ended has arrived.

BarrierCount Block::barrier(bool predicate) {
  check_before_meeting();
  barrier_holding_ += predicate;
  if (at_barrier_.size() + 1 == live_) {
    release_barrier();
    ++barrier_count_.arrived;
    progress();
    return barrier_count_;
  }
  at_barrier_.push(*current_);
  warps_[current_->linear / 32].at_barrier |= 1u << current_->linear % 32;
  suspend(Waits::block_barrier);
  return barrier_count_;  // still this barrier's count: the next barrier cannot complete before this thread arrives
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
    if (thread.operation == WarpOperation::shuffle) {
      if (thread.source_lane < 32 && (present >> thread.source_lane & 1)) thread.value = values[thread.source_lane];
    } else if (thread.operation == WarpOperation::ballot) {
      thread.lanes = holding;
    } else if (thread.operation == WarpOperation::gather) {
      thread.lanes = present;
      for (unsigned rest = present; rest != 0; rest &= rest - 1)
        thread.values[__builtin_ctz(rest)] = values[__builtin_ctz(rest)];
    }
    if (thread.waits == Waits::warp) ready_.push(thread);  // not the caller, which arrived last and runs
  }
  warps_[warp].waiting &= ~present;
}

void Block::warp_meet(unsigned mask, WarpOperation operation, std::uint64_t value, unsigned source_lane,
                      std::uint64_t* values) {
  Thread& thread = *current_;
  const unsigned warp = thread.linear / 32, lane = thread.linear % 32;
  if (!(mask >> lane & 1))
    fail("lane " + std::to_string(lane) + " called a warp operation with mask " + hex(mask) + ", which it is not in");
  check_lanes_at_meeting();
  thread.operation = operation;
  thread.mask = mask;
  thread.value = value;
  thread.source_lane = source_lane;
  thread.values = values;
  for (unsigned lanes = mask & warps_[warp].waiting; lanes != 0; lanes &= lanes - 1) {
    const Thread& other = lane_thread(warp, static_cast<unsigned>(__builtin_ctz(lanes)));
    if (other.mask != mask) continue;
    check_same_lanes_call(other);
    if (other.operation != operation) fail("lanes of mask " + hex(mask) + " met in different warp operations");
    break;  // the other ones have met this one
  }
  warps_[warp].waiting |= 1u << lane;
  const bool complete = warp_complete(warp, mask);
  if (operation == WarpOperation::call) {
    wait_for_leader(warp, mask, complete);
  } else if (complete) {
    finish_warp(warp, mask);
  } else {
    suspend(Waits::warp);
  }
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

BarrierCount block_barrier(bool predicate) { return running("__syncthreads").barrier(predicate); }

void warp_sync(unsigned mask) { running("__syncwarp").warp_meet(mask, WarpOperation::sync, 0, 0, nullptr); }

std::uint64_t warp_shuffle(unsigned mask, std::uint64_t value, unsigned source_lane) {
  Block& block = running("a warp shuffle");
  block.warp_meet(mask, WarpOperation::shuffle, value, source_lane, nullptr);
  return block.current().value;
}

unsigned warp_ballot(unsigned mask, bool predicate) {
  Block& block = running("a warp vote");
  block.warp_meet(mask, WarpOperation::ballot, predicate, 0, nullptr);
  return block.current().lanes;
}

unsigned warp_gather(unsigned mask, std::uint64_t value, std::uint64_t (&values)[32]) {
  Block& block = running("a warp operation");
  block.warp_meet(mask, WarpOperation::gather, value, 0, values);
  return block.current().lanes;
}

unsigned lane() noexcept { return t_thread->linear % 32; }

[[gnu::noinline]] unsigned active_lanes() noexcept {
  if (!t_running) return 1;
  return t_running->converge(__builtin_return_address(0));
}

}  // namespace cpu_device::detail
