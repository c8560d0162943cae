#pragma once
/// @file The sender's kernels: each block sends over one path, as fast as its socket takes it, until the receiver says
/// stop. That is all the congestion control there is: a slow path carries fewer symbols.

#include "examples/coded_transfer/plan.hpp"

#include <gpusock/device.cuh>

namespace coded {

constexpr unsigned kThreads = 64;     // of a block
constexpr std::uint64_t kLookMs = 1;  // so often a block looks whether the transfer has ended

struct Sender {
  gpusock::Net net;
  Plan plan;
  const gpusock::Socket* sockets;  ///< of each path
  const std::byte* chunks;         ///< LT: the buffer; else all slots
  std::byte* symbols;              ///< LT: a chunk for each path
  const std::uint32_t* table;      ///< LT: robust_soliton()
  std::uint64_t patience_ms;
  std::uint32_t kill_path;  ///< this one ends after so many bytes: --kill
  std::uint64_t kill_bytes;
  PathReport* reports;
};

/// One thread opens all paths.
__global__ void open_paths(gpusock::Net net, gpusock::Endpoint to, Plan plan, gpusock::Socket* sockets, int* error,
                           std::uint64_t patience_ms) {
  const auto me = gpusock::this_thread();
  const auto until = gpusock::Deadline::after_ms(patience_ms);
  for (std::uint32_t path = 0; path < plan.paths && *error == 0; ++path) {
    const Hello hello{Hello::kMagic, path, plan};
    sockets[path] = net.connect(me, to, until);
    if (sockets[path] < 0) {
      *error = sockets[path];
    } else if (const auto sent = net.send(me, sockets[path], &hello, sizeof hello, gpusock::kWaitAll, until);
               sent < 0) {
      *error = static_cast<int>(sent);
    }
  }
}

/// Computes an LT symbol with all threads of a block.
template <class Block>
__device__ void encode(const Block& block, const Sender& own, std::uint64_t number, std::uint64_t* symbol) {
  const Neighbours drawn(own.table, own.plan.sources(), own.plan.seed, number);
  const auto* const buffer = reinterpret_cast<const std::uint64_t*>(own.chunks);
  const std::uint64_t words = own.plan.chunk_bytes / sizeof(std::uint64_t);
  constexpr std::uint32_t kAtATime = 256;
  __shared__ std::uint32_t which[kAtATime];
  for (std::uint32_t first = 0; first < drawn.degree(); first += kAtATime) {
    const std::uint32_t count = drawn.degree() - first < kAtATime ? drawn.degree() - first : kAtATime;
    block.sync();
    for (auto i = block.thread_rank(); i < count; i += block.size()) which[i] = drawn.neighbour(first + i);
    block.sync();
    for (std::uint64_t word = block.thread_rank(); word < words; word += block.size()) {
      std::uint64_t sum = first == 0 ? 0 : symbol[word];
      for (std::uint32_t i = 0; i < count; ++i) sum ^= buffer[which[i] * words + word];
      symbol[word] = sum;
    }
  }
  block.sync();
}

/// Looks for the receiver's word, until the deadline. Returns true if there is no need to send more.
template <class Block>
__device__ bool has_ended(const Block& block, const Sender& own, gpusock::Socket socket, gpusock::Deadline until,
                          PathReport& report) {
  __shared__ End word;
  const auto got = own.net.recv(block, socket, &word, sizeof word, gpusock::kWaitAll, until);
  if (got == sizeof word) {
    report.end = word;
    return true;
  }
  if (got == -EAGAIN || got == -ETIMEDOUT) return false;
  report.error = got < 0 ? static_cast<std::int32_t>(got) : -EPIPE;
  return true;
}

/// The time at which all threads of a block are here.
template <class Block>
__device__ std::uint64_t now_ns(const Block& block) {
  __shared__ std::uint64_t now;
  block.sync();
  if (block.thread_rank() == 0) now = gpusock::clock_ns();
  block.sync();
  return now;
}

/// How long a path has moved no byte.
struct Idle {
  std::uint64_t patience_ms, since_ns = 0;

  /// `moved`: what the last call returned, and when. Returns true if it is an error, or the patience has ended.
  __device__ bool ends(std::int64_t moved, std::uint64_t now_ns) {
    if (moved >= 0) since_ns = 0;
    if (moved >= 0 || moved != -ETIMEDOUT) return moved < 0;
    if (since_ns == 0) since_ns = now_ns;
    return (now_ns - since_ns) / 1'000'000 >= patience_ms;
  }
};

/// Sends these bytes. Returns false if the path has ended before.
template <class Block>
__device__ bool push(const Block& block, const Sender& own, gpusock::Socket socket, const void* data,
                     std::uint64_t bytes, PathReport& report) {
  const std::uint64_t limit = blockIdx.x == own.kill_path ? own.kill_bytes : ~std::uint64_t{0};
  Idle idle{own.patience_ms};
  for (std::uint64_t sent = 0; sent < bytes;) {
    if (has_ended(block, own, socket, gpusock::Deadline::now(), report)) return false;
    const std::uint64_t most = bytes - sent < limit - report.bytes ? bytes - sent : limit - report.bytes;
    if (most == 0) {
      report.error = -ECONNABORTED;
      return false;
    }
    const auto more = own.net.send(block, socket, static_cast<const std::byte*>(data) + sent, most, 0,
                                   gpusock::Deadline::after_ms(kLookMs));
    if (more > 0) sent += static_cast<std::uint64_t>(more), report.bytes += static_cast<std::uint64_t>(more);
    if (!idle.ends(more, more == -ETIMEDOUT ? now_ns(block) : 0)) continue;
    // The transfer may have ended since: then the word is there.
    if (!has_ended(block, own, socket, gpusock::Deadline::now(), report)) {
      report.error = static_cast<std::int32_t>(more);
    }
    return false;
  }
  return true;
}

/// Block p sends over path p.
__global__ void send_paths(Sender own) {
  const auto block = gpusock::this_block();
  const std::uint32_t path = blockIdx.x;
  const gpusock::Socket socket = own.sockets[path];
  PathReport report{};
  __shared__ Frame frame;
  bool goes_on = true;
  for (std::uint64_t i = 0; goes_on && (own.plan.is_lt != 0 || i < own.plan.groups()); ++i) {
    const std::uint64_t number = i * own.plan.paths + path;
    block.sync();
    if (block.thread_rank() == 0) frame.number = number;
    block.sync();
    const std::byte* chunk = own.chunks + number * own.plan.chunk_bytes;
    if (own.plan.is_lt != 0) {
      std::byte* const symbol = own.symbols + std::uint64_t{path} * own.plan.chunk_bytes;
      encode(block, own, number, reinterpret_cast<std::uint64_t*>(symbol));
      chunk = symbol;
    }
    goes_on = push(block, own, socket, &frame, sizeof frame, report) &&
              push(block, own, socket, chunk, own.plan.chunk_bytes, report);
  }
  if (goes_on && !has_ended(block, own, socket, gpusock::Deadline::after_ms(own.patience_ms), report)) {
    report.error = -ETIMEDOUT;
  }
  own.net.close(block, socket);
  if (block.thread_rank() == 0) own.reports[path] = report;
}

}  // namespace coded
