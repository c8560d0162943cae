#pragma once
/// @file An op while a lane executes it, and what all kinds of ops use. All calls are block-collective, and return
/// false where the run has failed.

#include "param_sync/codec/own_share.cuh"
#include "param_sync/executor/run.cuh"

#include "gpusock/owned_socket.cuh"

namespace param_sync::executor {

/// How much is in one peek, reservation or send at most: the other end begins with it while the rest is made.
inline constexpr std::uint64_t kPieceFloats = 16 << 10;

/// The two sockets that a lane uses now. It is counted into them until it uses others, not in each call. So other lanes
/// use them as well, and fail() and the executor's end end its calls as before. All calls are block-collective.
struct LaneSockets {
  __device__ explicit LaneSockets(const Run& run)
      : in(gpusock::this_block(), run.net, -EBADF), out(gpusock::this_block(), run.net, -EBADF) {}

  /// Before an op. Where a socket is not open, the op's calls say so.
  __device__ void use_for(const LaneOp& op, const gpusock::Socket* sockets) {
    if (op.in != schedule::kNobody) in.change(sockets[op.in]);
    if (op.out != schedule::kNobody) out.change(sockets[op.out]);
  }
  /// When the lane ends, before this object does: a channel is the executor's to close.
  __device__ void release() {
    in.release();
    out.release();
  }

  using Owned = gpusock::OwnedSocket<cooperative_groups::thread_block>;
  Owned in, out;
};

/// An op while it runs.
struct OpAt {
  const Run& run;
  LaneSockets& sockets;
  const LaneOp& op;
  int lane = 0;
  int index = 0;  ///< in the lane
  std::uint64_t pass = 0;
  gpusock::Deadline deadline;
  std::uint64_t& words;  ///< of four bytes, that its message has after the header: known with the header

  __device__ gpusock::Socket in() const { return run.sockets[op.in]; }
  __device__ gpusock::Socket out() const { return run.sockets[op.out]; }
  __device__ const gpusock::Net& in_net() const { return sockets.in.net(); }
  __device__ const gpusock::Net& out_net() const { return sockets.out.net(); }
  /// What it moves is a part of this.
  __device__ float* data() const { return op.of_weights ? run.apply.weights : run.data; }
  __device__ Floats part(int chunk) const { return run.cut.part(static_cast<std::uint32_t>(chunk), pass); }
  __device__ std::uint64_t step() const { return run.number - 1; }

  /// Of the message that the op sends or receives.
  __device__ MessageHeader header() const {
    MessageHeader header;
    header.chunk = static_cast<std::uint32_t>(op.chunk);
    header.count = static_cast<std::uint32_t>(op.count);
    header.pass = static_cast<std::uint32_t>(pass);
    header.run = static_cast<std::uint32_t>(run.number);
    header.operation = run.operation;
    for (int chunk = op.chunk; chunk < op.chunk + op.count; ++chunk) header.floats += part(chunk).count();
    return header;
  }

  __device__ __noinline__ bool lost(ExecutionFailureKind kind, std::int64_t result) const {
    if (threadIdx.x == 0) {
      fail(run, {.kind = kind,
                 .channel = kind == ExecutionFailureKind::send ? op.out : op.in,
                 .error = result < 0 ? static_cast<std::int32_t>(-result) : 0,
                 .lane = lane,
                 .op = index});
    }
    return false;
  }

  /// Another message has come than the schedule says.
  __device__ __noinline__ void unexpected(const MessageHeader& expected, const MessageHeader& got) const {
    if (threadIdx.x != 0) return;
    fail(run, {.kind = ExecutionFailureKind::message,
               .channel = op.in,
               .error = EPROTO,
               .lane = lane,
               .op = index,
               .expected = expected,
               .got = got});
  }
};

/// A header is written into a ring by these. Messages are multiples of 4 bytes long, no more: wherever one begins,
/// words of 4 bytes are aligned, as a GPU requires, and the header's longer fields need not be.
inline constexpr std::uint64_t kHeaderWords = sizeof(MessageHeader) / sizeof(std::uint32_t);
static_assert(sizeof(MessageHeader) % sizeof(std::uint32_t) == 0 && sizeof(std::uint32_t) == sizeof(float));

struct HeaderWords {
  __device__ explicit HeaderWords(const MessageHeader& header) { __builtin_memcpy(word, &header, sizeof word); }
  std::uint32_t word[kHeaderWords];
};

/// Sends the header of the op's message; waits for room.
__device__ inline bool send_header(const OpAt& at, const MessageHeader& header) {
  at.words = header.floats;
  const auto sent = at.out_net().send(gpusock::this_block(), at.out(), &header, sizeof header,
                                      gpusock::kWaitAll | (header.floats != 0 ? gpusock::kMore : 0), at.deadline);
  return sent == static_cast<std::int64_t>(sizeof header) || at.lost(ExecutionFailureKind::send, sent);
}

}  // namespace param_sync::executor
