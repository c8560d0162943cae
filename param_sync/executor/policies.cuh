#pragma once
/// @file What a schedule leaves open. Kernels that run lanes are templates of these types, so that a run has no branch
/// for what it does not use.

#include "param_sync/executor/admission/admission.cuh"
#include "param_sync/codec/dense.hpp"
#include "param_sync/reduction/reduction.cuh"

namespace param_sync::executor {

/// The policies of lanes. Kernels take it by value.
template <class U, class C = codec::Dense, class R = reduction::FloatSums, class A = admission::Usual>
struct Policies {
  using Update = U;
  using Codec = C;
  using Reduction = R;
  using Admission = A;  ///< when a resident lane's op may begin (param_sync/executor/admission)
  U update{};           ///< what an owner does with a sum (param_sync/update)
  C codec{};            ///< how floats become bytes of messages (param_sync/codec)
  R reduction{};        ///< what becomes of what arrives and of what is there (param_sync/reduction)
};

}  // namespace param_sync::executor
