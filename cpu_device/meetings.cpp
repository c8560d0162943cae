// How a thread waits in a meeting: from a kernel to the next thread and back.
#include "cpu_device/block.hpp"

#include <stdexcept>
#include <string>
#include <utility>

namespace cpu_device::detail {

namespace {

Waits reason_of(Meeting meeting) {
  return meeting == Meeting::barrier      ? Waits::block_barrier
         : meeting == Meeting::block_call ? Waits::block_call
                                          : Waits::warp;
}

const char* name_of(Meeting meeting) {
  switch (meeting) {
    case Meeting::barrier:
      return "__syncthreads";
    case Meeting::sync:
      return "__syncwarp";
    case Meeting::shuffle:
      return "a warp shuffle";
    case Meeting::ballot:
      return "a warp vote";
    default:
      return "a warp operation";
  }
}

Block& block_at(Meeting meeting) {
  if (t_running == nullptr) throw std::logic_error(std::string(name_of(meeting)) + " was called outside of a kernel");
  return *t_running;
}

}  // namespace

/// Returns true if the running thread goes on.
inline bool Block::arrive(Meeting meeting, unsigned mask, std::uint64_t value, std::uint64_t other) {
  if (meeting == Meeting::barrier) return arrive_at_barrier(value != 0);
  if (meeting == Meeting::block_call) return arrive_at_block_call(reinterpret_cast<const char*>(value));
  if (meeting == Meeting::lanes_call) return arrive_at_lanes_call(mask, reinterpret_cast<const char*>(value));
  return arrive_at_warp_operation(meeting, mask, value, other);
}

const void* Block::meet(Meeting meeting, unsigned mask, std::uint64_t value, std::uint64_t other) {
  const Thread& thread = *current_;
  if (!arrive(meeting, mask, value, other)) suspend(reason_of(meeting));
  return thread.result;
}

/// The same for a thread that has left its registers in `frame`. Returns the frame that goes on instead, with its
/// result. That may be the running thread's own.
NextFrame Block::meet_at(void* frame, Meeting meeting, unsigned mask, std::uint64_t value, std::uint64_t other) {
  Thread& thread = *current_;
  if (arrive(meeting, mask, value, other)) return {frame, thread.result};
  if (has_unstarted() || ready_.empty()) {
    suspend(reason_of(meeting));
    return {frame, thread.result};
  }
  prepare_to_wait(reason_of(meeting));
  thread.frame = frame;
  ++switches_;
  Thread& next = next_ready();
  void* const goes_on = std::exchange(next.frame, nullptr);
  return {goes_on != nullptr ? goes_on : next.carrier->frame(), next.result};
}

}  // namespace cpu_device::detail

using cpu_device::detail::Meeting;

#if CPU_DEVICE_SWITCHES_AT_MEETINGS
/// cpu_device_meet() calls it (fiber.cpp).
extern "C" [[gnu::visibility("hidden")]] cpu_device::detail::NextFrame cpu_device_arrive(Meeting meeting, unsigned mask,
                                                                                         std::uint64_t value,
                                                                                         std::uint64_t other,
                                                                                         void* frame) {
  return cpu_device::detail::block_at(meeting).meet_at(frame, meeting, mask, value, other);
}
#else
extern "C" const void* cpu_device_meet(Meeting meeting, unsigned mask, std::uint64_t value, std::uint64_t other) {
  return cpu_device::detail::block_at(meeting).meet(meeting, mask, value, other);
}
#endif
