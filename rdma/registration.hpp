#pragma once
/// @file Memory that the NIC reads, or that a peer's NIC writes: registered for one use, until destroyed.

#include "rdma/cuda_driver.hpp"

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <string>

namespace gpusock::rdma {

/// What a registration permits. Nobody may read memory from afar, and only what peers write into has a key of use to
/// them.
enum class Access {
  read_by_nic,       ///< this side's NIC reads it to send it
  written_by_peers,  ///< a peer's NIC writes it
};

/// The verbs flags of an access.
///
/// Relaxed ordering lets the PCIe fabric reorder the NIC's accesses (PCIe Base Specification, "Transaction Ordering":
/// the attribute RO). It is on for memory that the NIC only reads: nothing is inferred from the order of those reads,
/// since the bytes were complete before they were posted, and the completion says when they were read. It is off for
/// memory that is written: whoever sees the position word written after the bytes takes them for there
/// (visibility.hpp, V1 and V3).
unsigned access_flags(Access access);

/// How the NIC was given the memory.
enum class Path {
  host,     ///< ibv_reg_mr on host memory
  dmabuf,   ///< a GPU's memory as a dma-buf: ibv_reg_dmabuf_mr
  peermem,  ///< a GPU's memory through the kernel module nvidia_peermem: ibv_reg_mr on the device address
};
const char* to_string(Path path);

/// Registered memory. Its key ends with it: what a peer writes by the key afterwards is refused by the NIC.
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

/// Registers host memory. Throws std::system_error that says what to do (the limit of locked memory). `known_as`: the
/// address by which this side's requests and peers name it, at the same place in its page; 0: its own.
Registration register_host(ibv_pd* domain, void* memory, std::size_t bytes, Access access, std::uint64_t known_as = 0);

/// What there is on this machine to give a GPU's memory to the NIC with.
struct GpuMemoryPaths {
  const CudaDriver* driver = nullptr;  ///< nullptr: none
  bool peermem_loaded = false;
};
GpuMemoryPaths gpu_memory_paths();

/// True if the kernel module is loaded that lets ibv_reg_mr take device addresses; `sys` is where sysfs is mounted.
bool peermem_is_loaded(const std::string& sys = "/sys");

/// A GPU's memory as a dma-buf of whole pages.
struct DmaBuf {
  int descriptor = -1;       ///< to be closed; -1: there is none
  std::uint64_t offset = 0;  ///< where the memory begins in it
};
/// Exports it. Where that does not work `reason` says why.
DmaBuf export_dmabuf(std::uint64_t address, std::size_t bytes, const CudaDriver* driver, std::string& reason);

/// Registers a GPU's memory: by dma-buf, else through nvidia_peermem. An empty one where neither works; `reason` then
/// says why each did not, and rings must lie in host memory. Also sets `reason` where dma-buf did not work and peermem
/// did. `known_as`: as register_host().
Registration register_gpu(ibv_pd* domain, std::uint64_t address, std::size_t bytes, Access access,
                          const GpuMemoryPaths& paths, std::string& reason, std::uint64_t known_as = 0);

}  // namespace gpusock::rdma
