#pragma once
/// @file The codec that sends the largest changes, with error feedback: a rank keeps to a budget of bytes per step, and
/// adds the changes that it withholds to those of later steps. (Managed communication by magnitude: Wei et al.,
/// "Managed Communication and Consistency for Fast Data-Parallel Iterative Analytics", SoCC 2015; top-k with error
/// feedback: Lin et al., "Deep Gradient Compression", ICLR 2018.)
///
/// No change is lost. A gradient is sent, or it stays in `withheld`. A new weight is sent to all ranks, or its owner
/// still has the difference: made - weights. The last step sends all gradients and all weights.

#include "param_sync/codec/largest.cuh"
#include "param_sync/codec/own_share.cuh"
#include "param_sync/codec/top_k.hpp"

#include <cstdint>

namespace param_sync::codec {

/// The codec's type in kernels, which take it by value. Pointers point to device memory.
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

  /// Throws gpusock::Error (EINVAL) if the headers of the messages exceed the budget.
  TopK(const TopKSettings& settings, const StepTraffic& sent, const Memory& memory)
      : TopK(memory.withheld.data(), memory.made.data(), memory.changes.data(), memory.chosen.data(),
             changes_per_float(sent, settings.budget_bytes), sent.steps - 1, settings.order) {}
  TopK(float* withheld, float* made, Change* changes, std::uint32_t* chosen, double changes_per_float,
       std::uint64_t last_step, ChangeOrder order)
      : withheld_(withheld),
        made_(made),
        changes_(changes),
        chosen_(chosen),
        changes_per_float_(changes_per_float),
        last_step_(last_step),
        order_(order) {}

  /// Runs before the first step. `weights`: the initial weights, which are the same on all ranks. One block.
  __device__ void begin(const float* weights, std::uint64_t count) const {
    for_own_share(count, [&](std::uint64_t i) { made_[i] = weights[i]; });
  }

  /// True if the messages of a step are encoded. Otherwise they carry floats, because the budget has room for all
  /// floats, or because the step is the last one. A change takes twice the bytes of a float.
  GPUSOCK_FN bool encodes(std::uint64_t step) const { return changes_per_float_ < 0.5 && step != last_step_; }

  /// Prepares this rank's gradients of a part for sending: adds the withheld ones, and then selects all of them, or the
  /// largest if the step is encoded. Block-collective.
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

  /// Returns where the update writes new weights: not into the array that is passed.
  __device__ float* made_in(float*) const { return made_; }

  /// Selects which of a part's new weights their owner sends: all of them, or those that differ most from the weights
  /// that all ranks have. Also copies these to `tensor`, as the owner computes with the same weights. Block-collective.
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

  /// The changes that encode_gradients() or encode_weights() has selected in a part.
  __device__ Encoded<Change> encoded(const Part& part) const { return {changes_ + part.begin, chosen_[part.index]}; }

  /// The most elements that an encoded message has, if it replaces `floats` floats in `parts` parts.
  GPUSOCK_FN static std::uint64_t elements_max(std::uint64_t floats, std::uint64_t parts) {
    return (floats + parts) * sizeof(float) / sizeof(Change);
  }

  /// True if a peer may send this element: it is in the message's chunks. Its number in the message is not used.
  template <class Message>
  __device__ static bool is_right(const Change& got, std::uint64_t, const Message& message) {
    return got.index >= message.begin && got.index < message.end;
  }

  /// Adds a gradient to its float, or replaces a weight.
  template <class Message>
  __device__ static void decode(const Change& got, std::uint64_t, const Message& message) {
    float& value = message.tensor[got.index];
    value = message.adds ? got.value + value : got.value;
  }

 private:
  /// How many changes a step may send of `floats` floats. Fractions of a change add up from step to step, so that all
  /// steps together keep to the budget, and small tensors get their turn.
  GPUSOCK_FN std::uint64_t changes_of(std::uint64_t floats, std::uint64_t step) const {
    const std::uint64_t count = changes_before(floats, step + 1) - changes_before(floats, step);
    const std::uint64_t most = floats < 2 ? floats : floats / 2;  // a change takes the bytes of two floats
    return count < most ? count : most;
  }

  /// How many changes may be sent before a step.
  GPUSOCK_FN std::uint64_t changes_before(std::uint64_t floats, std::uint64_t step) const {
    return static_cast<std::uint64_t>(changes_per_float_ * static_cast<double>(floats) * static_cast<double>(step));
  }

  /// A number whose absolute value is larger for changes that are sent first. A float that has not changed is not sent.
  __device__ float rank_of(float change, std::uint32_t i, std::uint64_t floats, std::uint64_t step) const {
    if (order_ == ChangeOrder::largest || change == 0) return change;
    if (order_ == ChangeOrder::random) return random_number(i, step);
    const std::uint64_t next = changes_before(floats, step) % floats;  // they take turns: the first one of this step
    return __uint_as_float(static_cast<std::uint32_t>(floats - (i + floats - next) % floats));
  }

  /// Selects which floats of a part are sent, by their order: value_at(i) says how much one has changed, where i counts
  /// from the part's first float. change_at(i) returns the value that is sent.
  template <class ValueAt, class ChangeAt>
  __device__ void choose(const Part& part, ValueAt value_at, ChangeAt change_at) const {
    const auto count = static_cast<std::uint32_t>(part.count());
    const auto most = static_cast<std::uint32_t>(changes_of(count, part.step));
    Change* changes = changes_ + part.begin;
    const std::uint32_t chosen = take_largest(
        count, most, [&](std::uint32_t i) { return rank_of(value_at(i), i, count, part.step); },
        [&](std::uint32_t i, std::uint32_t index) {
          changes[index] = {static_cast<std::uint32_t>(part.begin + i), change_at(i)};
        });
    if (threadIdx.x == 0) chosen_[part.index] = chosen;
  }

  float* withheld_;           ///< for each float of the tensor: this rank's gradient that is not sent yet
  float* made_;               ///< at owners: the weights that the update has made
  Change* changes_;           ///< selected changes; those of a part begin at the part's first float
  std::uint32_t* chosen_;     ///< for each part: how many changes are selected
  double changes_per_float_;  ///< changes per float that a step may send
  std::uint64_t last_step_;
  ChangeOrder order_;
};

}  // namespace param_sync::codec
