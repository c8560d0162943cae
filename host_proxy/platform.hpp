#pragma once
/// @file What the proxy needs of a device: memory that device and host both reach.

#include <cstddef>

namespace gpusock::proxy {

/// A device's shared memory. Addresses are the same on both sides.
class Platform {
 public:
  virtual ~Platform() = default;

  /// Zeroed host memory that the device reaches, aligned to a page. Throws Error (ENOMEM).
  virtual void* allocate_shared(std::size_t bytes) = 0;
  virtual void free_shared(void* memory, std::size_t bytes) noexcept = 0;

  /// Makes mapped host memory reachable by the device. Throws Error.
  virtual void attach(void* memory, std::size_t bytes) = 0;
  virtual void detach(void* memory, std::size_t bytes) noexcept = 0;

  /// May attach() be called while kernels run. Where it may not, ring memory is set up with the context, and memory of
  /// other processes cannot be used.
  virtual bool attaches_any_time() const = 0;

  /// Can the device's callers wake a sleeping proxy. Where they cannot, the proxy has to look by itself.
  virtual bool callers_can_wake() const = 0;
};

/// Ordinary memory of this process: the platform of the CPU device.
class HostPlatform final : public Platform {
 public:
  void* allocate_shared(std::size_t bytes) override;
  void free_shared(void* memory, std::size_t bytes) noexcept override;
  void attach(void*, std::size_t) override {}
  void detach(void*, std::size_t) noexcept override {}
  bool attaches_any_time() const override { return true; }
  bool callers_can_wake() const override { return true; }
};

}  // namespace gpusock::proxy
