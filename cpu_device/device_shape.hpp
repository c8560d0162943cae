#pragma once
/// @file What GPUs bound and the CPU device by itself does not, for tests: a program that relies on more than a GPU has
/// fails here.

#include "cpu_device/launch.hpp"

#include <cstdint>
#include <string>
#include <string_view>

namespace cpu_device {

/// How the process's CPU device behaves. The default is the CPU device's own shape.
struct DeviceShape {
  /// A new stream is given the queue that the fewest streams have; the queues are taken in turn. Launches of one queue
  /// run one after the other, also those of different streams. 0: each stream has a queue of its own.
  unsigned hardware_queues = 0;
  /// Blocks that are resident at the same time, in all grids together; later ones wait until one has ended. 1 to
  /// kResidentBlocksMax.
  unsigned resident_blocks_max = kResidentBlocksMax;
  /// Launches of one stream that have not ended; another one waits until one of them has, and meanwhile the launches of
  /// all other threads wait, as in drivers that do that with a lock. After wait_max_ns it ends the program. 0: any
  /// number.
  unsigned queued_launches_max = 0;
  /// What clock_ns(), clock64() and globaltimer show in kernels: the host's clock, so much ahead, in steps.
  std::uint64_t kernel_clock_ahead_ns = 0;
  std::uint64_t kernel_clock_step_ns = 1;
  /// Host threads that touch device memory (device_memory.hpp) fault, where the processor has protection keys.
  bool guarded_device_memory = false;
  /// How long wait_for_kernels(), or a launch for room, waits before it ends the program.
  std::uint64_t wait_max_ns = 10'000'000'000;
};

/// For streams that are made from now on, and blocks that start. Before the first launch. Throws std::invalid_argument
/// on a value out of range, std::logic_error where more blocks could be resident already, and std::bad_alloc.
void set_device_shape(const DeviceShape& shape);
DeviceShape device_shape();

/// Waits until every launch that was made before has ended, as some calls of GPUs' runtimes do. `call` says for whom,
/// with its object: "freeing 4096 bytes". After DeviceShape::wait_max_ns it writes to standard error what waits for
/// which kernels, and aborts: kernel and call wait for each other. Throws std::logic_error in a kernel.
void wait_for_kernels(std::string_view call);

/// How many blocks of grids that have begun wait for one of DeviceShape::resident_blocks_max others to end, and how
/// many blocks have ended so far: where the latter stands still, they may wait for each other.
struct WaitingBlocks {
  std::uint64_t waiting = 0;
  std::uint64_t ended = 0;
};
WaitingBlocks waiting_blocks();

/// True if a launch has not ended.
bool kernels_run();

/// The first 32 launches that have not ended, the oldest first: each one's kernel, blocks that have ended, and whether
/// it waits for a queue.
std::string describe_launches();

}  // namespace cpu_device
