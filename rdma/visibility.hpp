#pragma once
/// @file Makes the accesses of a NIC visible to processors, and theirs to the NIC. This file lists each ordering edge
/// that the verbs link relies on, with the guarantee that provides it. The link uses only these functions for that.
///
// clang-format off
///   label  edge         order    guarantee                                                 where
///   V1     NIC → CPU   acquire  bytes written before the position word that follows them  load_word_of_nic()
///   V2     CPU → NIC   -        ring bytes stored before the request to send them         C1, QueuePair::post()
///   V3     NIC → GPU   -        ring bytes in the GPU's memory, before the position       visibility_of_nic_writes()
///   V4     NIC → GPU   -        where V3 does not hold of itself                          flush_writes_to_gpu()
///   V5     GPU → NIC   -        as V2, for ring bytes in the GPU's memory                 C1, QueuePair::post()
///   V6     NIC → NIC  -        the position word is executed after the bytes             QueuePair::post()
///   V7     GPU → NIC   -        bytes in a GPU's memory, read before overwriting them     P2, post() of credit
///   V8     NIC → GPU   -        ring bytes, before a position in the same GPU's memory    C1, orders_nic_writes()
// clang-format on
/// C1 is ByteConsumer::readable(), P2 the load of the consumed position (ringbuf/byte_ring.hpp).
///
/// V2: the proxy sees another thread's stores through the acquire load of its position (C1). ibv_post_send orders what
/// its thread has seen before the NIC's doorbell (udma_to_device_barrier of rdma-core: all stores to memory that the
/// NIC reads), and the NIC reads after the doorbell.
///
/// V3, V4: the bytes go to the GPU and their position word to host memory. PCIe orders writes to one destination, not
/// to two, so a kernel that polled this word could see it before the bytes. Kernels do not poll it: the proxy sees the
/// word (V1), makes the bytes visible to the GPU, and publishes the position by a release store, which the kernel
/// acquires (P1, C1). The proxy makes the bytes visible by cuFlushGPUDirectRDMAWrites: after this call has returned,
/// the GPU that owns the memory sees all that NICs wrote before the call. If the device's writes ordering covers that
/// scope, the call does nothing and may be omitted (CUDA Driver API, cuFlushGPUDirectRDMAWrites and
/// CUGPUDirectRDMAWritesOrdering): this case is V3, the other one V4. Neither holds if NICs reach the GPU on several
/// paths: that documentation leaves this case to the user.
///
/// V8: where V3 holds, the NIC may write the position into the GPU's memory as well, and kernels poll it there. The NIC
/// executes that write after the bytes (V6), and PCIe does not let a posted write pass another one to the same
/// destination (that memory, too, is registered without relaxed ordering). The owner of the memory "can consistently
/// consume remote writes", by the definition of CU_GPU_DIRECT_RDMA_WRITES_ORDERING_OWNER. A kernel acquires the word
/// (C1), like a word that another GPU has written. The NIC then writes the position for the proxy to host memory.
/// By V3, kernels that see what the proxy publishes after it has seen that position can also see the first one.
///
/// V5: a kernel publishes its position with a release store at system scope. All observers of the system see its
/// earlier stores before that one; reads over PCIe are such observers (PTX ISA, "Memory Consistency Model", scope .sys;
/// "GPUDirect RDMA", "Synchronization and Memory Ordering"). The rest is as in V2.
///
/// V6: an RC responder executes the requests of one queue pair in the order in which they were posted (InfiniBand
/// Architecture Specification, volume 1, "Transaction Ordering"). This holds between messages, not within one, so the
/// position word is a message of its own.
///
/// V7: a kernel gives bytes back by a release store at system scope, after its reads of them (C2); the proxy acquires
/// that store. The peer writes there only after it has received the credit that is posted then.

#include "ringbuf/atomics.hpp"
#include "rdma/cuda_driver.hpp"

#include <cerrno>
#include <cstdint>

namespace gpusock::rdma {

/// V1. A CPU that sees the word sees the bytes. The NIC executes the write of the word after those of the bytes (V6),
/// and it writes to host memory by PCIe posted writes: a posted write without the relaxed-ordering attribute does not
/// pass an earlier one (PCIe Base Specification, "Transaction Ordering Rules", posted request after posted request).
/// Memory that peers write is registered without relaxed ordering (access_flags()). On the CPU, the acquire load orders
/// the reads of the bytes after the read of the word, as for any writer in the coherence domain.
inline std::uint64_t load_word_of_nic(std::uint64_t& word) {
  return ringbuf::SystemAtomics::Ref<std::uint64_t>(word).load(ringbuf::kAcquire);  // V1, pairs with the NIC's write
}

/// Attributes and values of the CUDA driver's ABI.
inline constexpr int kUsesHostPageTables = 100;  ///< CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES
inline constexpr int kFlushWritesOptions = 117;  ///< CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS
inline constexpr int kWritesOrdering = 118;      ///< CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING
inline constexpr int kOrderingOwner = 100;       ///< CU_GPU_DIRECT_RDMA_WRITES_ORDERING_OWNER
inline constexpr int kFlushByHost = 1;           ///< CU_FLUSH_GPU_DIRECT_RDMA_WRITES_OPTION_HOST
inline constexpr int kFlushCurrentContext = 0;   ///< CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TARGET_CURRENT_CTX
inline constexpr int kFlushToOwner = 100;        ///< CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_OWNER

/// What the proxy must do after it has seen the position, before a kernel may read what a NIC wrote into the memory of
/// the kernel's GPU.
enum class NicWrites {
  in_order,  ///< nothing (V3)
  flushed,   ///< a flush (V4)
  unsure,    ///< no guarantee is known: rings must lie in host memory
};

/// V4. Makes what NICs have written visible to the GPU of the current CUDA context, on devices that offer it to the
/// host (visibility_of_nic_writes()), and waits for that. Returns 0, -ENOSYS (no such call) or -EIO (it failed).
inline int flush_writes_to_gpu(const CudaDriver& driver) {
  if (driver.flush_gpudirect_rdma_writes == nullptr) return -ENOSYS;
  return driver.flush_gpudirect_rdma_writes(kFlushCurrentContext, kFlushToOwner) == 0 ? 0 : -EIO;
}

/// V3, or else V4, of this device. Unsure where the driver offers neither, or cannot be asked; and where the GPU shares
/// the host's page tables: more than PCIe joins such a GPU to the processor, and NICs may reach it on either path.
inline NicWrites visibility_of_nic_writes(const CudaDriver* driver, int device) {
  if (driver == nullptr || driver->device_get_attribute == nullptr) return NicWrites::unsure;
  const auto attribute = [&](int which) {
    int value = 0;
    return driver->device_get_attribute(&value, which, device) == 0 ? value : 0;
  };
  if (attribute(kUsesHostPageTables) != 0) return NicWrites::unsure;
  if (attribute(kWritesOrdering) >= kOrderingOwner) return NicWrites::in_order;
  const bool can_flush = driver->flush_gpudirect_rdma_writes != nullptr &&
                         (attribute(kFlushWritesOptions) & kFlushByHost) != 0;
  return can_flush ? NicWrites::flushed : NicWrites::unsure;
}

}  // namespace gpusock::rdma
