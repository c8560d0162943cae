#pragma once
/// @file How a lane executes its ops: one after the other, directly from and into the rings. All calls are
/// block-collective, and return false if the run has failed.

#include "param_sync/codec/dense.hpp"
#include "param_sync/executor/encoded.cuh"
#include "param_sync/executor/reserve_in_place.cuh"
#include "param_sync/executor/policies.cuh"

namespace param_sync::executor {

/// Reduces what has arrived into the data. (`arrived` is never `const … __restrict`: a GPU might then use a ring's
/// bytes when they are outdated, see tests/codegen/check_ring_reads.py.)
template <class Reduction>
__device__ inline void reduce(const Reduction& reduction, float* __restrict data, const float* arrived,
                              std::uint64_t count) {
  reduction.with(
      [&](auto one_of) { for_own_share(count, [&](std::uint64_t i) { data[i] = one_of(arrived[i], data[i]); }); });
}

/// As reduce(), and also writes the result to `onward`.
template <class Reduction>
__device__ inline void reduce_and_forward(const Reduction& reduction, float* __restrict data, const float* arrived,
                                          float* __restrict onward, std::uint64_t count) {
  reduction.with([&](auto one_of) {
    for_own_share(count, [&](std::uint64_t i) { onward[i] = data[i] = one_of(arrived[i], data[i]); });
  });
}

/// Replaces the data by what has arrived.
__device__ inline void replace(float* __restrict data, const float* arrived, std::uint64_t count) {
  for_own_share(count, [&](std::uint64_t i) { data[i] = arrived[i]; });
}

/// As replace(), and also writes it to `onward`.
__device__ inline void replace_and_forward(float* __restrict data, const float* arrived, float* __restrict onward,
                                           std::uint64_t count) {
  for_own_share(count, [&](std::uint64_t i) { onward[i] = data[i] = arrived[i]; });
}

/// Sends the op's header if there is room at once; then `sent` is true. Does not wait.
__device__ inline bool try_send_header(const OpAt& at, bool& sent) {
  const auto block = gpusock::this_block();
  const gpusock::Span span = at.out_net().reserve(block, at.out(), sizeof(MessageHeader), gpusock::Deadline::now());
  if (span.size == -EAGAIN) return true;
  if (span.size < 0) return at.lost(ExecutionFailureKind::send, span.size);
  sent = span.size == static_cast<std::int64_t>(sizeof(MessageHeader));  // less at the ring's end
  if (sent) {
    const HeaderWords header(at.header());
    auto* const to = static_cast<std::uint32_t*>(span.data);
    for_own_share(kHeaderWords, [&](std::uint64_t i) { to[i] = header.word[i]; });
  }
  const int error = sent ? at.out_net().commit(block, at.out(), sizeof(MessageHeader))
                         : at.out_net().abort(block, at.out());
  return error == 0 || at.lost(ExecutionFailureKind::send, error);
}

/// Sends floats of the tensor; waits for room.
__device__ inline bool send_floats(const OpAt& at, Floats floats) {
  const auto block = gpusock::this_block();
  while (floats.begin < floats.end) {
    const std::uint64_t count = min(kPieceFloats, floats.count());
    const auto sent = at.out_net().send(block, at.out(), at.data() + floats.begin, count * sizeof(float),
                                        gpusock::kWaitAll, at.deadline);
    if (sent < 0) return at.lost(ExecutionFailureKind::send, sent);
    floats.begin += count;
  }
  return true;
}

/// Receives the header of the op's message. `encoded`: true if elements of the codec follow.
template <class Codec>
__device__ inline bool receive_header(const OpAt& at, [[maybe_unused]] bool& encoded) {
  GPUSOCK_SHARED(got, MessageHeader);
  const auto result = at.in_net().recv(gpusock::this_block(), at.in(), &got, sizeof got, gpusock::kWaitAll,
                                       at.deadline);
  if (result != static_cast<std::int64_t>(sizeof got)) return at.lost(ExecutionFailureKind::receive, result);
  const MessageHeader expected = at.header();
  bool right = got == expected;
  if constexpr (!Codec::kDense) {
    encoded = may_be_encoded<Codec>(at, got, expected);
    right = right || encoded;
  }
  if (!right) at.unexpected(expected, got);
  at.words = got.floats;
  __syncthreads();  // all have read it before the next one is received
  return right;
}

/// Receives `count` floats.
__device__ inline bool receive_floats(const OpAt& at, float* to, std::uint64_t count) {
  const auto bytes = static_cast<std::int64_t>(count * sizeof(float));
  if (bytes == 0) return true;
  const auto got = at.in_net().recv(gpusock::this_block(), at.in(), to, static_cast<std::size_t>(bytes),
                                    gpusock::kWaitAll, at.deadline);
  return got == bytes || at.lost(ExecutionFailureKind::receive, got);
}

/// The operands of a sum that an op completes.
class Operands {
 public:
  /// `buffer`: the lane's reorder buffer; `own`: this rank's operand.
  __device__ Operands(const OpAt& at, const float* buffer, const float* own)
      : operands_(at.run.operands + at.op.operands_begin),
        count_(at.op.operands_end - at.op.operands_begin),
        buffer_(buffer),
        entry_floats_(at.run.reorder_floats),
        own_(own) {}

