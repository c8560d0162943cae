#pragma once
/// @file Messages whose floats a codec has encoded (param_sync/codec). All calls are block-collective, and return false
/// if the run has failed.

#include "param_sync/codec/part.hpp"
#include "param_sync/executor/op.cuh"

namespace param_sync::executor {

/// The part of a chunk that an op moves in this pass.
__device__ inline codec::Part coded_part(const OpAt& at, int chunk) {
  const Floats floats = at.part(chunk);
  return {floats.begin, floats.end, static_cast<std::uint64_t>(chunk) * at.run.cut.passes() + at.pass, at.step()};
}

template <class Codec>
inline constexpr std::uint64_t kElementWords = sizeof(typename Codec::Element) / sizeof(float);

/// Sends the encoded elements of the op's chunks.
template <class Codec>
__device__ inline bool send_encoded(const OpAt& at, const Codec& codec) {
  MessageHeader header = at.header();
  header.magic = MessageHeader::kMagicOfChanges;
  header.floats = 0;
  for (int chunk = at.op.chunk; chunk < at.op.chunk + at.op.count; ++chunk) {
    header.floats += codec.encoded(coded_part(at, chunk)).count * kElementWords<Codec>;
  }
  if (!send_header(at, header)) return false;
  for (int chunk = at.op.chunk; chunk < at.op.chunk + at.op.count; ++chunk) {
    auto left = codec.encoded(coded_part(at, chunk));
    while (left.count != 0) {
      const std::uint64_t count = min(kPieceFloats / kElementWords<Codec>, left.count);
      const auto sent = at.out_net().send(gpusock::this_block(), at.out(), left.elements,
                                          count * sizeof(typename Codec::Element), gpusock::kWaitAll, at.deadline);
      if (sent < 0) return at.lost(ExecutionFailureKind::send, sent);
      left.elements += count;
      left.count -= count;
    }
  }
  return true;
}

/// True if the other rank may send this encoded message instead of the expected one.
template <class Codec>
__device__ inline bool may_be_encoded(const OpAt& at, const MessageHeader& got, MessageHeader expected) {
  if (at.op.is_signal() || got.floats % kElementWords<Codec> != 0) return false;
  if (got.floats / kElementWords < Codec >> Codec::elements_max(expected.floats, expected.count)) return false;
  expected.magic = MessageHeader::kMagicOfChanges;
  expected.floats = got.floats;
  return got == expected;
}

/// A message that is being received, in the form that codecs use.
struct EncodedMessage {
  const OpAt& at;
  float* tensor;
  bool adds;            ///< true: what arrives is added; false: it replaces the tensor's floats
  std::uint64_t begin;  ///< floats [begin, end) are all chunks of the op, in all passes
  std::uint64_t end;

  /// Returns the floats of an element, for a codec whose elements have `Each` floats, and in which each part begins
  /// with a new element. Returns no floats after the last element.
  template <std::uint64_t Each>
  __device__ Floats floats_of(std::uint64_t number) const {
    for (int chunk = at.op.chunk; chunk < at.op.chunk + at.op.count; ++chunk) {
      const Floats floats = at.part(chunk);
      const std::uint64_t elements = (floats.count() + Each - 1) / Each, first = floats.begin + number * Each;
      if (number < elements) return {first, min(first + Each, floats.end)};
      number -= elements;
    }
    return {};
  }
};

/// Receives an encoded message whose header has come.
template <class Codec>
__device__ inline bool receive_encoded(const OpAt& at) {
  using Element = typename Codec::Element;
  constexpr std::uint64_t kTogether = 2048 / sizeof(Element);
  GPUSOCK_SHARED(got, Element[kTogether]);
  const Cut& cut = at.run.cut;
  const EncodedMessage message{at, at.data(), at.op.kind == schedule::Kind::recv_reduce,
                               cut.chunk_begin(static_cast<std::uint32_t>(at.op.chunk)),
                               cut.chunk_begin(static_cast<std::uint32_t>(at.op.chunk + at.op.count))};
  const std::uint64_t all = at.words / kElementWords<Codec>;
  for (std::uint64_t before = 0; before < all;) {
    const std::uint64_t count = min(kTogether, all - before);
    const auto bytes = static_cast<std::int64_t>(count * sizeof(Element));
    const auto received = at.in_net().recv(gpusock::this_block(), at.in(), got, static_cast<std::size_t>(bytes),
                                           gpusock::kWaitAll, at.deadline);
    if (received != bytes) return at.lost(ExecutionFailureKind::receive, received);
    bool right = true;
    for (std::uint64_t i = threadIdx.x; i < count; i += blockDim.x) {
      right = right && Codec::is_right(got[i], before + i, message);
    }
    if (__syncthreads_and(right) == 0) return at.lost(ExecutionFailureKind::receive, -EPROTO);
    for (std::uint64_t i = threadIdx.x; i < count; i += blockDim.x) Codec::decode(got[i], before + i, message);
    __syncthreads();  // all elements are read before the next ones are received
    before += count;
  }
  return true;
}

}  // namespace param_sync::executor
