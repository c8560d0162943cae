#pragma once
/// @file A thread of a block, and queues of them.

#include "cpu_device/detail/builtins.hpp"
#include "cpu_device/detail/group_call.hpp"
#include "cpu_device/fiber.hpp"
#include "cpu_device/launch.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace cpu_device::detail {

enum class Waits : std::uint8_t { nothing, block_barrier, block_call, warp, convergence };

/// A thread that has started. Kernels read only its base class, ThreadInfo. All that a meeting of the block uses is in
/// the first cache line: the lines of many threads, and of their stacks, must stay in the processor's first cache.
struct alignas(64) Thread : ThreadInfo {
  Thread* next = nullptr;         ///< in the ready queue, or in a queue of waiting threads
  void* frame = nullptr;          ///< where it is suspended in cpu_device_meet(); null: where its carrier is
  const void* result = nullptr;   ///< what cpu_device_meet() returns to it
  std::uint64_t block_calls = 0;  ///< number of calls that it has begun with its block
  Waits waits = Waits::nothing;
  bool lanes_met = false;        ///< true if it has come to a warp operation in its call of lanes
  bool ends_lanes_call = false;  ///< true if its call of lanes ends with the meeting at which it waits

  // Arguments and results of the thread's warp operation, and its call of lanes (group_calls.cpp).
  Meeting operation = Meeting::sync;
  unsigned mask = 0;
  unsigned source_lane = 0;
  unsigned lanes = 0;
  unsigned lanes_mask = 0;           ///< the lanes of the call's group
  const char* lanes_call = nullptr;  ///< name of the call of lanes that it is in; null: none
  std::uint64_t value = 0;
  std::uint64_t* values = nullptr;
  /// What the leader of its call has handed to it; what it has handed to the block, in thread 0.
  alignas(kCallAlignment) std::byte result_of_leader[kCallResultMax];

  Carrier* carrier = nullptr;  ///< null after the thread has ended
  const void* site = nullptr;
  std::uint64_t sleep_began_ns = 0;  ///< start of a series of nanosleep() calls that follow one another closely
  std::uint64_t sleep_ended_ns = 0;

  Unfinished unfinished;
  std::vector<Unfinished> kept;  ///< the latest last
};

/// First in, first out.
class ThreadQueue {
 public:
  bool empty() const { return head_ == nullptr; }
  unsigned size() const { return size_; }
  Thread* front() const { return head_; }
  void push(Thread& thread) {
    thread.next = nullptr;
    (tail_ ? tail_->next : head_) = &thread;
    tail_ = &thread;
    ++size_;
  }
  Thread& pop() {
    Thread& thread = *head_;
    head_ = thread.next;
    if (!head_) tail_ = nullptr;
    --size_;
    return thread;
  }
  /// Leaves `other` empty.
  void append(ThreadQueue& other) {
    if (other.empty()) return;
    (tail_ ? tail_->next : head_) = other.head_;
    tail_ = other.tail_;
    size_ += other.size_;
    other = {};
  }

 private:
  Thread* head_ = nullptr;
  Thread* tail_ = nullptr;
  unsigned size_ = 0;
};

}  // namespace cpu_device::detail
