#pragma once
// A fabric inside the test: writes happen in any order, and each of its choices is a seed's.
#include "host_proxy/links/fabric/port.hpp"
#include "tests/support/fabric_regions.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <deque>
#include <map>
#include <new>
#include <random>
#include <vector>

namespace gpusock::proxy::fabric {

class MemoryPort;

struct MemoryFabric {
  explicit MemoryFabric(std::uint64_t seed) : random(seed) {}

  struct Pending {
    MemoryPort* from;
    FabricWrite write;
  };

  std::uint64_t below(std::uint64_t limit) { return random() % limit; }
  void step();

  std::mt19937_64 random;
  std::map<std::uint64_t, MemoryPort*> ports;  // by id
  FabricRegions regions;
  std::vector<Pending> pending;
  std::uint64_t next_id = 1;
  bool has_memory = true;      ///< for addresses
  bool tells_nothing = false;  ///< writes are complete at once, and land nowhere
};

class MemoryPort final : public FabricPort {
 public:
  explicit MemoryPort(MemoryFabric& fabric) : fabric_(fabric), id_(fabric.next_id++) {
    std::memcpy(address_.data(), &id_, sizeof id_);
    fabric_.ports[id_] = this;
  }
  ~MemoryPort() override { fabric_.ports.erase(id_); }

  void close() override {
    std::erase_if(fabric_.pending, [this](const auto& entry) { return entry.from == this; });
  }
  std::span<const std::byte> address() const override { return address_; }
  int add_peer(std::span<const std::byte> address, std::uint64_t& peer) override {
    if (!fabric_.has_memory) return -ENOMEM;
    if (address.size() != sizeof peer) return -EINVAL;
    std::memcpy(&peer, address.data(), sizeof peer);
    return 0;
  }
  bool registers_sources() const override { return true; }

  std::unique_ptr<FabricRegistration> register_memory(std::span<std::byte> memory, FabricAccess access, int&) override {
    return std::make_unique<RegisteredRegion>(fabric_.regions, fabric_.next_id++,
                                              FabricRegion{id_, memory, access == FabricAccess::remote_target});
  }

  int write(const FabricWrite& write) override {
    const auto* source = dynamic_cast<const RegisteredRegion*>(write.source);
    if (source == nullptr || !source->holds(write.from, write.bytes)) return -EFAULT;  // FI_MR_LOCAL, taken at its word
    if (fabric_.below(4) == 0) return -EAGAIN;
    fabric_.pending.push_back({this, write});
    return 0;
  }
  bool read(std::vector<Completion>& into) override {
    if (read_fails) throw std::bad_alloc();
    const bool any = !completions.empty();
    std::shuffle(completions.begin(), completions.end(), fabric_.random);
    const std::size_t now = fabric_.below(completions.size() + 1);
    into.insert(into.end(), completions.begin(), completions.begin() + static_cast<std::ptrdiff_t>(now));
    completions.erase(completions.begin(), completions.begin() + static_cast<std::ptrdiff_t>(now));
    return any;
  }

  std::uint64_t id() const { return id_; }
  void tell_arrived(std::uint64_t data) {
    completions.push_back({Completion::Kind::arrived, Completion::kNoToken, data | fabric_.random() << 32, 0, {}});
  }

  std::vector<Completion> completions;
  bool read_fails = false;  ///< for want of memory

 private:
  MemoryFabric& fabric_;
  std::uint64_t id_;
  std::array<std::byte, sizeof(std::uint64_t)> address_{};
};

/// Does one of the writes that are going on.
inline void MemoryFabric::step() {
  if (pending.empty()) return;
  const std::size_t index = below(pending.size());
  const Pending taken = pending[index];
  pending.erase(pending.begin() + static_cast<std::ptrdiff_t>(index));
  const FabricWrite& write = taken.write;
  if (tells_nothing) {
    taken.from->completions.push_back({Completion::Kind::written, write.token, 0, 0, {}});
    return;
  }
  const auto port = ports.find(write.peer);
  std::byte* const target = regions.target(write.peer, write.key, write.address, write.bytes);
  if (target == nullptr || port == ports.end()) {
    taken.from->completions.push_back({Completion::Kind::failed, write.token, 0, EACCES, "no such memory"});
    return;
  }
  std::memcpy(target, write.from, write.bytes);
  port->second->tell_arrived(write.data);
  taken.from->completions.push_back({Completion::Kind::written, write.token, 0, 0, {}});
}

}  // namespace gpusock::proxy::fabric
