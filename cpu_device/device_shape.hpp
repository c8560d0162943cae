#pragma once
/// @file Limits that GPUs have and the CPU device by itself does not have, for tests: a program that needs more than a
/// GPU offers fails here.

#include "cpu_device/launch.hpp"

#include <cstdint>
#include <string>
#include <string_view>

namespace cpu_device {

/// How the process's CPU device behaves. The default is the CPU device's own shape.
struct DeviceShape {
  /// A new stream gets the queue that the fewest streams have; among equal ones, the queues take turns. Launches of one
  /// queue run one after the other, even those of different streams. 0: each stream has a queue of its own.
  unsigned hardware_queues = 0;
  /// Maximum number of blocks that are resident at the same time, in all grids together. Further blocks wait until one
  /// has ended. 1 to kResidentBlocksMax.
  unsigned resident_blocks_max = kResidentBlocksMax;
  /// Maximum number of launches of one stream that have not ended. A further launch waits until one has ended, and the
  /// launches of all other threads wait meanwhile, as with drivers that hold a lock. After wait_max_ns, the launch ends
  /// the program. 0: no limit.
  unsigned queued_launches_max = 0;
  /// In kernels, clock_ns(), clock64() and globaltimer show the host's clock, ahead by this, rounded down to the step.
  std::uint64_t kernel_clock_ahead_ns = 0;
  std::uint64_t kernel_clock_step_ns = 1;
  /// True: host threads that touch device memory (device_memory.hpp) fault, if the processor has protection keys.
  bool guarded_device_memory = false;
  /// True: a call that all threads of a group make together is made by the group's leader when all have arrived, and
  /// the others get its result. False: all threads make it, and meet in it as often as on a GPU.
  bool leaders_make_calls = true;
  /// How long wait_for_kernels(), or a launch that needs room, waits before it ends the program.
  std::uint64_t wait_max_ns = 10'000'000'000;
};

/// Sets the shape for new streams and new blocks. Call it before the first launch. Throws std::invalid_argument on a
/// value out of range, std::logic_error if more blocks could be resident already, and std::bad_alloc.
void set_device_shape(const DeviceShape& shape);
DeviceShape device_shape();

/// Waits until every earlier launch has ended, as some calls of GPU runtimes do. `call` names the call that waits, with
/// its object: "freeing 4096 bytes". After DeviceShape::wait_max_ns it writes this call and the kernels to standard
/// error, and aborts: kernel and call wait for each other. Throws std::logic_error in a kernel.
void wait_for_kernels(std::string_view call);

/// How many blocks of grids that have begun wait because DeviceShape::resident_blocks_max others are resident, and how
/// many blocks have ended so far. If the latter number does not grow, blocks may be waiting for each other.
struct WaitingBlocks {
  std::uint64_t waiting = 0;
  std::uint64_t ended = 0;
};
WaitingBlocks waiting_blocks();

/// True if a launch has not ended.
bool kernels_run();

/// Lists the first 32 launches that have not ended, the oldest first: each one's kernel, the number of its blocks that
/// have ended, and whether it waits in its queue.
std::string describe_launches();

}  // namespace cpu_device