  /// Computes floats [from, from + count) of the sums in the operands' order. `arrived` begins with float `from`.
  template <class Reduction>
  __device__ void sum(const Reduction& reduction, float* data, const float* arrived, std::uint64_t from,
                      std::uint64_t count) const {
    reduction.with([&](auto one_of) {
      for_own_share((count + kTogether - 1) / kTogether, [&](std::uint64_t i) {
        const std::uint64_t begin = i * kTogether, end = min(begin + kTogether, count);
        float sums[kTogether];
        for (int operand = 0; operand < count_; ++operand) {
          const float* values = values_of(operands_[operand], arrived, from);
          for (std::uint64_t k = begin; k < end; ++k) {
            sums[k - begin] = operand == 0 ? values[k] : one_of(sums[k - begin], values[k]);
          }
        }
        for (std::uint64_t k = begin; k < end; ++k) data[from + k] = sums[k - begin];
      });
    });
  }

 private:
#if GPUSOCK_ON_GPU
  static constexpr std::uint64_t kTogether = 1;
#else
  static constexpr std::uint64_t kTogether = 64;  // the compiler adds several at a time
#endif

  __device__ const float* values_of(int operand, const float* arrived, std::uint64_t from) const {
    if (operand == kOperandArriving) return arrived;
    return (operand == kOperandOwn ? own_ : buffer_ + entry_floats_ * static_cast<std::uint64_t>(operand)) + from;
  }

