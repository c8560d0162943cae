#pragma once
// A CUDA driver that records, and a GPU whose memory is this process's: kept from the proxy, as the CPU device's is.
#include "gpusock/cpu/host_platform.hpp"
#include "gpusock/cpu/memory_copier.hpp"
#include "host_proxy/memory/platform.hpp"
#include "rdma/cuda_driver.hpp"
#include "rdma/visibility.hpp"
#include "tests/unit/rdma/fake_verbs.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace gpusock::fake {

struct FakeCuda {
  static inline std::vector<std::string> calls;
  static inline int result = 0;
  static inline int ordering = 0;
  static inline int options = 0;
  static inline int host_page_tables = 0;
  static inline int exported = -1;
  static inline std::function<void()> on_flush;

  static rdma::CudaDriver driver() {
    calls.clear();
    result = ordering = options = host_page_tables = 0;
    exported = -1;
    on_flush = nullptr;
    rdma::CudaDriver driver;
    driver.get_handle_for_address_range = [](void* handle, std::uint64_t address, std::size_t bytes, int type,
                                             unsigned long long flags) {
      calls.push_back("export " + std::to_string(address) + " " + std::to_string(bytes) + " " + std::to_string(type) +
                      " " + std::to_string(flags));
      exported = open("/dev/null", O_RDONLY | O_CLOEXEC);
      nic().exported[exported] = reinterpret_cast<std::byte*>(address);
      *static_cast<int*>(handle) = exported;
      if (result != 0) ::close(exported);
      return result;
    };
    driver.device_get_attribute = [](int* value, int attribute, int) {
      *value = attribute == rdma::kWritesOrdering       ? ordering
               : attribute == rdma::kFlushWritesOptions ? options
               : attribute == rdma::kUsesHostPageTables ? host_page_tables
                                                        : 0;
      return result;
    };
    driver.flush_gpudirect_rdma_writes = [](int target, int scope) {
      calls.push_back("flush " + std::to_string(target) + " " + std::to_string(scope));
      if (on_flush) on_flush();
      return result;
    };
    driver.get_error_name = [](int, const char** name) {
      *name = "CUDA_ERROR_NOT_SUPPORTED";
      return 0;
    };
    return driver;
  }
};

/// As device_cuda.cpp's platform, asked of that driver.
class GpuPlatform final : public proxy::Platform {
 public:
  explicit GpuPlatform(const rdma::CudaDriver& driver) : driver_(driver) {}

  void* allocate_shared(std::size_t bytes) override { return host_.allocate_shared(bytes); }
  void free_shared(void* memory, std::size_t bytes) noexcept override { host_.free_shared(memory, bytes); }
  void attach(void*, std::size_t) override {}
  void detach(void*, std::size_t) noexcept override {}
  bool attaches_any_time() const override { return true; }
  bool callers_can_wake() const override { return false; }
  bool device_memory_is_mappable() const override { return false; }
  std::byte* allocate_device(std::size_t bytes) override { return host_.allocate_device(bytes); }
  void free_device(std::byte* memory) noexcept override {
    nic().calls.push_back("free_device");
    host_.free_device(memory);
  }
  void zero_device(std::byte* memory, std::size_t bytes) override { host_.zero_device(memory, bytes); }
  std::byte* proxy_address(std::byte* device_memory) const override { return proxy::hide(device_memory); }
  bool reaches_device_memory_of(const Platform& other) const override { return this == &other; }
  std::unique_ptr<proxy::Copier> make_copier() override { return host_.make_copier(); }
  bool shows_nic_writes() const override {
    return rdma::visibility_of_nic_writes(&driver_, 0) != rdma::NicWrites::unsure;
  }
  bool orders_nic_writes() const override {
    return rdma::visibility_of_nic_writes(&driver_, 0) == rdma::NicWrites::in_order;
  }
  int flush_nic_writes() override {
    return rdma::visibility_of_nic_writes(&driver_, 0) == rdma::NicWrites::in_order
               ? 0
               : rdma::flush_writes_to_gpu(driver_);
  }

 private:
  proxy::HostPlatform host_;
  rdma::CudaDriver driver_;
};

}  // namespace gpusock::fake
