#pragma once
/// @file The largest changes, with error feedback: a rank sends so many bytes in a step, and adds what it withholds to
/// what it has in later steps. (Managed communication by magnitude: Wei et al., "Managed Communication and Consistency
/// for Fast Data-Parallel Iterative Analytics", SoCC 2015; top-k with error feedback: Lin et al., "Deep Gradient
/// Compression", ICLR 2018.)
///
/// Nothing is lost. A gradient is sent, or it is in `withheld`. A weight that its owner has made is what all ranks
/// have, or the owner still has the difference: made - weights. The last step sends all of both.

#include "param_sync/codec/largest.cuh"
#include "param_sync/codec/own_share.cuh"
#include "param_sync/codec/top_k.hpp"

#include <cstdint>

namespace param_sync::codec {

/// By value; pointers are to device memory.
class TopK {
 public:
  static constexpr bool kDense = false;
  using Element = Change;

  struct Memory {
    Memory(gpusock::Context& context, const Tensor& tensor)
        : withheld(context, tensor.floats),
          made(context, tensor.floats),
          changes(context, tensor.floats),
          chosen(context, tensor.parts) {}
    gpusock::DeviceBuffer<float> withheld, made;
    gpusock::DeviceBuffer<Change> changes;
    gpusock::DeviceBuffer<std::uint32_t> chosen;
  };

  /// Throws gpusock::Error (EINVAL) where the budget has no room for messages' headers.
  TopK(const TopKSettings& settings, const StepTraffic& sent, const Memory& memory)
      : TopK(memory.withheld.data(), memory.made.data(), memory.changes.data(), memory.chosen.data(),
             changes_per_float(sent, settings.budget_bytes), sent.steps - 1) {}
  TopK(float* withheld, float* made, Change* changes, std::uint32_t* chosen, double changes_per_float,
       std::uint64_t last_step)
      : withheld_(withheld),
        made_(made),
        changes_(changes),
        chosen_(chosen),
        changes_per_float_(changes_per_float),
        last_step_(last_step) {}

  /// Before the first step: the update goes on from these weights, which all ranks have. One block.
  __device__ void begin(const float* weights, std::uint64_t count) const {
    for_own_share(count, [&](std::uint64_t i) { made_[i] = weights[i]; });
  }

  /// True if the messages of a step are encoded. Else they are floats: the budget has room for them, or nothing comes
  /// afterwards. A change takes twice the bytes of a float.
  GPUSOCK_FN bool encodes(std::uint64_t step) const { return changes_per_float_ < 0.5 && step != last_step_; }

  /// This rank's gradients of a part, before they are sent: what was withheld joins them. Then all of it is to be sent,
  /// or the largest. Block-collective.
  __device__ void encode_gradients(const Part& part, float* tensor) const {
    float *gradients = tensor + part.begin, *withheld = withheld_ + part.begin;
    if (!encodes(part.step)) {
      for_own_share(part.count(), [&](std::uint64_t i) {
        gradients[i] += withheld[i];
        withheld[i] = 0;
      });
    } else {
      for_own_share(part.count(), [&](std::uint64_t i) { withheld[i] += gradients[i]; });
      __syncthreads();
      choose(
          part, [&](std::uint32_t i) { return withheld[i]; },
          [&](std::uint32_t i) {
            const float value = withheld[i];
            withheld[i] = 0;
            return value;
          });
    }
    __syncthreads();
  }

  /// Where the update makes weights, instead of in `weights`.
  __device__ float* made_in(float*) const { return made_; }

  /// The weights of a part that their owner has just made: all of them, or those that differ most from what all ranks
  /// have, become what all ranks have. The owner computes with these, too. Block-collective.
  __device__ void encode_weights(const Part& part, float* tensor) const {
    const float* made = made_ + part.begin;
    float* weights = tensor + part.begin;
    __syncthreads();
    if (!encodes(part.step)) {
      for_own_share(part.count(), [&](std::uint64_t i) { weights[i] = made[i]; });
    } else {
      choose(
          part, [&](std::uint32_t i) { return made[i] - weights[i]; },
          [&](std::uint32_t i) { return weights[i] = made[i]; });
    }
    __syncthreads();
  }

  /// What encode_gradients() or encode_weights() has chosen of a part.
  __device__ Encoded<Change> encoded(const Part& part) const { return {changes_ + part.begin, chosen_[part.index]}; }

  /// How many elements a message instead of so many floats in so many parts has at most.
  GPUSOCK_FN static std::uint64_t elements_max(std::uint64_t floats, std::uint64_t parts) {
    return (floats + parts) * sizeof(float) / sizeof(Change);
  }

  /// True if a peer may send this element: it is of the message's chunks. `number`: of the element, in the message.
  template <class Message>
  __device__ static bool is_right(const Change& got, std::uint64_t, const Message& message) {
    return got.index >= message.begin && got.index < message.end;
  }

  /// Gradients are added, weights replaced.
  template <class Message>
  __device__ static void decode(const Change& got, std::uint64_t, const Message& message) {
    float& value = message.tensor[got.index];
    value = message.adds ? got.value + value : got.value;
  }

 private:
  /// How many changes of so many floats a step may send. What steps before it had no use for, as a share of less than
  /// one change, it gets: so all steps until then together keep to the budget, and small tensors get their turn.
  GPUSOCK_FN std::uint64_t changes_of(std::uint64_t floats, std::uint64_t step) const {
    const double each = changes_per_float_ * static_cast<double>(floats);
    const std::uint64_t count = static_cast<std::uint64_t>(each * static_cast<double>(step + 1)) -
                                static_cast<std::uint64_t>(each * static_cast<double>(step));
    const std::uint64_t most = floats < 2 ? floats : floats / 2;  // no longer than the floats themselves
    return count < most ? count : most;
  }

  /// Chooses what is sent of a part: the largest of value_at(i), i counted from its first float. change_at(i) is what
  /// is sent for it.
  template <class ValueAt, class ChangeAt>
  __device__ void choose(const Part& part, ValueAt value_at, ChangeAt change_at) const {
    const auto count = static_cast<std::uint32_t>(part.count());
    const auto most = static_cast<std::uint32_t>(changes_of(count, part.step));
    Change* changes = changes_ + part.begin;
    const std::uint32_t chosen = take_largest(count, most, value_at, [&](std::uint32_t i, std::uint32_t place) {
      changes[place] = {static_cast<std::uint32_t>(part.begin + i), change_at(i)};
    });
    if (threadIdx.x == 0) chosen_[part.index] = chosen;
  }

  float* withheld_;           ///< for each float of the tensor: own gradients that were not sent yet
  float* made_;               ///< at owners: the weights as the update has made them
  Change* changes_;           ///< those that were chosen: of a part from its first float on
  std::uint32_t* chosen_;     ///< how many: by part
  double changes_per_float_;  ///< in a step
  std::uint64_t last_step_;
};

}  // namespace param_sync::codec