  const int* operands_;
  int count_;
  const float* buffer_;
  std::uint64_t entry_floats_;
  const float* own_;
};

/// Receives one float, and reduces it into the data or replaces the data by it. It is for a float that has arrived only
/// in part: it waits for the rest.
template <class Reduction>
__device__ inline bool take_one(const OpAt& at, const Reduction& reduction, float* data) {
  GPUSOCK_SHARED(one, float);
  const auto got = at.in_net().recv(gpusock::this_block(), at.in(), &one, sizeof one, gpusock::kWaitAll, at.deadline);
  if (got != static_cast<std::int64_t>(sizeof one)) return at.lost(ExecutionFailureKind::receive, got);
  if (threadIdx.x == 0) {
    if (at.op.kind == schedule::Kind::recv_send) {
      *data = one;
    } else {
      reduction.with([&](auto one_of) { *data = one_of(one, *data); });
    }
  }
  __syncthreads();
  return true;
}

/// Reduces floats that arrive into the tensor, directly from the ring.
template <class Reduction>
__device__ inline bool reduce_floats(const OpAt& at, const Reduction& reduction, Floats floats) {
  const auto block = gpusock::this_block();
  while (floats.begin < floats.end) {
    const std::uint64_t most = min(kPieceFloats, floats.count());
    float* data = at.run.data + floats.begin;
    const gpusock::Span arrived = at.in_net().peek(block, at.in(), most * sizeof(float), at.deadline);
    if (arrived.size <= 0) return at.lost(ExecutionFailureKind::receive, arrived.size);
    const std::uint64_t count = static_cast<std::uint64_t>(arrived.size) / sizeof(float);
    reduce(reduction, data, static_cast<const float*>(arrived.data), count);
    const int error = at.in_net().release(block, at.in(), count * sizeof(float));
    if (error != 0) return at.lost(ExecutionFailureKind::receive, error);
    if (count == 0 && !take_one(at, reduction, data)) return false;
    floats.begin += count == 0 ? 1 : count;
  }
  return true;
}

/// Returns the buffer in which a lane keeps data that comes before its turn in the order of ranks.
__device__ inline float* reorder_buffer_of(const Run& run, int lane) {
  return run.reorder_buffers +
         run.reorder_floats * static_cast<std::uint64_t>(run.reorder_entries) * static_cast<std::uint64_t>(lane);
}

/// Receives the last operands of sums, and adds all operands in the order of ranks. `before`: how many floats of the
/// same message came before these.
template <class Reduction>
__device__ inline bool sum_floats(const OpAt& at, const Reduction& reduction, Floats floats, std::uint64_t before) {
  const auto block = gpusock::this_block();
  float* data = at.run.data + floats.begin;
  const Operands operands(at, reorder_buffer_of(at.run, at.lane) + before, data);
  for (std::uint64_t done = 0; done < floats.count();) {
    const std::uint64_t most = min(kPieceFloats, floats.count() - done);
    const gpusock::Span arrived = at.in_net().peek(block, at.in(), most * sizeof(float), at.deadline);
    if (arrived.size <= 0) return at.lost(ExecutionFailureKind::receive, arrived.size);
    std::uint64_t count = static_cast<std::uint64_t>(arrived.size) / sizeof(float);
    operands.sum(reduction, data, static_cast<const float*>(arrived.data), done, count);
    const int error = at.in_net().release(block, at.in(), count * sizeof(float));
    if (error != 0) return at.lost(ExecutionFailureKind::receive, error);
    if (count == 0) {  // only a part of a float has come
      GPUSOCK_SHARED(one, float);
      if (!receive_floats(at, &one, 1)) return false;
      operands.sum(reduction, data, &one, done, 1);
      __syncthreads();  // all have read it before the next one is received
      count = 1;
    }
    done += count;
  }
  return true;
}

/// How far a chunk has gone through a lane that forwards it.
struct Forwarding {
  Floats floats;               ///< floats of the chunk
  std::uint64_t received = 0;  ///< floats before this one were received
  std::uint64_t sent = 0;      ///< floats before this one were sent; the rest waits in the tensor
};

/// Reserves room in the outgoing ring for at most `count` floats if there is enough to be worth it. Does not wait.
__device__ inline bool try_reserve(const OpAt& at, std::uint64_t count, gpusock::Span& room) {
  constexpr std::uint64_t kWorthItFloats = 256;
  const auto block = gpusock::this_block();
  room = at.out_net().reserve(block, at.out(), count * sizeof(float), gpusock::Deadline::now());
  if (room.size >= static_cast<std::int64_t>(min(count, kWorthItFloats) * sizeof(float))) return true;
  const int error = room.size > 0 ? at.out_net().abort(block, at.out()) : static_cast<int>(room.size);
  room = {};
  return error == 0 || error == -EAGAIN || at.lost(ExecutionFailureKind::send, error);
}

/// Takes what has arrived, at most one piece. Also writes it into the outgoing ring if that has room and all floats
/// before it are sent; else it stays in the tensor for now.
template <class Reduction>
__device__ inline bool forward_piece(const OpAt& at, const Reduction& reduction, bool header_sent, Forwarding& chunk) {
  const auto block = gpusock::this_block();
  const bool adds = at.op.kind == schedule::Kind::recv_reduce_send;
  const std::uint64_t most = min(kPieceFloats, chunk.floats.end - chunk.received);
  float* data = at.data() + chunk.received;
  const gpusock::Span arrived = at.in_net().peek(block, at.in(), most * sizeof(float), at.deadline);
  if (arrived.size <= 0) return at.lost(ExecutionFailureKind::receive, arrived.size);
  const auto* const from = static_cast<const float*>(arrived.data);
  std::uint64_t count = static_cast<std::uint64_t>(arrived.size) / sizeof(float);
  gpusock::Span room;
  const bool direct = header_sent && chunk.sent == chunk.received && count != 0;
  if (direct && !try_reserve(at, count, room)) return false;
  if (room.size > 0) {
    count = min(count, static_cast<std::uint64_t>(room.size) / sizeof(float));
    auto* const onward = static_cast<float*>(room.data);
    if (adds) {
      reduce_and_forward(reduction, data, from, onward, count);
    } else {
      replace_and_forward(data, from, onward, count);
    }
    const int error = at.out_net().commit(block, at.out(), count * sizeof(float));
    if (error != 0) return at.lost(ExecutionFailureKind::send, error);
    chunk.sent += count;
  } else if (adds) {
    reduce(reduction, data, from, count);
  } else {
    replace(data, from, count);
  }
  const int error = at.in_net().release(block, at.in(), count * sizeof(float));
  if (error != 0) return at.lost(ExecutionFailureKind::receive, error);
  if (count == 0 && !take_one(at, reduction, data)) return false;
  chunk.received += count == 0 ? 1 : count;
  return true;
}

/// Receives and forwards chunk by chunk. As the checker assumes, a lane holds at most one chunk that it has taken from
/// one ring and not yet put into the other: it takes a whole chunk even if there is no room for it, and then waits for
/// room.
template <class Reduction>
__device__ inline bool forward(const OpAt& at, const Reduction& reduction) {
  bool encoded = false, header_sent = false;
  if (!receive_header<codec::Dense>(at, encoded)) return false;
  if (!try_send_header(at, header_sent)) return false;
  for (int index = at.op.chunk; index < at.op.chunk + at.op.count; ++index) {
    const Floats floats = at.part(index);
    Forwarding chunk{floats, floats.begin, floats.begin};
    while (chunk.received < floats.end) {
      if (!forward_piece(at, reduction, header_sent, chunk)) return false;
    }
    if (!header_sent && !send_header(at, at.header())) return false;
    header_sent = true;
    if (!send_floats(at, {chunk.sent, floats.end})) return false;
  }
  return true;
}

/// Makes new weights of the sums by the update. Uses no socket.
template <class P>
__device__ inline void apply_floats(const Run& run, const P& policies, Floats floats) {
  if (run.apply.weights == nullptr) return;
  float* weights = run.apply.weights;
  if constexpr (!P::Codec::kDense) weights = policies.codec.made_in(weights);
  for_own_share(floats.count(), [&](std::uint64_t i) {
    const std::uint64_t at = floats.begin + i, in_memory = at - run.apply.owned.begin;
    policies.update.apply(run.data[at], run.apply.states.of(in_memory), weights[in_memory]);
    if (!run.apply.weights_apart) run.data[at] = weights[in_memory];
  });
}

/// Receives floats, and reduces them or keeps them in the reorder buffer for later. `before`: how many floats of the
/// same message came before these.
template <class Reduction>
__device__ inline bool add_floats(const OpAt& at, const Reduction& reduction, Floats floats, std::uint64_t before) {
  if (at.op.reorder == LaneOp::kDirect) return reduce_floats(at, reduction, floats);
  if (at.op.reorder == LaneOp::kSums) return sum_floats(at, reduction, floats, before);
  float* entry = reorder_buffer_of(at.run, at.lane) + at.run.reorder_floats * static_cast<std::uint64_t>(at.op.reorder);
  return receive_floats(at, entry + before, floats.count());
}

/// Sends a message: what a kernel has written into the ring, or what the codec makes of the op's chunks.
template <class Codec>
__device__ inline bool send(const OpAt& at, [[maybe_unused]] const Codec& codec) {
  const LaneOp& op = at.op;
  if (is_written(at.run, at.lane, at.index, at.pass)) return send_written(at);
  if constexpr (!Codec::kDense) {
    for (int chunk = op.chunk; chunk < op.chunk + op.count && !op.of_weights; ++chunk) {
      codec.encode_gradients(coded_part(at, chunk), at.run.data);
    }
    if (!op.is_signal() && codec.encodes(at.step())) return send_encoded(at, codec);
  }
  if (!send_header(at, at.header())) return false;
  for (int chunk = op.chunk; chunk < op.chunk + op.count; ++chunk) {
    if (!send_floats(at, at.part(chunk))) return false;
  }
  return true;
}

/// Receives a message, which replaces the op's chunks or is added to them.
template <class Codec, class Reduction>
__device__ inline bool receive(const OpAt& at, const Reduction& reduction) {
  bool encoded = false;
  if (!receive_header<Codec>(at, encoded)) return false;
  if constexpr (!Codec::kDense) {
    if (encoded) return receive_encoded<Codec>(at);
  }
  std::uint64_t before = 0;
  for (int chunk = at.op.chunk; chunk < at.op.chunk + at.op.count; ++chunk) {
    const Floats floats = at.part(chunk);
    const bool there = at.op.kind == schedule::Kind::recv ? receive_floats(at, at.data() + floats.begin, floats.count())
                                                          : add_floats(at, reduction, floats, before);
    if (!there) return false;
    before += floats.count();
  }
  return true;
}

/// Makes weights from the sums that this rank owns.
template <class P>
__device__ inline bool apply(const OpAt& at, const P& policies) {
  for (int chunk = at.op.chunk; chunk < at.op.chunk + at.op.count; ++chunk) {
    apply_floats(at.run, policies, at.part(chunk));
    if constexpr (!P::Codec::kDense) policies.codec.encode_weights(coded_part(at, chunk), at.run.apply.weights);
  }
  return true;
}

template <class P>
__device__ inline bool execute(const OpAt& at, const P& policies) {
  using schedule::Kind;
  switch (at.op.kind) {
    case Kind::send:
      return send(at, policies.codec);
    case Kind::recv:
    case Kind::recv_reduce:
      return receive<typename P::Codec>(at, policies.reduction);
    case Kind::recv_send:
    case Kind::recv_reduce_send:
      return forward(at, policies.reduction);
    case Kind::apply:
      return apply(at, policies);
  }
  return false;
}

/// Waits for the ops that must be complete before `op` in this pass.
__device__ inline bool await_others(const Run& run, const LaneOp& op, std::uint64_t pass, gpusock::Deadline deadline) {
  for (int i = op.after_begin; i < op.after_end; ++i) {
    const Reached before = run.after[i];
    const std::uint64_t ops = static_cast<std::uint64_t>(run.lanes[before.lane].end - run.lanes[before.lane].begin);
    if (!await_lane(run, before.lane, pass * ops + static_cast<std::uint64_t>(before.ops), deadline)) return false;
  }
  return true;
}

/// Waits until all lanes have ended a pass.
__device__ inline bool await_pass(const Run& run, std::uint64_t pass, gpusock::Deadline deadline) {
  for (int lane = 0; lane < run.lane_count; ++lane) {
    const std::uint64_t ops = static_cast<std::uint64_t>(run.lanes[lane].end - run.lanes[lane].begin);
    if (ops != 0 && !await_lane(run, lane, (pass + 1) * ops, deadline)) return false;
  }
  return true;
}

/// Returns a lane's share of these floats.
__device__ inline Floats share_of(Floats floats, const Run& run, int lane) {
  const auto lanes = static_cast<std::uint64_t>(run.lane_count), index = static_cast<std::uint64_t>(lane);
  return {floats.begin + floats.count() * index / lanes, floats.begin + floats.count() * (index + 1) / lanes};
}

/// Makes weights of the sums that this rank owns, when all lanes have ended. Block-collective.
template <class P>
__device__ inline bool apply_owned(const Run& run, const P& policies, int lane, gpusock::Deadline deadline) {
  if (run.apply.owned.count() == 0) return true;
  if (!await_pass(run, run.cut.passes() - 1, deadline)) return false;
  apply_floats(run, policies, share_of(run.apply.owned, run, lane));
  return true;
}

/// Calls that wait for a peer end at the deadline, and calls that wait for another lane end a little later: the errors
/// of the former say more.
struct Deadlines {
  static constexpr std::uint64_t kGraceNs = 2'000'000'000;
  gpusock::Deadline peers;
  gpusock::Deadline lanes;
  __device__ static Deadlines after_ns(std::uint64_t timeout_ns) {
    const std::uint64_t longer_ns = timeout_ns + kGraceNs < timeout_ns ? ~std::uint64_t{0} : timeout_ns + kGraceNs;
    return {gpusock::Deadline::after_ns(timeout_ns), gpusock::Deadline::after_ns(longer_ns)};
  }
};

/// A listener of run_lane() that does nothing.
struct Unheard {
  __device__ bool before_op(const LaneOp&) { return true; }
  __device__ void after_op(const LaneOp&, int, std::uint64_t, std::uint64_t) {}
};

/// Executes one lane's part of a run. `deadlines()` returns the deadlines of the next op. listener.before_op() may
/// wait, and ends the run by returning false. listener.after_op() is called when an op is complete, with the op's index
/// in the lane, its pass, and how many words of four bytes its message had.
template <class P, class DeadlinesOf, class Listener>
__device__ inline bool run_lane(const Run& run, const P& policies, int lane, LaneSockets& sockets,
                                DeadlinesOf deadlines, Listener& listener) {
  const LaneOps own = run.lanes[lane];
  const std::uint64_t passes = own.begin == own.end ? 0 : run.cut.passes();
  std::uint64_t done = 0;
  for (std::uint64_t pass = 0; pass < passes; ++pass) {
    for (int i = own.begin; i < own.end; ++i) {
      const LaneOp op = run.ops[i];
      const Deadlines until = deadlines();
      if (!await_others(run, op, pass, until.lanes)) return false;
      if (!listener.before_op(op)) return false;
      std::uint64_t words = 0;
      sockets.use_for(op, run.sockets);
      if (!execute({run, sockets, op, lane, i - own.begin, pass, until.peers, words}, policies)) return false;
      __syncthreads();  // the whole block's writes come before its first thread's L1
      ++done;
      if (threadIdx.x == 0) {
        DeviceWord(run.progress[lane]).store(progress_word(run.number, done), cuda::memory_order_release);  // L1
      }
      listener.after_op(op, i - own.begin, pass, words);
    }
    if (run.lanes_meet && pass + 1 < passes && !await_pass(run, pass, deadlines().lanes)) return false;
  }
  return true;
}

/// Each block is one lane. The whole grid is resident, since lanes wait for each other.
template <class P>
static __global__ void run_lanes(Run run, P policies) {
  const Deadlines until = Deadlines::after_ns(run.timeout_ns);
  const auto deadlines = [&] { return until; };
  Unheard unheard;
  const int lane = static_cast<int>(blockIdx.x);
  LaneSockets sockets(run);
  const bool done = run_lane(run, policies, lane, sockets, deadlines, unheard) &&
                    apply_owned(run, policies, lane, until.lanes);
  sockets.release();
  __syncthreads();
  if (!done || threadIdx.x != 0) return;
  const DeviceWord ended(*run.lanes_ended);
  if (ended.fetch_add(1, cuda::memory_order_acq_rel) + 1 != static_cast<std::uint64_t>(run.lane_count)) return;  // L6
  ended.store(0, cuda::memory_order_relaxed);  // relaxed: the next run's kernel comes after this one
  SystemWord(*run.completed).store(run.number, cuda::memory_order_release);  // L7, pairs with L8
}

}  // namespace param_sync::executor
