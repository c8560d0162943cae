#pragma once
/// @file What the proxy needs of a device: memory that device and host both reach, and ring memory of the device's own.

#include "plain_types/error.hpp"
#include "host_proxy/base/descriptor.hpp"
#include "host_proxy/memory/copier.hpp"
#include "host_proxy/memory/device_arena.hpp"
#include "host_proxy/memory/device_window.hpp"

#include <cerrno>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace gpusock::proxy {

/// A device's shared memory, whose addresses are the same on the device and the host; and the device's own memory for
/// rings, which the proxy reaches only through a copier.
class Platform {
 public:
  virtual ~Platform() = default;

  /// Zeroed host memory that the device reaches, aligned to a page. Throws Error (ENOMEM).
  virtual void* allocate_shared(std::size_t bytes) = 0;
  virtual void free_shared(void* memory, std::size_t bytes) noexcept = 0;

  /// Makes mapped host memory reachable by the device. Throws Error.
  virtual void attach(void* memory, std::size_t bytes) = 0;
  virtual void detach(void* memory, std::size_t bytes) noexcept = 0;

  /// True if attach() may be called while kernels run. Otherwise all ring memory is set up with the context, and memory
  /// that other processes make later cannot be used.
  virtual bool attaches_any_time() const = 0;

  /// True if the device's callers can wake a sleeping proxy. Else the proxy has to look at intervals.
  virtual bool callers_can_wake() const = 0;

  /// True if device memory is ordinary memory: a segment's file can hold it, any process can map it, and host threads'
  /// calls may use it. Else it comes from allocate_device().
  virtual bool device_memory_is_mappable() const = 0;
  /// Ring memory on the device, aligned to 256 bytes. Throws Error (ENOMEM).
  virtual std::byte* allocate_device(std::size_t bytes) = 0;
  virtual void free_device(std::byte* memory) noexcept = 0;
  /// Zeroes device memory before kernels use it; may wait for kernels. Throws Error.
  virtual void zero_device(std::byte* memory, std::size_t bytes) = 0;
  /// The address by which the proxy knows device memory. It is only for the copier, and for requests to a NIC that was
  /// given the memory under this address.
  virtual std::byte* proxy_address(std::byte* device_memory) const = 0;
  /// Device memory for words that the host stores and kernels poll. May wait for kernels. Throws Error: (ENOTSUP) the
  /// host does not reach this device's memory, or the device does not keep the order of what comes over the bus; the
  /// message says which; (ENOMEM).
  virtual std::unique_ptr<DeviceWindow> make_window(std::size_t /*bytes*/) {
    throw Error::with_cause(ENOTSUP, "the host cannot store into this device's memory");
  }
  /// True if kernels of this platform can use device memory of the other one.
  virtual bool reaches_device_memory_of(const Platform& other) const = 0;
  /// True if both belong to one device. Rings between two devices lie in the memory of both.
  virtual bool is_same_device_as(const Platform& other) const { return this == &other; }
  /// Why the two do not reach each other's device memory, if they do not.
  virtual std::string why_apart_from(const Platform& /*other*/) const { return "it is another device's"; }
  virtual std::unique_ptr<Copier> make_copier() = 0;

  /// The device's name, which is the same in all processes of this host; empty if its memory is not shared.
  virtual std::string name_on_host() const { return {}; }
  /// Device memory that another process can map; its contents are undefined. May wait for kernels. Throws Error:
  /// (ENOTSUP) this device has none, (ENOMEM).
  virtual std::unique_ptr<DeviceArena> make_arena(std::size_t /*bytes*/) {
    throw Error::with_cause(ENOTSUP, "this device's memory cannot be shared with other processes");
  }
  /// Maps an arena of `bytes` bytes that another process has made on the device whose name_on_host() is `device`. May
  /// wait for kernels. Throws Error: (EPROTO) it is something else, (ENOTSUP) kernels of this device cannot use the
  /// other device's memory, (ENOMEM).
  virtual std::unique_ptr<DeviceArena> map_arena(Descriptor /*descriptor*/, std::size_t /*bytes*/,
                                                 const std::string& /*device*/) {
    throw Error::with_cause(ENOTSUP, "this device's memory cannot be shared with other processes");
  }
  /// Calls `action`, which may wait for kernels, if no kernel runs for which it may wait. No kernel can start
  /// meanwhile. Returns false if it did not call `action`. It knows only the kernels that gpusock::launch() started.
  /// Throws what `action` throws. Any thread may call it.
  virtual bool while_quiet(const std::function<void()>& /*action*/) { return false; }

  /// True if kernels see what a NIC has written into device memory once flush_nic_writes() has returned.
  virtual bool shows_nic_writes() const { return false; }
  /// Call it when a NIC has written into device memory and the proxy has seen the position after those bytes. Makes the
  /// bytes visible to kernels, and may wait for that. Returns 0 or a negated errno.
  virtual int flush_nic_writes() { return shows_nic_writes() ? 0 : -ENOSYS; }

  /// True if kernels see what a NIC has written into device memory in the order of its writes, without a flush: a
  /// kernel that sees a word there sees the bytes that the NIC wrote before it.
  virtual bool orders_nic_writes() const { return false; }

  /// The processors that are near the device; empty if none is nearer than another, or if that is not known.
  virtual std::vector<int> near_processors() const { return {}; }
};

}  // namespace gpusock::proxy
