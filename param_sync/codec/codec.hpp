#pragma once
/// @file The table of codecs, which say how the floats of a tensor become bytes of messages. A new one is a file like
/// top_k.cuh, which executor.cu includes, and its settings in the list here (param_sync/codec/README.md in the
/// sources).

#include "param_sync/codec/dense.hpp"
#include "param_sync/codec/top_k.hpp"

#include <variant>

namespace param_sync::codec {

/// The codec of all messages of an executor's resident lanes, for the host: kernels are templates of its type.
using AnyCodec = std::variant<DenseSettings, TopKSettings>;

/// True if messages are floats as they are.
inline bool is_dense(const AnyCodec& codec) { return std::holds_alternative<DenseSettings>(codec); }

}  // namespace param_sync::codec
