#pragma once
/// @file All floats as they are: ops move them straight between tensors and rings.

namespace param_sync::codec {

/// The codec, for kernels.
struct Dense {
  static constexpr bool kDense = true;  ///< it has none of a codec's other members
};

/// The codec, for the host. It has no settings.
struct DenseSettings {
  using Codec = Dense;  ///< what kernels have
};

}  // namespace param_sync::codec
