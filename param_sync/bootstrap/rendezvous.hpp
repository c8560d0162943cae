#pragma once
/// @file Bootstrap for ranks that know only where rank 0 is: each tells it its own address and gets all addresses.

#include "param_sync/bootstrap/bootstrap.hpp"

#include <atomic>
#include <string>

namespace param_sync::bootstrap {

struct Greeting;

/// Uses sockets of host threads. GPUSOCK_SECRET authenticates the ranks; without it they can meet on loopback only.
class Rendezvous : public Bootstrap {
 public:
  /// `at` is the HOST:PORT at which rank 0 waits for the others.
  Rendezvous(std::string at, int rank, int size, std::uint64_t timeout_ns);

  /// Waits for others as rank 0 from now on, though it is not known yet how many come: host() says that. Port 0 picks a
  /// port. Throws gpusock::Error if it cannot listen.
  explicit Rendezvous(const gpusock::Endpoint& at);
  /// Where it waits for others.
  const gpusock::Endpoint& where() const { return local_; }
  /// From here on it is rank 0 of `size` ranks, and exchange_addresses() may take so long.
  void host(int size, std::uint64_t timeout_ns);

  gpusock::Endpoint where_to_listen() override;
  std::vector<gpusock::Endpoint> exchange_addresses(const gpusock::Endpoint& mine) override;
  void interrupt() noexcept override;

 private:
  struct Guest {
    gpusock::Socket socket = -1;
    gpusock::Endpoint listens;
  };

  gpusock::Endpoint look_up() const;
  void open();
  void reach();
  void receive_guests(std::vector<Guest>& guests);
  bool has_left(gpusock::Socket guest, gpusock::Deadline by) const;
  bool take_guest(gpusock::Socket socket, const Greeting& greeting, std::vector<Guest>& guests);
  std::vector<gpusock::Endpoint> introduce_guests(const gpusock::Endpoint& mine);
  std::vector<gpusock::Endpoint> be_introduced(const gpusock::Endpoint& mine);
  [[noreturn]] void fail(std::int64_t error, const std::string& what) const;
  [[noreturn]] void fail_to_open(const std::string& what, bool listening, const gpusock::Endpoint& at) const;

  std::string at_;
  gpusock::Context context_;
  gpusock::Net net_;
  gpusock::Deadline deadline_;
  gpusock::Socket socket_ = -1;  ///< rank 0: the listener; other ranks: the connection to rank 0
  gpusock::Endpoint local_;      ///< the address by which the other ranks reach this host
  std::atomic<bool> interrupted_{false};
};

}  // namespace param_sync::bootstrap
