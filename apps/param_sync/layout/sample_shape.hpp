#pragma once
/// @file The sizes of samples, on which a model depends.

#include <cstdint>

namespace param_sync {

struct SampleShape {
  std::uint32_t rows = 0;     ///< of an image
  std::uint32_t columns = 0;  ///< of an image
  std::uint32_t classes = 0;  ///< labels are below

  std::uint32_t pixels() const { return rows * columns; }
  bool operator==(const SampleShape&) const = default;
};

}  // namespace param_sync
