#pragma once
/// @file The codec that sends all floats unencoded: ops move them directly between tensors and rings.

namespace param_sync::codec {

/// The codec's type in kernels.
struct Dense {
  static constexpr bool kDense = true;  ///< the codec has no other member
};

/// The codec's settings for the host: there are none.
struct DenseSettings {
  using Codec = Dense;  ///< the codec's type in kernels
};

}  // namespace param_sync::codec
