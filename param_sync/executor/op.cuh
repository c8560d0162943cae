#pragma once
/// @file An op while a lane executes it, and what all kinds of ops use. All calls are block-collective, and return
/// false if the run has failed.

#include "param_sync/codec/own_share.cuh"
#include "param_sync/executor/run.cuh"

#include "gpusock/owned_socket.cuh"

namespace param_sync::executor {

/// The most floats in one peek, reservation or send: the other end begins with them while the rest is made.
inline constexpr std::uint64_t kPieceFloats = 16 << 10;

/// The two sockets that a lane uses now. The lane is counted into them until it uses others, not in each call
/// (OwnedSocket). Other lanes may use them, too, and fail() and ~Executor still end the lane's calls. All calls are
/// block-collective.
struct LaneSockets {
  __device__ explicit LaneSockets(const Run& run)
      : in(gpusock::this_block(), run.net, -EBADF), out(gpusock::this_block(), run.net, -EBADF) {}

  /// Call it before an op. If a socket is not open, the op's calls return an error.
  __device__ void use_for(const LaneOp& op, const gpusock::Socket* sockets) {
    if (op.in != schedule::kNobody) in.change(sockets[op.in]);
    if (op.out != schedule::kNobody) out.change(sockets[op.out]);
  }
  /// Call it when the lane ends. Otherwise the destructor would close the channels, which only the executor closes.
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
  int index = 0;  ///< its index in the lane
  std::uint64_t pass = 0;
  gpusock::Deadline deadline;
  std::uint64_t& words;  ///< 4-byte words of its message after the header; set when the header is known

  __device__ gpusock::Socket in() const { return run.sockets[op.in]; }
  __device__ gpusock::Socket out() const { return run.sockets[op.out]; }
  __device__ const gpusock::Net& in_net() const { return sockets.in.net(); }
  __device__ const gpusock::Net& out_net() const { return sockets.out.net(); }
  /// The op moves a part of this array.
  __device__ float* data() const { return op.of_weights ? run.apply.weights : run.data; }
  __device__ Floats part(int chunk) const { return run.cut.part(static_cast<std::uint32_t>(chunk), pass); }
  __device__ std::uint64_t step() const { return run.number - 1; }

  /// Returns the header of the message that the op sends or receives.
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

  /// Records that a message has come that is not the one in the schedule.
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

/// Headers are written into a ring by words of 4 bytes. A message's length is a multiple of 4, but not always of 8. So
/// its words are always aligned, as a GPU requires, but the header's longer fields may not be.
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
