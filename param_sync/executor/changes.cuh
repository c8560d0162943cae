#pragma once
/// @file How an op of a parameter server keeps to a budget (budget.cuh): what it chooses to send, and messages of
/// changes.

#include "param_sync/executor/largest.cuh"
#include "param_sync/executor/op.cuh"

namespace param_sync::executor {

/// True if the op sends changes, not all floats.
__device__ inline bool sends_changes(const OpAt& at) {
  return at.op.kind == schedule::Kind::send && !at.op.is_signal() && at.run.budget.holds() &&
         !at.run.budget.sends_all(at.step());
}

/// How many changes of a chunk were chosen in this pass.
__device__ inline std::uint32_t& chosen_of(const OpAt& at, int chunk) {
  return at.run.budget.chosen[static_cast<std::uint64_t>(chunk) * at.run.cut.passes() + at.pass];
}

/// Chooses what is sent of a part of a chunk: the largest of value_at(i), i counted from the part's first float.
/// change_at(i) is what is sent for it.
template <class ValueAt, class ChangeAt>
__device__ inline void choose_changes(const OpAt& at, int chunk, ValueAt value_at, ChangeAt change_at) {
  const Budget& budget = at.run.budget;
  const Floats floats = at.part(chunk);
  const auto count = static_cast<std::uint32_t>(floats.count());
  const auto most = static_cast<std::uint32_t>(budget.changes_of(count, at.step()));
  Change* changes = budget.changes + floats.begin;
  const std::uint32_t chosen = take_largest(count, most, value_at, [&](std::uint32_t i, std::uint32_t place) {
    changes[place] = {static_cast<std::uint32_t>(floats.begin + i), change_at(i)};
  });
  if (threadIdx.x == 0) chosen_of(at, chunk) = chosen;
}

/// This rank's gradients of a chunk: what was withheld joins them. Then all of it is to be sent, or the largest.
__device__ inline void choose_gradients(const OpAt& at, int chunk) {
  const Floats floats = at.part(chunk);
  float *gradients = at.run.data + floats.begin, *withheld = at.run.budget.withheld + floats.begin;
  if (!sends_changes(at)) {
    for_own_share(floats.count(), [&](std::uint64_t i) {
      gradients[i] += withheld[i];
      withheld[i] = 0;
    });
  } else {
    for_own_share(floats.count(), [&](std::uint64_t i) { withheld[i] += gradients[i]; });
    __syncthreads();
    choose_changes(
        at, chunk, [&](std::uint32_t i) { return withheld[i]; },
        [&](std::uint32_t i) {
          const float value = withheld[i];
          withheld[i] = 0;
          return value;
        });
  }
  __syncthreads();
}

/// The weights of a chunk that its owner has just made: all of them, or those that differ most from what all ranks
/// have, become what all ranks have. The owner computes with these, too.
__device__ inline void choose_weights(const OpAt& at, int chunk) {
  const Floats floats = at.part(chunk);
  const float* made = at.run.budget.made + floats.begin;
  float* weights = at.run.apply.weights + floats.begin;
  __syncthreads();
  if (at.run.budget.sends_all(at.step())) {
    for_own_share(floats.count(), [&](std::uint64_t i) { weights[i] = made[i]; });
  } else {
    choose_changes(
        at, chunk, [&](std::uint32_t i) { return made[i] - weights[i]; },
        [&](std::uint32_t i) { return weights[i] = made[i]; });
  }
  __syncthreads();
}

/// Sends what was chosen of the op's chunks.
__device__ inline bool send_changes(const OpAt& at) {
  MessageHeader header = at.header();
  header.magic = MessageHeader::kMagicOfChanges;
  header.floats = 0;
  for (int chunk = at.op.chunk; chunk < at.op.chunk + at.op.count; ++chunk) {
    header.floats += std::uint64_t{chosen_of(at, chunk)} * kChangeWords;
  }
  if (!send_header(at, header)) return false;
  for (int chunk = at.op.chunk; chunk < at.op.chunk + at.op.count; ++chunk) {
    const Change* changes = at.run.budget.changes + at.part(chunk).begin;
    for (std::uint64_t left = chosen_of(at, chunk); left != 0;) {
      const std::uint64_t count = min(kPieceFloats / kChangeWords, left);
      const auto sent = at.out_net().send(gpusock::this_block(), at.out(), changes, count * sizeof(Change),
                                          gpusock::kWaitAll, at.deadline);
      if (sent < 0) return at.lost(ExecutionFailureKind::send, sent);
      changes += count;
      left -= count;
    }
  }
  return true;
}

/// True if the other rank may send this instead of the whole message: fewer changes than the op has floats.
__device__ inline bool is_of_changes(const OpAt& at, const MessageHeader& got, MessageHeader expected) {
  if (!at.run.budget.holds() || at.op.is_signal()) return false;
  if (got.floats % kChangeWords != 0 || got.floats > expected.floats + expected.count) return false;
  expected.magic = MessageHeader::kMagicOfChanges;
  expected.floats = got.floats;
  return got == expected;
}

/// Receives a message of changes, whose header has come: gradients are added, weights replaced.
__device__ inline bool receive_changes(const OpAt& at) {
  constexpr std::uint64_t kTogether = 256;
  alignas(16) __shared__ Change got[kTogether];
  const Cut& cut = at.run.cut;
  const std::uint64_t begin = cut.chunk_begin(static_cast<std::uint32_t>(at.op.chunk)),
                      end = cut.chunk_begin(static_cast<std::uint32_t>(at.op.chunk + at.op.count));
  const bool adds = at.op.kind == schedule::Kind::recv_reduce;
  float* data = at.data();
  for (std::uint64_t left = at.words / kChangeWords; left != 0;) {
    const std::uint64_t count = min(kTogether, left);
    const auto bytes = static_cast<std::int64_t>(count * sizeof(Change));
    const auto received = at.in_net().recv(gpusock::this_block(), at.in(), got, static_cast<std::size_t>(bytes),
                                           gpusock::kWaitAll, at.deadline);
    if (received != bytes) return at.lost(ExecutionFailureKind::receive, received);
    bool right = true;
    for (std::uint64_t i = threadIdx.x; i < count; i += blockDim.x) {
      right = right && got[i].index >= begin && got[i].index < end;
    }
    if (__syncthreads_and(right) == 0) return at.lost(ExecutionFailureKind::receive, -EPROTO);
    for (std::uint64_t i = threadIdx.x; i < count; i += blockDim.x) {
      float& value = data[got[i].index];
      value = adds ? got[i].value + value : got[i].value;
    }
    __syncthreads();  // all are read before the next ones are received
    left -= count;
  }
  return true;
}

}  // namespace param_sync::executor
