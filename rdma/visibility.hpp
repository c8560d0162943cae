#pragma once
/// @file What makes the accesses of a network card visible to processors, and theirs to it. Every edge on which the verbs link
/// rests is here, once, with the guarantee behind it; the link calls these and nothing else to that end.
///
///   label  edge          order    guarantee                                                    where
///   V1     card → CPU    acquire  bytes written before the position word behind them           load_word_of_card()
///   V2     CPU → card    -        ring bytes stored before the request to send them            ByteConsumer::readable() (C1), QueuePair::post()
///   V3     card → GPU    -        as V1, for ring bytes in the GPU's memory                    gpu_sees_writes_in_order()
///   V4     card → GPU    -        where V3 does not hold of itself                             flush_writes_to_gpu()
///   V5     GPU → card    -        as V2, for ring bytes in the GPU's memory                    ByteConsumer::readable() (C1), QueuePair::post()
///   V6     card → card   -        the position word is executed behind the bytes               QueuePair::post()
///
/// V2: the proxy sees another thread's stores through the acquire load of its position (C1). ibv_post_send orders what its
/// thread has seen before the doorbell (udma_to_device_barrier of rdma-core: all stores to memory that the card reads), and the card reads
/// behind that.
/// V5: a kernel publishes its position with a release store at system scope, behind which its stores are visible to all
/// observers of the system, reads over PCIe among them (PTX ISA, "Memory Consistency Model", scope .sys; "GPUDirect RDMA",
/// "Synchronization and Memory Ordering"); from there on it is V2.
/// V6: an RC responder executes the requests of one queue pair in the order in which they were posted (InfiniBand Architecture
/// Specification, volume 1, "Transaction Ordering"). That holds among messages and not inside of one, so the word is a message of its own.

#include "ringbuf/atomics.hpp"
#include "rdma/cuda_driver.hpp"

#include <cerrno>
#include <cstdint>

namespace gpusock::rdma {

/// V1. A CPU that sees the word sees the bytes. The card executes the write of the word behind those of the bytes (V6), and
/// its accesses to host memory are PCIe posted writes: one without the relaxed-ordering attribute passes none before it (PCIe
/// Base Specification, "Transaction Ordering Rules", posted request behind posted request). Memory written by
/// peers is registered without relaxed ordering (access_flags()). On the CPU the acquire load keeps the reads of
/// the bytes behind the word's, as for any writer in the coherence domain.
inline std::uint64_t load_word_of_card(std::uint64_t& word) {
  return ringbuf::SystemAtomics::Ref<std::uint64_t>(word).load(ringbuf::kAcquire);  // V1, pairs with the card's write
}

/// Attributes and values of the CUDA driver's ABI.
inline constexpr int kFlushWritesOptions = 117;   ///< CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS
inline constexpr int kWritesOrdering = 118;       ///< CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING
inline constexpr int kOrderingOwner = 100;        ///< CU_GPU_DIRECT_RDMA_WRITES_ORDERING_OWNER
inline constexpr int kFlushByHost = 1;            ///< CU_FLUSH_GPU_DIRECT_RDMA_WRITES_OPTION_HOST
inline constexpr int kFlushCurrentContext = 0;    ///< CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TARGET_CURRENT_CTX
inline constexpr int kFlushToOwner = 100;         ///< CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_OWNER

/// V3. Does a kernel that sees the word see bytes in its own GPU's memory that the card wrote before: where
/// cudaDevAttrGPUDirectRDMAWritesOrdering is Owner or more (CUDA Driver API, CUGPUDirectRDMAWritesOrdering: "the device that owns the
/// memory"). False where it is None, or cannot be asked: then the bytes need V4 or a ring in host memory.
inline bool gpu_sees_writes_in_order(const CudaDriver& driver, int device) {
  int ordering = 0;
  return driver.device_get_attribute != nullptr && driver.device_get_attribute(&ordering, kWritesOrdering, device) == 0 &&
         ordering >= kOrderingOwner;
}

/// V4. Makes what the card has written visible to the GPU of the current CUDA context: cuFlushGPUDirectRDMAWrites, on devices that offer it
/// to the host (CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS). A CPU has to call it, so a ring that needs it has its position word
/// passed on by the proxy. 0, -ENOSYS where there is no such call, -EIO where it failed.
inline int flush_writes_to_gpu(const CudaDriver& driver) {
  if (driver.flush_gpudirect_rdma_writes == nullptr) return -ENOSYS;
  return driver.flush_gpudirect_rdma_writes(kFlushCurrentContext, kFlushToOwner) == 0 ? 0 : -EIO;
}

/// Can V4 be had of this device.
inline bool host_can_flush_writes_to_gpu(const CudaDriver& driver, int device) {
  int options = 0;
  return driver.device_get_attribute != nullptr && driver.flush_gpudirect_rdma_writes != nullptr &&
         driver.device_get_attribute(&options, kFlushWritesOptions, device) == 0 && (options & kFlushByHost) != 0;
}

}  // namespace gpusock::rdma
