#pragma once
/// @file What GPUnet kernels use besides sockets: parts for one thread, numbers, time and text.

#include "gpusock/device.cuh"

#include <cassert>
#include <cstdio>

/// A byte, as GPUnet's calls take it.
using uchar = unsigned char;

/// True for the block's first thread.
#define FIRST_THREAD_IN_BLOCK() (threadIdx.x == 0 && threadIdx.y == 0 && threadIdx.z == 0)
/// True for the grid's first block.
#define FIRST_BLOCK() (blockIdx.x == 0 && blockIdx.y == 0 && blockIdx.z == 0)

namespace gpusock::compat {

/// True if the thread is in a part for one thread. In such a part this object hides the function gpunet_scope().
struct SingleThreadPart {
  bool mine;
};

}  // namespace gpusock::compat

/// Never called. From the type of this name gaccept knows whether it is called in a part for one thread.
void gpunet_scope();

/// The threads for which the condition holds run the braces that follow. It is a loop, so that `break` leaves the
/// braces, as in GPUnet.
#define GPUSOCK_GPUNET_PART(condition)                                                    \
  if (const gpusock::compat::SingleThreadPart gpunet_scope{condition}; gpunet_scope.mine) \
    for (bool gpunet_first = true; gpunet_first; gpunet_first = false)

/// BEGIN_SINGLE_THREAD_PART { ... } END_SINGLE_THREAD_PART; runs the braces in the block's first thread, between two
/// barriers.
#define BEGIN_SINGLE_THREAD_PART \
  __syncthreads();               \
  GPUSOCK_GPUNET_PART(FIRST_THREAD_IN_BLOCK())
/// Ends what BEGIN_SINGLE_THREAD_PART began.
#define END_SINGLE_THREAD_PART __syncthreads()
/// As BEGIN_SINGLE_THREAD_PART, with the braces in the macros: BEGIN_SINGLE_THREAD ... END_SINGLE_THREAD.
#define BEGIN_SINGLE_THREAD BEGIN_SINGLE_THREAD_PART {
/// Ends what BEGIN_SINGLE_THREAD began.
#define END_SINGLE_THREAD \
  }                       \
  END_SINGLE_THREAD_PART;
/// BEGIN_UNIQUE_THREAD_PART { ... } END_UNIQUE_THREAD_PART; runs the braces in the grid's first thread, between two
/// barriers in each block.
#define BEGIN_UNIQUE_THREAD_PART \
  __syncthreads();               \
  GPUSOCK_GPUNET_PART(FIRST_THREAD_IN_BLOCK() && FIRST_BLOCK())
/// Ends what BEGIN_UNIQUE_THREAD_PART began.
#define END_UNIQUE_THREAD_PART __syncthreads()

/// The thread's number in its block.
#define TID (threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z))
/// The block's number in its grid.
#define TBID (blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z))

#if defined(RELEASE) && !defined(GPU_ASSERT)
/// Does nothing: with RELEASE, as GPUnet's programs are built, the condition is not even evaluated.
#define GPU_ASSERT(condition)
#elif !defined(GPU_ASSERT)
/// Asserts a condition in a kernel. The macro has GPUnet's semicolon.
#define GPU_ASSERT(condition) assert(condition);
#endif

/// A point in time.
struct gtimeval {
  long int tv_sec;   ///< seconds
  long int tv_usec;  ///< microseconds, 0 to 999999
};

/// Block: writes the time to the first thread's `tv`. Use differences only: on the CPU device the time has no fixed
/// start.
__device__ inline void ggettimeofday(gtimeval* tv) {
  BEGIN_SINGLE_THREAD_PART {
    const auto now_us = gpusock::clock_ns() / 1000;
    tv->tv_sec = static_cast<long>(now_us / 1'000'000);
    tv->tv_usec = static_cast<long>(now_us % 1'000'000);
  }
  END_SINGLE_THREAD_PART;
}

/// Sets `difference` to `later` - `earlier`.
__device__ inline void gtimersub(const gtimeval* later, const gtimeval* earlier, gtimeval* difference) {
  const long us = (later->tv_sec - earlier->tv_sec) * 1'000'000 + (later->tv_usec - earlier->tv_usec);
  difference->tv_sec = us / 1'000'000 - (us % 1'000'000 < 0);
  difference->tv_usec = us % 1'000'000 + (us % 1'000'000 < 0) * 1'000'000;
}

/// One thread: prints four integers in this format.
__device__ inline void gprintf4_single(const char* format, int first, int second, int third, int fourth) {
  printf(format, first, second, third, fourth);
}

/// One thread: prints `length` characters at most, up to a zero byte.
__device__ inline void gputs_single(const char* text, int length) {
  for (int i = 0; i < length && text[i] != 0; ++i) printf("%c", text[i]);
}

/// Block: the first thread prints.
__device__ inline void gputs(const char* text, int length) {
  BEGIN_SINGLE_THREAD_PART { gputs_single(text, length); }
  END_SINGLE_THREAD_PART;
}
