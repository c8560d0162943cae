#include "rdma/registration.hpp"

#include "rdma/error.hpp"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace gpusock::rdma {
namespace {

/// CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD of the driver's ABI.
constexpr int kDmaBufFd = 1;

std::string text_of(int error) { return std::strerror(error); }

/// The whole pages around a range: dma-bufs are exported by pages.
struct Pages {
  std::uint64_t first;
  std::size_t bytes;
};
Pages pages_around(std::uint64_t address, std::size_t bytes) {
  const auto page = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  const std::uint64_t first = address & ~(page - 1);
  return {first, (address + bytes - first + page - 1) & ~(page - 1)};
}

/// Registers memory that requests name by its own address (`known_as` is 0), or by the address `known_as`.
ibv_mr* register_addresses(ibv_pd* domain, void* memory, std::size_t bytes, Access access, std::uint64_t known_as) {
  if (known_as == 0) return ibv_reg_mr(domain, memory, bytes, access_flags(access));
  return ibv_reg_mr_iova(domain, memory, bytes, known_as, access_flags(access));
}

Registration by_dmabuf(ibv_pd* domain, std::uint64_t address, std::size_t bytes, Access access,
                       const CudaDriver* driver, std::string& reason, std::uint64_t known_as) {
  const DmaBuf memory = export_dmabuf(address, bytes, driver, reason);
  if (memory.descriptor < 0) return {};
  ibv_mr* region = ibv_reg_dmabuf_mr(domain, memory.offset, bytes, known_as != 0 ? known_as : address,
                                     memory.descriptor, static_cast<int>(access_flags(access)));
  const int error = errno;
  ::close(memory.descriptor);  // the registration holds the memory
  if (region == nullptr) reason = "dma-buf: ibv_reg_dmabuf_mr: " + text_of(error);
  return region == nullptr ? Registration() : Registration(region, Path::dmabuf);
}

Registration by_peermem(ibv_pd* domain, std::uint64_t address, std::size_t bytes, Access access, bool loaded,
                        std::string& reason, std::uint64_t known_as) {
  if (!loaded) {
    reason += "; peermem: the module nvidia_peermem is not loaded (modprobe nvidia_peermem)";
    return {};
  }
  ibv_mr* region = register_addresses(domain, reinterpret_cast<void*>(address), bytes, access, known_as);
  if (region == nullptr) reason += "; peermem: ibv_reg_mr: " + text_of(errno);
  return region == nullptr ? Registration() : Registration(region, Path::peermem);
}

}  // namespace

DmaBuf export_dmabuf(std::uint64_t address, std::size_t bytes, const CudaDriver* driver, std::string& reason) {
  if (driver == nullptr || driver->get_handle_for_address_range == nullptr) {
    reason = driver == nullptr ? "dma-buf: there is no CUDA driver" : "dma-buf: the CUDA driver is older than 11.7";
    return {};
  }
  const Pages pages = pages_around(address, bytes);
  int descriptor = -1;
  if (const int error = driver->get_handle_for_address_range(&descriptor, pages.first, pages.bytes, kDmaBufFd, 0);
      error != 0) {
    reason = "dma-buf: cuMemGetHandleForAddressRange gave " + driver->name_of(error) +
             " (it takes the open kernel modules of the driver, and Linux 5.12)";
    return {};
  }
  return {descriptor, address - pages.first};
}

unsigned access_flags(Access access) {
  return access == Access::read_by_nic ? IBV_ACCESS_RELAXED_ORDERING : IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
}

const char* to_string(Path path) {
  return path == Path::host ? "host memory" : path == Path::dmabuf ? "dma-buf" : "nvidia_peermem";
}

Registration& Registration::operator=(Registration&& other) noexcept {
  if (this != &other) {
    revoke();
    region_ = std::exchange(other.region_, nullptr);
    path_ = other.path_;
  }
  return *this;
}

void Registration::revoke() noexcept {
  if (region_ != nullptr) ibv_dereg_mr(region_);
  region_ = nullptr;
}

Registration register_host(ibv_pd* domain, void* memory, std::size_t bytes, Access access, std::uint64_t known_as) {
  ibv_mr* region = register_addresses(domain, memory, bytes, access, known_as);
  if (region != nullptr) return {region, Path::host};
  const int error = errno;
  const bool limit = error == ENOMEM || error == EPERM;
  fail(error, "registering " + std::to_string(bytes) + " bytes of a connection's rings with the RDMA device" +
                  (limit ? "; raise the limit of locked memory (ulimit -l, LimitMEMLOCK=infinity)" : ""));
}

bool peermem_is_loaded(const std::string& sys) {
  return access((sys + "/module/nvidia_peermem").c_str(), F_OK) == 0 ||
         access((sys + "/module/nv_peer_mem").c_str(), F_OK) == 0;
}

GpuMemoryPaths gpu_memory_paths() { return {cuda_driver(), peermem_is_loaded()}; }

Registration register_gpu(ibv_pd* domain, std::uint64_t address, std::size_t bytes, Access access,
                          const GpuMemoryPaths& paths, std::string& reason, std::uint64_t known_as) {
  Registration region = by_dmabuf(domain, address, bytes, access, paths.driver, reason, known_as);
  return region ? std::move(region)
                : by_peermem(domain, address, bytes, access, paths.peermem_loaded, reason, known_as);
}

}  // namespace gpusock::rdma
