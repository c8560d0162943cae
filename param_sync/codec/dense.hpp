#pragma once
/// @file All floats as they are: ops move them straight between tensors and rings.

namespace param_sync::codec {

struct Dense {
  static constexpr bool kDense = true;  ///< it has none of a codec's other members
};

struct DenseSettings {
  using Codec = Dense;
};

}  // namespace param_sync::codec
