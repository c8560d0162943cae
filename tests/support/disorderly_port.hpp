#pragma once
// A fabric at its worst: starts writes and hands out completions late and in any order, and carries 4 bytes of
// completion data with rubbish around them. One seed is one sequence of choices.
#include "host_proxy/links/fabric/port.hpp"

#include <cstdint>
#include <memory>
#include <random>

namespace gpusock::testing_support {

class DisorderlyPort final : public proxy::fabric::FabricPort {
 public:
  DisorderlyPort(std::unique_ptr<FabricPort> port, std::uint64_t seed) : port_(std::move(port)), random_(seed) {}

  bool closes_only_idle() const override { return port_->closes_only_idle(); }
  void close() override;
  std::span<const std::byte> address() const override { return port_->address(); }
  int add_peer(std::span<const std::byte> address, std::uint64_t& peer) override {
    return port_->add_peer(address, peer);
  }
  bool registers_sources() const override { return port_->registers_sources(); }
  std::unique_ptr<proxy::fabric::FabricRegistration> register_memory(std::span<std::byte> memory,
                                                                     proxy::fabric::FabricAccess access,
                                                                     int& error) override {
    return port_->register_memory(memory, access, error);
  }
  int write(const proxy::fabric::FabricWrite& write) override;
  bool read(std::vector<proxy::fabric::Completion>& into) override;
  int descriptor() const override { return port_->descriptor(); }
  bool may_sleep() override { return writes_.empty() && held_.empty() && port_->may_sleep(); }

 private:
  std::uint64_t choose(std::uint64_t below) { return random_() % below; }
  void start_some(std::vector<proxy::fabric::Completion>& into);

  std::unique_ptr<FabricPort> port_;
  std::mt19937_64 random_;
  std::vector<proxy::fabric::FabricWrite> writes_;
  std::vector<proxy::fabric::Completion> held_;
};

}  // namespace gpusock::testing_support
