#pragma once
/// @file Registered memory of the fabrics that tests have in memory: what a key is good for.

#include "host_proxy/links/fabric/port.hpp"

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>

namespace gpusock::proxy::fabric {

struct FabricRegion {
  std::uint64_t port = 0;  ///< the one endpoint at which the key is good
  std::span<std::byte> memory;
  bool writable = false;  ///< by peers
};

/// By key.
struct FabricRegions : std::map<std::uint64_t, FabricRegion> {
  /// Where a write to this endpoint lands; nullptr where the key is not good for it.
  std::byte* target(std::uint64_t port, std::uint64_t key, std::uint64_t address, std::size_t bytes) const {
    const auto found = find(key);
    if (found == end()) return nullptr;
    const auto& [owner, memory, writable] = found->second;
    const bool good = owner == port && writable && address <= memory.size() && bytes <= memory.size() - address;
    return good ? memory.data() + address : nullptr;
  }
};

class RegisteredRegion final : public FabricRegistration {
 public:
  RegisteredRegion(FabricRegions& regions, std::uint64_t key, const FabricRegion& region)
      : regions_(regions), memory_(region.memory), key_(key) {
    regions_[key_] = region;
  }
  ~RegisteredRegion() override { regions_.erase(key_); }
  std::uint64_t address() const override { return 0; }
  std::uint64_t key() const override { return key_; }
  void* descriptor() const override { return memory_.data(); }

  /// Does all of what is written from lie in it.
  bool holds(const void* from, std::size_t bytes) const {
    const auto* first = static_cast<const std::byte*>(from);
    return first >= memory_.data() && first + bytes <= memory_.data() + memory_.size();
  }

 private:
  FabricRegions& regions_;
  std::span<std::byte> memory_;
  std::uint64_t key_;
};

}  // namespace gpusock::proxy::fabric
