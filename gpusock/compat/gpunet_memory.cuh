#pragma once
/// @file What GPUnet kernels use for memory that threads share: locks, waits, copies. The names and their meanings are
/// GPUnet's.

#include "gpusock/compat/gpunet_kernel.cuh"

#include "ringbuf/atomics.hpp"

#include <cstddef>

namespace gpusock::compat {

/// One turn of a wait for another thread. On the CPU device the block's other threads run meanwhile.
__device__ inline void wait_a_turn() { __nanosleep(100); }

/// One thread: sets the lock and returns what it was. The fence keeps later reads from seeing what was there before the
/// last owner's writes.
__device__ inline int exchange_lock(int* lock) {
  const int before = atomicExch(lock, 1);
  __threadfence();
  return before;
}

}  // namespace gpusock::compat

/// One thread: reads a number that another thread may just have written, as one atomic access of device scope.
template <class T>
__device__ inline T readNoCache(const volatile T* address) {
  return gpusock::ringbuf::DeviceAtomics::Ref<T>(*const_cast<T*>(address)).load(gpusock::ringbuf::kAcquire);
}

/// One thread: waits until the variable has the value; the block's other threads run meanwhile.
#define WAIT_ON_MEM(variable, value) \
  while (readNoCache(&(variable)) != (value)) gpusock::compat::wait_a_turn()
/// One thread: waits while the variable has the value.
#define WAIT_ON_MEM_NE(variable, value) \
  while (readNoCache(&(variable)) == (value)) gpusock::compat::wait_a_turn()

/// One thread: takes a lock, which is an int that is 0 at first.
#define MUTEX_LOCK(lock) \
  while (MUTEX_WAS_LOCKED(lock)) gpusock::compat::wait_a_turn()
/// One thread: takes the lock if it is free. Returns 0 if it was free, else not 0.
#define MUTEX_WAS_LOCKED(lock) gpusock::compat::exchange_lock((int*)(&(lock)))
/// One thread: gives the lock back.
#define MUTEX_UNLOCK(lock) (__threadfence(), (void)atomicExch((int*)(&(lock)), 0))

/// Tells which of the grid's blocks comes last. Its memory is zero at first. One thread of each block calls is_last().
struct LAST_SEMAPHORE {
  int count;  ///< blocks that have called

  /// Returns 1 to the last block, else 0.
  __device__ int is_last() volatile {
    __threadfence();  // what the others did is visible to the last one
    const int before = atomicAdd(const_cast<int*>(&count), 1);
    __threadfence();
    return before + 1 == static_cast<int>(gridDim.x * gridDim.y * gridDim.z);
  }
};

/// Lets one thread initialize something while the others wait for it. Its memory is zero at first.
struct INIT_LOCK {
  volatile int lock;  ///< 0, 1 while it is being initialized, then 2

  /// Returns 1 to the thread that has to initialize and then call signal(); 0 to the others, once that is done.
  __device__ int try_wait() volatile {
    int* const word = const_cast<int*>(&lock);
    if (atomicCAS(word, 0, 1) == 0) return 1;
    while (atomicAdd(word, 0) != 2) gpusock::compat::wait_a_turn();
    __threadfence();
    return 0;
  }
  /// Ends the waits of the other threads: the initialization is done.
  __device__ void signal() volatile {
    __threadfence();
    atomicExch(const_cast<int*>(&lock), 2);
  }
};

/// Block: copies `size` bytes with all its threads, between two barriers.
__device__ inline void copy_block(uchar* to, volatile uchar* from, int size) {
  const auto block = gpusock::this_block();
  block.sync();
  if (size > 0) gpusock::copy(block, to, const_cast<const uchar*>(from), static_cast<std::uint64_t>(size));
  block.sync();
}
/// Block: the same as copy_block.
__device__ inline void copyNoCache_block(uchar* to, volatile uchar* from, int size) { copy_block(to, from, size); }

/// One thread: copies `size` bytes.
__device__ inline void memcpy_thread(volatile char* to, const volatile char* from, unsigned size) {
  for (unsigned i = 0; i < size; ++i) to[i] = from[i];
}
/// One thread: copies `size` bytes; as in GPUnet, only whole words of four bytes.
__device__ inline void copyNoCache_thread(char* to, volatile char* from, int size) {
  for (int i = 0; i < size / 4 * 4; ++i) to[i] = from[i];
}
/// One thread: copies `size` bytes; as in GPUnet, only whole words of four bytes.
__device__ inline void write_thread(uchar* to, uchar* from, int size) {
  for (int i = 0; i < size / 4 * 4; ++i) to[i] = from[i];
}
/// One thread: sets `size` bytes to zero.
__device__ inline void bzero_thread(volatile void* to, unsigned size) {
  for (unsigned i = 0; i < size; ++i) static_cast<volatile char*>(to)[i] = 0;
}
/// One thread: returns 0 if the texts are equal up to a zero byte or in `size` bytes, else 1.
__device__ inline char strcmp_thread(const volatile char* one, const volatile char* other, unsigned size) {
  for (unsigned i = 0; i < size; ++i) {
    if (one[i] != other[i]) return 1;
    if (one[i] == 0) return 0;
  }
  return 0;
}
