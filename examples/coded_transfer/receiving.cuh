#pragma once
/// @file The receiver's kernels: each block takes the chunks of one path, until enough have come over all paths
/// together.

#include "examples/coded_transfer/plan.hpp"
#include "examples/coded_transfer/sending.cuh"

#include <gpusock/device.cuh>
#include <gpusock/greetings.cuh>

#include <cuda/atomic>

namespace coded {

template <class T>
using Shared = cuda::atomic_ref<T, cuda::thread_scope_system>;  // kernels and the host

/// A chunk that has come: its slot, and its number plus 1; 0: none yet. One word, so that the host reads both or none.
struct Arrival {
  static std::uint32_t slot(std::uint64_t word) { return static_cast<std::uint32_t>(word >> 32); }
  static std::uint32_t number(std::uint64_t word) { return static_cast<std::uint32_t>(word) - 1; }
  __device__ static std::uint64_t word(std::uint32_t slot, std::uint64_t number) {
    return std::uint64_t{slot} << 32 | (number + 1);
  }
};

/// What blocks count together.
struct Counters {
  unsigned claimed, arrived, groups_done, lost;
};

struct Receiver {
  gpusock::Net net;
  Plan plan;
  const gpusock::Socket* sockets;  ///< of each path
  const std::uint64_t* rates;      ///< the most bytes a second that a block takes from its path; 0: any
  std::byte* chunks;               ///< slots, and a chunk more for each path
  std::uint64_t* arrivals;         ///< of each slot, in the order in which they came
  Counters* counters;
  unsigned* in_group;  ///< chunks of each group that have come
  End* end;            ///< set by a block, or, with LT, by the host
  std::uint64_t patience_ms;
  PathReport* reports;
};

/// One thread accepts all paths. The first one says how many there are.
__global__ void accept_paths(gpusock::Net net, gpusock::Socket listener, Plan* plan, gpusock::Socket* sockets,
                             int* error, std::uint64_t patience_ms) {
  const auto me = gpusock::this_thread();
  gpusock::Greetings<Hello> greetings(net, listener, patience_ms * 1'000'000);
  for (std::uint32_t i = 0; i < kPathsMax; ++i) sockets[i] = -1;
  for (std::uint32_t come = 0; come == 0 || come < plan->paths;) {
    // The first path may take as long as it likes, others must follow soon.
    const auto until = come == 0 ? gpusock::Deadline::never() : gpusock::Deadline::after_ms(patience_ms);
    Hello hello;
    const gpusock::Socket caller = greetings.next(hello, until);
    if (caller < 0) {
      *error = caller;
      return;
    }
    const bool is_ours = hello.magic == Hello::kMagic && hello.plan.is_valid() && hello.path < hello.plan.paths;
    if (is_ours && come == 0) *plan = hello.plan;
    if (is_ours && hello.plan == *plan && sockets[hello.path] < 0) {
      sockets[hello.path] = caller;
      ++come;
    } else {
      net.close(me, caller);
    }
  }
  net.close(me, listener);
}

/// What all threads of a block see at the same moment.
struct Look {
  End end;
  std::uint64_t now_ns;
};
template <class Block>
__device__ Look look(const Block& block, const Receiver& own) {
  __shared__ Look seen;
  block.sync();
  if (block.thread_rank() == 0) seen = {Shared<End>(*own.end).load(cuda::memory_order_acquire), gpusock::clock_ns()};
  block.sync();
  return seen;
}

/// Waits for so long, at most until the next look.
template <class Block>
__device__ void pause(const Block& block, const Receiver& own, std::uint64_t ns) {
  constexpr std::uint64_t kMostNs = kLookMs * 1'000'000;
  own.net.poll(block, nullptr, 0, gpusock::Deadline::after_ns(ns < kMostNs ? ns : kMostNs));
}

/// Takes these bytes from a path, no faster than its rate. Returns 0, or a negated errno: -ECANCELED if the transfer
/// has ended.
template <class Block>
__device__ std::int32_t take(const Block& block, const Receiver& own, void* data, std::uint64_t bytes,
                             std::uint64_t began_ns, PathReport& report) {
  const std::uint64_t rate = own.rates[blockIdx.x];
  Idle idle{own.patience_ms};
  for (std::uint64_t got = 0; got < bytes;) {
    const Look seen = look(block, own);
    if (seen.end != End::none) return -ECANCELED;
    const double due_ns = rate == 0 ? 0 : static_cast<double>(report.bytes) * 1e9 / static_cast<double>(rate);
    if (const auto elapsed_ns = static_cast<double>(seen.now_ns - began_ns); elapsed_ns < due_ns) {
      pause(block, own, static_cast<std::uint64_t>(due_ns - elapsed_ns) + 1);
      continue;
    }
    const auto more = own.net.recv(block, own.sockets[blockIdx.x], static_cast<std::byte*>(data) + got, bytes - got, 0,
                                   gpusock::Deadline::after_ms(kLookMs));
    if (more == 0) return -EPIPE;
    if (idle.ends(more, seen.now_ns)) return static_cast<std::int32_t>(more);
    if (more > 0) got += static_cast<std::uint64_t>(more), report.bytes += static_cast<std::uint64_t>(more);
  }
  return 0;
}

/// Waits until the transfer ends: other paths have what is missing, or, with LT, the host has yet to see that enough
/// has come. Returns -ECANCELED, or -ENOBUFS if it does not end in time.
template <class Block>
__device__ std::int32_t await_end(const Block& block, const Receiver& own, std::uint64_t most_ms) {
  const std::uint64_t began_ns = look(block, own).now_ns;
  for (;;) {
    const Look seen = look(block, own);
    if (seen.end != End::none) return -ECANCELED;
    if ((seen.now_ns - began_ns) / 1'000'000 >= most_ms) return -ENOBUFS;
    pause(block, own, ~std::uint64_t{0});
  }
}

/// One thread tells the host of a chunk. Without LT, it knows itself whether enough have come: `data` of each group.
__device__ inline void publish(const Receiver& own, std::uint32_t slot, std::uint64_t number) {
  const unsigned index = atomicAdd(&own.counters->arrived, 1u);
  Shared<std::uint64_t>(own.arrivals[index]).store(Arrival::word(slot, number), cuda::memory_order_release);
  if (own.plan.is_lt != 0) return;
  const std::uint32_t group = slot / own.plan.paths, needed = own.plan.data_paths();
  if (atomicAdd(&own.in_group[group], 1u) + 1 != needed) return;
  if (atomicAdd(&own.counters->groups_done, 1u) + 1 == own.plan.groups()) {
    Shared<End>(*own.end).store(End::enough, cuda::memory_order_release);
  }
}

/// Takes chunks until the transfer ends or the path is lost; returns why.
template <class Block>
__device__ std::int32_t take_chunks(const Block& block, const Receiver& own, PathReport& report) {
  __shared__ Frame frame;
  __shared__ std::uint32_t claimed;
  const std::uint64_t began_ns = look(block, own).now_ns;
  for (std::uint64_t i = 0; own.plan.is_lt != 0 || i < own.plan.groups(); ++i) {
    if (const auto error = take(block, own, &frame, sizeof frame, began_ns, report); error != 0) return error;
    const std::uint64_t number = i * own.plan.paths + blockIdx.x;
    if (frame.number != number) return -EPROTO;
    if (block.thread_rank() == 0) {
      claimed = static_cast<std::uint32_t>(own.plan.is_lt != 0 ? atomicAdd(&own.counters->claimed, 1u) : number);
    }
    block.sync();
    if (claimed >= own.plan.slots()) return await_end(block, own, own.patience_ms);
    std::byte* const chunk = own.chunks + std::uint64_t{claimed} * own.plan.chunk_bytes;
    if (const auto error = take(block, own, chunk, own.plan.chunk_bytes, began_ns, report); error != 0) return error;
    block.sync();
    if (block.thread_rank() == 0) publish(own, claimed, number);
  }
  return await_end(block, own, ~std::uint64_t{0});
}

/// Block p takes from path p.
__global__ void receive_paths(Receiver own) {
  const auto block = gpusock::this_block();
  const gpusock::Socket socket = own.sockets[blockIdx.x];
  PathReport report{};
  const std::int32_t error = take_chunks(block, own, report);
  if (error == -ECANCELED) {
    // Tells the sender, and reads what is still on its way: else TCP would drop the word.
    __shared__ End word;
    const End end = look(block, own).end;
    if (block.thread_rank() == 0) word = end;
    block.sync();
    const auto until = gpusock::Deadline::after_ms(own.patience_ms);
    own.net.send(block, socket, &word, sizeof word, gpusock::kWaitAll, until);
    own.net.shutdown(block, socket, gpusock::Shutdown::write);
    std::byte* const rest = own.chunks + std::uint64_t{own.plan.slots() + blockIdx.x} * own.plan.chunk_bytes;
    while (own.net.recv(block, socket, rest, own.plan.chunk_bytes, 0, until) > 0) continue;
  } else {
    report.error = error;
    const std::uint32_t bearable = own.plan.is_lt != 0 ? own.plan.paths - 1 : own.plan.spare;
    if (block.thread_rank() == 0 && atomicAdd(&own.counters->lost, 1u) == bearable) {
      End none = End::none;
      Shared<End>(*own.end).compare_exchange_strong(none, End::hopeless, cuda::memory_order_acq_rel);
    }
  }
  own.net.close(block, socket);
  if (block.thread_rank() == 0) own.reports[blockIdx.x] = report;
}

}  // namespace coded
