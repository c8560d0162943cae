#pragma once
/// @file What makes the accesses of a NIC visible to processors, and theirs to it. Every edge on which the
/// verbs link rests is here, once, with the guarantee behind it; the link calls these and nothing else to that end.
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
/// its thread has seen before the doorbell (udma_to_device_barrier of rdma-core: all stores to memory that the NIC
/// reads), and the NIC reads after that.
///
/// V3, V4: the bytes go to the GPU and their position word to host memory. PCIe orders writes to one destination, not
/// to two, so a kernel that polled this word could see it before the bytes. It does not: the proxy sees the word (V1),
/// makes sure of the bytes, and passes the position on by a release store, which the kernel acquires (P1, C1). What
/// makes sure of the bytes is cuFlushGPUDirectRDMAWrites: when it has returned, what NICs wrote before is visible to
/// the GPU that owns the memory. Where the device's writes ordering covers that scope, the call does nothing and may be
/// left out (CUDA Driver API, cuFlushGPUDirectRDMAWrites and CUGPUDirectRDMAWritesOrdering): that is V3, else it is V4.
/// Neither holds where NICs reach the GPU on several ways, which that documentation leaves to the user.
///
/// V8: where V3 holds, the NIC may write the position into the GPU's memory as well, and kernels poll it there. The NIC
/// executes it after the bytes (V6), and PCIe does not let a posted write pass another on the way to one destination
/// (that memory, too, is registered without relaxed ordering). The device "can consistently consume remote writes":
/// that is what CU_GPU_DIRECT_RDMA_WRITES_ORDERING_OWNER says of the owner. A kernel acquires the word (C1), as it does
/// one that another GPU has written. A position for the proxy follows in host memory: by V3, what the proxy publishes
/// after it has seen this one comes to kernels that can see the first.
///
/// V5: a kernel publishes its position with a release store at system scope. All observers of the system see its
/// earlier stores before that, reads over PCIe among them (PTX ISA, "Memory Consistency Model", scope .sys; "GPUDirect
/// RDMA", "Synchronization and Memory Ordering"); from there on it is V2.
///
/// V6: an RC responder executes the requests of one queue pair in the order in which they were posted (InfiniBand
/// Architecture Specification, volume 1, "Transaction Ordering"). That holds among messages and not inside of one, so
/// the word is a message of its own.
///
/// V7: a kernel gives bytes back by a release store at system scope, after its reads of them (C2); the proxy acquires
/// it, and the peer writes there only once it has the credit that is posted then.

#include "ringbuf/atomics.hpp"
#include "rdma/cuda_driver.hpp"

#include <cerrno>
#include <cstdint>

namespace gpusock::rdma {

/// V1. A CPU that sees the word sees the bytes. The NIC executes the write of the word after those of the bytes (V6),
/// and its accesses to host memory are PCIe posted writes: one without the relaxed-ordering attribute passes none
/// before it (PCIe Base Specification, "Transaction Ordering Rules", posted request after posted request). Memory
/// written by peers is registered without relaxed ordering (access_flags()). On the CPU the acquire load keeps the
/// reads of the bytes after the word's, as for any writer in the coherence domain.
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

/// What it takes, once the proxy has seen the position, until a kernel may read what a NIC wrote into its GPU's
/// memory.
enum class NicWrites {
  in_order,  ///< nothing (V3)
  flushed,   ///< a flush (V4)
  unsure,    ///< there is nothing that one could rely on: rings must lie in host memory
};

/// V4. Makes what NICs have written visible to the GPU of the current CUDA context, on devices that offer it to the
/// host (visibility_of_nic_writes()). Waits for that. 0, -ENOSYS where there is no such call, -EIO where it failed.
inline int flush_writes_to_gpu(const CudaDriver& driver) {
  if (driver.flush_gpudirect_rdma_writes == nullptr) return -ENOSYS;
  return driver.flush_gpudirect_rdma_writes(kFlushCurrentContext, kFlushToOwner) == 0 ? 0 : -EIO;
}

/// V3, or else V4, of this device. Unsure where the driver offers neither, or cannot be asked; and where the GPU shares
/// the host's page tables: it is then joined to the processor by more than PCIe, and NICs may reach it on either way.
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
