#pragma once
/// @file The list of codecs. A codec says how the floats of a tensor become bytes of messages. To add one, write a file
/// like top_k.cuh, include it in executor.cu, and add its settings here (param_sync/codec/README.md in the sources).

#include "param_sync/codec/dense.hpp"
#include "param_sync/codec/top_k.hpp"

#include <variant>

namespace param_sync::codec {

/// The settings of the codec for all messages of an executor's resident lanes. Kernels are templates of the codec's
/// type.
using AnyCodec = std::variant<DenseSettings, TopKSettings>;

/// True if messages carry floats unencoded.
inline bool is_dense(const AnyCodec& codec) { return std::holds_alternative<DenseSettings>(codec); }

}  // namespace param_sync::codec
