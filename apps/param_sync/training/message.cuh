#pragma once
/// @file A message between nodes: a header, then as many floats as it says. All calls are block-collective.

#include "training/state.cuh"

namespace param_sync {

enum class MessageKind : std::uint32_t { gradients = 1, weights = 2 };

struct MessageHeader {
  static constexpr std::uint32_t kMagic = 0x31537350;  // "PsS1"
  std::uint32_t magic = kMagic;
  MessageKind kind{};
  std::uint32_t layer = 0;
  std::uint32_t floats = 0;
  std::uint64_t clock = 0;
  std::uint64_t reserved = 0;
};

/// Sends header and floats. False, with the failure recorded as `failure` of `peer`, where it cannot.
__device__ inline bool send_message(const NodeState& node, gpusock::Socket socket, const MessageHeader& header,
                                    const float* floats, FailureKind failure, int peer) {
  const auto block = gpusock::this_block();
  const auto deadline = gpusock::Deadline::after_ns(node.timeout_ns);
  std::int64_t sent = node.net.send(block, socket, &header, sizeof header, gpusock::kWaitAll | gpusock::kMore,
                                    deadline);
  if (sent > 0) sent = node.net.send(block, socket, floats, header.floats * sizeof(float), gpusock::kWaitAll, deadline);
  if (sent < 0 && threadIdx.x == 0) fail(node, failure, peer, -sent);
  return sent >= 0;
}

/// Receives the header of the message that `expected` describes. False, with the failure recorded, where something else
/// comes or nothing more does.
__device__ inline bool receive_header(const NodeState& node, gpusock::Socket socket, const MessageHeader& expected,
                                      FailureKind failure, int peer) {
  __shared__ MessageHeader header;
  const auto block = gpusock::this_block();
  const auto deadline = gpusock::Deadline::after_ns(node.timeout_ns);
  const std::int64_t got = node.net.recv(block, socket, &header, sizeof header, gpusock::kWaitAll, deadline);
  const bool whole = got == static_cast<std::int64_t>(sizeof header);
  if (whole && header.magic == expected.magic && header.kind == expected.kind && header.layer == expected.layer &&
      header.floats == expected.floats && header.clock == expected.clock) {
    return true;
  }
  if (threadIdx.x == 0) fail(node, whole ? FailureKind::protocol : failure, peer, got < 0 ? -got : 0);
  return false;
}

/// Receives the floats that follow a header. False, with the failure recorded, where they do not all come.
__device__ inline bool receive_floats(const NodeState& node, gpusock::Socket socket, float* to, std::uint32_t floats,
                                      FailureKind failure, int peer) {
  const auto deadline = gpusock::Deadline::after_ns(node.timeout_ns);
  const auto wanted = static_cast<std::int64_t>(floats * sizeof(float));
  const std::int64_t got = node.net.recv(gpusock::this_block(), socket, to, wanted, gpusock::kWaitAll, deadline);
  if (got == wanted) return true;
  if (threadIdx.x == 0) fail(node, failure, peer, got < 0 ? -got : 0);
  return false;
}

/// Adds to a counter that no thread waits for. One thread.
__device__ inline void count(std::uint64_t& word, std::uint64_t amount) {
  DeviceWord(word).fetch_add(amount, cuda::memory_order_relaxed);  // relaxed: read after the kernels have ended
}

}  // namespace param_sync
