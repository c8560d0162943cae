#pragma once
// What examples/all_to_all.cu would be without gpusock/exchange.cuh: the same promises, by the calls of Net alone. The
// test of the example compares the lengths of the two, and exchange_test.cu runs this one.

#include "gpusock/device.cuh"

namespace gpusock::conformance::plain {

constexpr std::uint64_t kRecordBytes = 16 << 10;  ///< at most: less than half of the smallest default ring

/// As that of the example.
struct Rank {
  Net net;
  unsigned rank, ranks;
  std::uint64_t words, timeout_ns;
  Endpoint* peers;
  Socket listener;
  Socket* sockets;
  std::uint64_t *out, *in;
  std::int32_t* failed;
};

/// Connects to a rank as soon as it listens, and says who calls.
__device__ inline Socket call(const Rank& own, unsigned peer, Deadline until) {
  const auto me = this_thread();
  Socket socket = -1;
  while ((socket = own.net.connect(me, own.peers[peer], until)) == -ECONNREFUSED && !until.passed())
    __nanosleep(10'000'000);
  if (socket < 0) return socket;
  const std::int64_t sent = own.net.send(me, socket, &own.rank, sizeof own.rank, kWaitAll, until);
  if (sent >= 0) return socket;
  own.net.close(me, socket);
  return static_cast<Socket>(sent);
}

/// Connects to the ranks below this one, and accepts those above; strangers are sent away.
__global__ void meet_all(Rank own) {
  const auto me = this_thread();
  const Deadline until = Deadline::after_ns(own.timeout_ns);
  for (unsigned peer = 0; peer < own.ranks; ++peer) own.sockets[peer] = -ETIMEDOUT;
  for (unsigned peer = 0; peer < own.rank; ++peer) own.sockets[peer] = call(own, peer, until);
  for (unsigned left = own.ranks - 1 - own.rank; left > 0;) {
    const Socket socket = own.net.accept(me, own.listener, until);
    if (socket < 0) break;
    unsigned caller = 0;
    const auto got = own.net.recv(me, socket, &caller, sizeof caller, kWaitAll, Deadline::after_ms(2000));
    if (got == sizeof caller && caller > own.rank && caller < own.ranks && own.sockets[caller] < 0) {
      own.sockets[caller] = socket;
      --left;
    } else {
      own.net.close(me, socket);
    }
  }
  own.net.close(me, own.listener);
}

/// Sends one peer its part and receives this rank's part from it, a record of each in turn: each ring has room for a
/// record, so no side waits for the other to receive first. 0, or why not.
template <class Block>
__device__ int exchange_with(const Block& block, const Rank& own, unsigned peer, Deadline until) {
  const std::uint64_t all = own.words * sizeof *own.out;
  const auto* out = reinterpret_cast<const char*>(own.out + peer * own.words);
  auto* in = reinterpret_cast<char*>(own.in + peer * own.words);
  for (std::uint64_t at = 0; at < all; at += kRecordBytes) {
    const std::uint64_t bytes = all - at < kRecordBytes ? all - at : kRecordBytes;
    const auto sent = own.net.send(block, own.sockets[peer], out + at, bytes, 0, until);
    if (sent < 0) return static_cast<int>(sent);
    const auto got = own.net.recv(block, own.sockets[peer], in + at, bytes, 0, until);
    if (got < 0) return static_cast<int>(got);
    if (static_cast<std::uint64_t>(got) != bytes) return got == 0 ? -EPIPE : -EPROTO;
  }
  return 0;
}

/// Block i sends rank i its part, and receives this rank's part from it.
__global__ void exchange_all(Rank own) {
  const auto block = this_block();
  const unsigned peer = blockIdx.x;
  if (peer == own.rank) return;
  int error = own.sockets[peer] < 0 ? own.sockets[peer] : 0;
  if (error == 0) error = exchange_with(block, own, peer, Deadline::after_ns(own.timeout_ns));
  if (block.thread_rank() == 0) own.failed[peer] = error;
}

}  // namespace gpusock::conformance::plain
