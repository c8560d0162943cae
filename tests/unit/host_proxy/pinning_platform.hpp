#pragma once
#include "cpu_device/device_memory.hpp"
#include "gpusock/cpu/host_platform.hpp"
#include "gpusock/error.hpp"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace gpusock::proxy {

/// A device that is given ring memory before its kernels run, and none later; as a GPU.
class PinningPlatform : public Platform {
 public:
  void* allocate_shared(std::size_t bytes) override { return host_.allocate_shared(bytes); }
  void free_shared(void* memory, std::size_t bytes) noexcept override { host_.free_shared(memory, bytes); }
  void attach(void*, std::size_t) override {
    if (refuses) throw Error(ENOMEM, "pinning rings");
    ++attached;
    ++attachments;
  }
  void detach(void*, std::size_t) noexcept override { --attached; }
  bool attaches_any_time() const override { return false; }
  bool callers_can_wake() const override { return false; }
  bool device_memory_is_mappable() const override { return !is_gpu; }
  std::byte* allocate_device(std::size_t bytes) override {
    constexpr std::size_t kSmall = 1024;  // words, not rings
    if (bytes <= kSmall) return host_.allocate_device(bytes);
    if (device_pieces_left == 0) throw Error(ENOMEM, "device memory for rings");
    --device_pieces_left;
    return host_.allocate_device(bytes);
  }
  void free_device(std::byte* memory) noexcept override { host_.free_device(memory); }
  void zero_device(std::byte* memory, std::size_t bytes) override { host_.zero_device(memory, bytes); }
  std::byte* proxy_address(std::byte* device_memory) const override { return host_.proxy_address(device_memory); }
  bool reaches_device_memory_of(const Platform& other) const override {
    if (!is_gpu) return host_.reaches_device_memory_of(other);
    return &other == this || std::find(peers.begin(), peers.end(), &other) != peers.end();
  }
  std::unique_ptr<Copier> make_copier() override { return host_.make_copier(); }

  std::string name_on_host() const override { return shares ? "GPU " + std::to_string(number) : std::string(); }
  std::unique_ptr<DeviceArena> make_arena(std::size_t bytes) override {
    if (!shares) return Platform::make_arena(bytes);
    Descriptor file(cpu_device::make_device_memory_file(bytes, number));
    const int of = file.get();
    return std::make_unique<Arena>(*this, of, bytes, std::move(file));
  }
  std::unique_ptr<DeviceArena> map_arena(Descriptor file, std::size_t bytes, const std::string& device) override {
    const auto owner = cpu_device::gpu_of_device_memory(file.get(), bytes);
    if (!owner || device != "GPU " + std::to_string(*owner)) throw Error::with_cause(EPROTO, "it is no such arena");
    if (*owner != number && !reaches_others) throw Error::with_cause(ENOTSUP, "it is out of reach");
    return std::make_unique<Arena>(*this, file.get(), bytes, Descriptor());
  }
  bool while_quiet(const std::function<void()>& action) override {
    if (kernels_run) return false;
    const int before = attached;
    action();
    attached_quietly += attached - before;
    return true;
  }

  std::atomic<int> attached = 0;  ///< pieces of memory that it was given
  int attachments = 0;            ///< how often it was given some
  bool shares = false;            ///< its memory with other processes
  bool reaches_others = true;     ///< other GPUs' arenas
  std::atomic<bool> kernels_run = false;
  std::atomic<int> attached_quietly = 0;  ///< of these, by while_quiet()
  int number = 0;                         ///< of the GPU that it is then
  bool refuses = false;
  bool is_gpu = false;                 ///< its memory is its kernels' alone
  std::vector<const Platform*> peers;  ///< other GPUs whose memory its kernels reach
  int device_pieces_left = 1'000;

 private:
  class Arena final : public DeviceArena {
   public:
    Arena(PinningPlatform& platform, int file, std::size_t bytes, Descriptor kept)
        : platform_(platform),
          memory_(static_cast<std::byte*>(cpu_device::map_device_memory(file, bytes))),
          file_(std::move(kept)) {
      ++platform_.attached;
    }
    ~Arena() override {
      --platform_.attached;
      cpu_device::free_device_memory(memory_);
    }
    std::byte* memory() const override { return memory_; }
    int descriptor() const override { return file_.get(); }

   private:
    PinningPlatform& platform_;
    std::byte* memory_;
    Descriptor file_;
  };

  HostPlatform host_;
};

}  // namespace gpusock::proxy
