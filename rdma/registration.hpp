#pragma once
/// @file Registration of memory that the NIC reads or that a peer's NIC writes. A registration permits one of the two.

#include "rdma/cuda_driver.hpp"

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <string>

namespace gpusock::rdma {

/// What a registration permits. Peers cannot read any memory, and they can use only the keys of memory that they write.
enum class Access {
  read_by_nic,       ///< this side's NIC reads it to send it
  written_by_peers,  ///< a peer's NIC writes it
};

/// The verbs flags of an access.
///
/// Relaxed ordering lets the PCIe fabric reorder the NIC's accesses (PCIe Base Specification, "Transaction Ordering":
/// the attribute RO). It is on for memory that the NIC only reads: the order of those reads does not matter, because
/// the bytes were complete before the request was posted, and the completion says that they were read. It is off for
/// memory that peers write: a reader that sees the position word, which is written after the bytes, relies on the bytes
/// being there (visibility.hpp, V1 and V3).
unsigned access_flags(Access access);

/// How the NIC was given the memory.
enum class Path {
  host,     ///< ibv_reg_mr on host memory
  dmabuf,   ///< a GPU's memory as a dma-buf: ibv_reg_dmabuf_mr
  peermem,  ///< a GPU's memory through the kernel module nvidia_peermem: ibv_reg_mr on the device address
};
const char* to_string(Path path);

/// Registered memory. Its key is valid until it is destroyed or revoked: after that, the NIC refuses writes by the key.
class Registration {
 public:
  Registration() = default;
  Registration(ibv_mr* region, Path path) : region_(region), path_(path) {}
  Registration(Registration&& other) noexcept : region_(other.region_), path_(other.path_) { other.region_ = nullptr; }
  Registration& operator=(Registration&& other) noexcept;
  ~Registration() { revoke(); }

  explicit operator bool() const { return region_ != nullptr; }
  std::uint32_t local_key() const { return region_->lkey; }
  std::uint32_t remote_key() const { return region_->rkey; }
  Path path() const { return path_; }
  void revoke() noexcept;

 private:
  ibv_mr* region_ = nullptr;
  Path path_ = Path::host;
};

/// Registers host memory. Throws std::system_error, which says so if the limit of locked memory may be the reason.
/// Requests and peers name the memory by the address `known_as`, at the same offset in its page; 0: by its own address.
Registration register_host(ibv_pd* domain, void* memory, std::size_t bytes, Access access, std::uint64_t known_as = 0);

/// The ways in which this machine can give a GPU's memory to the NIC.
struct GpuMemoryPaths {
  const CudaDriver* driver = nullptr;  ///< nullptr: there is no CUDA driver
  bool peermem_loaded = false;
};
GpuMemoryPaths gpu_memory_paths();

/// True if the kernel module that lets ibv_reg_mr take device addresses is loaded. `sys`: where sysfs is mounted.
bool peermem_is_loaded(const std::string& sys = "/sys");

/// A GPU's memory as a dma-buf of whole pages.
struct DmaBuf {
  int descriptor = -1;       ///< the caller closes it; -1: there is none
  std::uint64_t offset = 0;  ///< where the memory begins in the dma-buf
};
/// Exports a GPU's memory as a dma-buf. If that fails, the descriptor is -1 and `reason` says why.
DmaBuf export_dmabuf(std::uint64_t address, std::size_t bytes, const CudaDriver* driver, std::string& reason);

/// Registers a GPU's memory by dma-buf, or through nvidia_peermem if that fails. Returns an empty Registration if both
/// fail: then `reason` says why each did, and rings must lie in host memory. Also sets `reason` if only dma-buf failed.
/// About `known_as` see register_host().
Registration register_gpu(ibv_pd* domain, std::uint64_t address, std::size_t bytes, Access access,
                          const GpuMemoryPaths& paths, std::string& reason, std::uint64_t known_as = 0);

}  // namespace gpusock::rdma
