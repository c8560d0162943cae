#pragma once
/// @file CUDA's language for kernels on the model: each block is one thread of a case, and the only one of its block.
/// Stands before the CPU device's header of the same name, as shadow/cuda/atomic stands before libcu++'s.

#include "checker/run.hpp"
#include "checker/view.hpp"

#include "cpu_device/detail/keywords.hpp"
#include "cpu_device/detail/math_functions.hpp"
#include "cpu_device/detail/vector_types.hpp"

#undef __shared__
#define __shared__  // what one thread shares is its own

namespace gpusock::model {

struct BlockIndex {
  unsigned index = 0, blocks = 1;
};
inline BlockIndex block_indices[kThreadsMax];
inline BlockIndex& block_index() { return block_indices[thread_number()]; }

/// Runs a kernel as this block of a grid, on the case's thread that calls.
template <class... Parameters, class... Arguments>
void run_block(unsigned index, unsigned blocks, void (*kernel)(Parameters...), Arguments&&... arguments) {
  block_index() = {index, blocks};
  kernel(static_cast<Arguments&&>(arguments)...);
}

}  // namespace gpusock::model

#define threadIdx (uint3{0, 0, 0})
#define blockDim (dim3(1))
#define blockIdx (uint3{::gpusock::model::block_index().index, 0, 0})
#define gridDim (dim3(::gpusock::model::block_index().blocks))

inline void __syncthreads() {}
inline int __syncthreads_or(int predicate) { return predicate; }
inline int __syncthreads_and(int predicate) { return predicate; }
inline void __nanosleep(unsigned) { gpusock::model::give_way(); }
inline int atomicAdd(int* word, int value) { return (*word += value) - value; }  // only of __shared__ words
inline unsigned long long atomicMin(unsigned long long* word, unsigned long long value) {
  const unsigned long long before = *word;
  if (value < before) *word = value;
  return before;
}

namespace cooperative_groups {

struct thread_block {
  static void sync() {}
  static unsigned thread_rank() { return 0; }
  static unsigned num_threads() { return 1; }
  static unsigned size() { return 1; }
};
inline thread_block this_thread_block() { return {}; }
template <unsigned kSize>
thread_block tiled_partition(const thread_block& block) {
  return block;
}

}  // namespace cooperative_groups

namespace cpu_device {

/// Each case's thread has its own variable.
template <class T, class Tag>
T& block_shared(Tag) {
  static T of_threads[gpusock::model::kThreadsMax];
  return of_threads[gpusock::model::thread_number()];
}

/// Nothing here: a block is one thread.
struct GroupCall {
  template <class Group>
  GroupCall(const Group&, const char*) {}
};

/// All threads make calls, as on a GPU.
constexpr bool leaders_call() { return false; }
template <class Group, class Call, class... Variables>
auto call_for_group(const Group&, const char*, Call call, Variables&...) {
  return call();
}

}  // namespace cpu_device
