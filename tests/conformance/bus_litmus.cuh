#pragma once
// Message passing, as every link rests on it: a payload, and behind it a position. Each kernel is one side of a ring.
// The ring is in pinned host memory and its other side a host thread (bus_test.cu), or in device memory and the other
// side a kernel (between_kernels_test.cu). tests/codegen reads the PTX of exactly these kernels (litmus_*).
#include <gpusock/device.cuh>

#include "tests/support/patience.hpp"

#include <cstdint>

namespace gpusock::conformance {

/// A ring, and messages through it: of message i the kernels know where in `pattern` it begins and how long it is.
struct BusLitmus {
  static constexpr std::uint64_t kCapacity = 1024;
  static constexpr std::uint64_t kPatternBytes = 4096;
  static constexpr std::uint64_t kMessageBytesMax = 700;

  ringbuf::RingMemory memory;
  std::uint64_t* committed = nullptr;
  std::uint64_t* consumed = nullptr;
  std::uint64_t* host_copy = nullptr;  ///< of the word that this side stores; for words in device memory
  const std::byte* pattern = nullptr;
  std::byte* scratch = nullptr;  ///< kMessageBytesMax, of the device
  std::uint64_t messages = 0;
  std::uint64_t* wrong = nullptr;  ///< bytes that were not as they were sent; kStuck: it waited too long

  static constexpr std::uint64_t kStuck = std::uint64_t{1} << 32;

  /// Long and short ones, whose ends meet every alignment.
  GPUSOCK_FN static std::uint64_t bytes_of(std::uint64_t message) {
    return 1 + message * 2654435761u % kMessageBytesMax;
  }
  GPUSOCK_FN static std::uint64_t begin_of(std::uint64_t message) {
    return message * 40503u % (kPatternBytes - kMessageBytesMax);
  }
};

/// What a side does once it has seen the other one's position.
struct NoFence {
  __device__ static void run() {}
};
/// PTX asks for it where both sides reach one page by different addresses ("Proxies").
struct AliasFence {
  __device__ static void run() {
#if GPUSOCK_ON_GPU
    asm volatile("fence.proxy.alias;" ::: "memory");
#endif
  }
};

/// Sends all messages: the group writes each into the ring, its leader commits it.
template <class Fence = NoFence, class Group>
__device__ inline void send_across_the_bus(const Group& group, const BusLitmus& it) {
  ringbuf::ByteProducer<> producer(it.memory, it.committed, it.consumed, 0, {it.host_copy});
  const bool leads = group.thread_rank() == 0;
  const std::uint64_t until_ns = clock_ns() + kPatienceNs;
#pragma unroll 1
  for (std::uint64_t message = 0; message < it.messages; ++message) {
    const std::uint64_t bytes = BusLitmus::bytes_of(message);
    std::uint64_t position = producer.position();
    if (leads) {
      std::uint64_t there = 0;
#pragma unroll 1
      while ((there = producer.writable(bytes)) < bytes && clock_ns() < until_ns) __nanosleep(100);
      Fence::run();
      if (there < bytes) position = BusLitmus::kStuck;
    }
    position = detail::broadcast(group, position);
    if (position == BusLitmus::kStuck) {
      if (leads) atomicAdd(reinterpret_cast<unsigned long long*>(it.wrong), BusLitmus::kStuck);
      return;
    }
    detail::copy_in(group, it.memory.spans(position, bytes), it.pattern + BusLitmus::begin_of(message));
    group.sync();
    if (leads) producer.commit(bytes);
  }
}

/// Receives all messages: the leader sees that one is there, the group reads it, the leader gives its space back.
template <class Fence = NoFence, class Group>
__device__ inline void receive_across_the_bus(const Group& group, const BusLitmus& it) {
  ringbuf::ByteConsumer<> consumer(it.memory, it.committed, it.consumed, 0, {it.host_copy});
  const bool leads = group.thread_rank() == 0;
  const std::uint64_t until_ns = clock_ns() + kPatienceNs;
#pragma unroll 1
  for (std::uint64_t message = 0; message < it.messages; ++message) {
    const std::uint64_t bytes = BusLitmus::bytes_of(message);
    std::uint64_t position = consumer.position();
    if (leads) {
      std::uint64_t there = 0;
#pragma unroll 1
      while ((there = consumer.readable(bytes)) < bytes && clock_ns() < until_ns) __nanosleep(100);
      Fence::run();
      if (there < bytes) position = BusLitmus::kStuck;
    }
    position = detail::broadcast(group, position);
    if (position == BusLitmus::kStuck) {
      if (leads) atomicAdd(reinterpret_cast<unsigned long long*>(it.wrong), BusLitmus::kStuck);
      return;
    }
    detail::copy_out(group, it.scratch, it.memory.spans(position, bytes));
    group.sync();
    if (leads) consumer.release(bytes);
    for (std::uint64_t i = group.thread_rank(); i < bytes; i += group.num_threads()) {
      if (it.scratch[i] != it.pattern[BusLitmus::begin_of(message) + i])
        atomicAdd(reinterpret_cast<unsigned long long*>(it.wrong), 1ull);
    }
    group.sync();  // nobody still reads the scratch
  }
}

extern "C" __global__ void litmus_thread_sends(BusLitmus it) { send_across_the_bus(this_thread(), it); }
extern "C" __global__ void litmus_block_sends(BusLitmus it) { send_across_the_bus(this_block(), it); }
extern "C" __global__ void litmus_thread_receives(BusLitmus it) { receive_across_the_bus(this_thread(), it); }
extern "C" __global__ void litmus_block_receives(BusLitmus it) { receive_across_the_bus(this_block(), it); }

extern "C" __global__ void litmus_thread_sends_fenced(BusLitmus it) {
  send_across_the_bus<AliasFence>(this_thread(), it);
}
extern "C" __global__ void litmus_block_sends_fenced(BusLitmus it) {
  send_across_the_bus<AliasFence>(this_block(), it);
}
extern "C" __global__ void litmus_thread_receives_fenced(BusLitmus it) {
  receive_across_the_bus<AliasFence>(this_thread(), it);
}
extern "C" __global__ void litmus_block_receives_fenced(BusLitmus it) {
  receive_across_the_bus<AliasFence>(this_block(), it);
}

/// Both sides in one block: they share what a multiprocessor caches.
template <class Fence>
__device__ inline void pass_between_warps(const BusLitmus& sends, const BusLitmus& receives) {
  if (threadIdx.x < 32) {
    send_across_the_bus<Fence>(this_warp(), sends);
  } else {
    receive_across_the_bus<Fence>(this_warp(), receives);
  }
}
extern "C" __global__ void litmus_warps_pass(BusLitmus sends, BusLitmus receives) {
  pass_between_warps<NoFence>(sends, receives);
}
extern "C" __global__ void litmus_warps_pass_fenced(BusLitmus sends, BusLitmus receives) {
  pass_between_warps<AliasFence>(sends, receives);
}

}  // namespace gpusock::conformance
