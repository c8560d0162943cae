#pragma once
/// @file The operating system's TCP, and a sleep that lasts until there is an event or the doorbell rings.

#include "host_proxy/base/descriptor.hpp"
#include "host_proxy/net/network.hpp"

namespace gpusock::proxy {

class PosixNetwork final : public Network {
 public:
  PosixNetwork();  ///< throws Error (EMFILE)

  std::unique_ptr<Acceptor> listen(const Endpoint& at, int backlog, int& error) override;
  std::unique_ptr<ByteStream> connect(const Endpoint& to, int& error) override;
  void poll() override;

  /// Until unwatch(), a readable `descriptor` ends each sleep(), and each poll() then notifies `sink`.
  void watch(int descriptor, ReadySink& sink);
  void unwatch(int descriptor);

  /// Sleeps until the network has an event, ring() was called, or `timeout_ns` has passed.
  void sleep(std::uint64_t timeout_ns);

  /// Like sleep(), but the network does not end the sleep. True if ring() did.
  bool sleep_until_rung(std::uint64_t timeout_ns);

  /// Ends the sleep, or the next one as soon as it begins. Any thread may call.
  void ring() noexcept;

 private:
  bool wait_for(int descriptor, std::uint64_t timeout_ns);

  Descriptor epoll_;
  Descriptor bell_;
};

}  // namespace gpusock::proxy
