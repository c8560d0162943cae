#pragma once
/// @file Samples in a node's device memory.

#include "data/dataset.hpp"

#include "gpusock/gpusock.hpp"

#include <algorithm>
#include <cstdint>
#include <span>

namespace param_sync {

/// What kernels read; pointers to device memory.
struct SamplesView {
  const std::uint8_t* images;   ///< or null
  const float* values;          ///< or null
  const std::uint8_t* labels;   ///< by sample
  const std::uint32_t* order;   ///< the samples in the order in which they are visited
  std::uint32_t rows, columns;  ///< of a sample
};

/// A copy of samples in device memory, with the order in which they are visited.
class DeviceSamples {
 public:
  DeviceSamples(gpusock::Context& context, const Samples& samples, std::span<const std::uint32_t> order)
      : images_(context, std::max<std::size_t>(1, samples.images.size())),
        values_(context, std::max<std::size_t>(1, samples.values.size())),
        labels_(context, samples.labels.size()),
        order_(context, order.size()),
        rows_(samples.rows),
        columns_(samples.columns),
        has_values_(!samples.values.empty()) {
    if (has_values_) values_.copy_in(samples.values);
    if (!has_values_) images_.copy_in(samples.images);
    labels_.copy_in(samples.labels);
    order_.copy_in(order);
  }

  /// The samples from number `first` of the order on.
  SamplesView from(std::size_t first) const {
    return {has_values_ ? nullptr : images_.data(),
            has_values_ ? values_.data() : nullptr,
            labels_.data(),
            order_.data() + first,
            rows_,
            columns_};
  }

  std::size_t visits() const { return order_.size(); }

 private:
  gpusock::DeviceBuffer<std::uint8_t> images_;
  gpusock::DeviceBuffer<float> values_;
  gpusock::DeviceBuffer<std::uint8_t> labels_;
  gpusock::DeviceBuffer<std::uint32_t> order_;
  std::uint32_t rows_, columns_;
  bool has_values_;
};

}  // namespace param_sync
