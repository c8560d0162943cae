#pragma once
/// @file The operating system's TCP, and sleeping until it has an event or the doorbell rings.

#include "host_proxy/base/descriptor.hpp"
#include "host_proxy/net/network.hpp"

namespace gpusock::proxy {

class PosixNetwork final : public Network {
 public:
  PosixNetwork();  ///< throws Error (EMFILE)

  std::unique_ptr<Acceptor> listen(const Endpoint& at, int backlog, int& error) override;
  std::unique_ptr<ByteStream> connect(const Endpoint& to, int& error) override;
  void poll() override;

  /// Also wakes sleep() while `descriptor` is readable, and tells `sink` at each poll, until unwatch().
  void watch(int descriptor, ReadySink& sink);
  void unwatch(int descriptor);

  /// Sleeps until the network has something, ring() was called, or `timeout_ns` has passed.
  void sleep(std::uint64_t timeout_ns);

  /// As sleep(), but the network does not wake it.
  void sleep_until_rung(std::uint64_t timeout_ns);

  /// Wakes the sleeper, or keeps the next one from sleeping. Any thread.
  void ring() noexcept;

 private:
  void wait_for(int descriptor, std::uint64_t timeout_ns);

  Descriptor epoll_;
  Descriptor bell_;
};

}  // namespace gpusock::proxy
