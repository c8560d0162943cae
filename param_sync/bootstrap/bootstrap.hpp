#pragma once
/// @file The ways in which ranks that a launcher has started learn each other's addresses.

#include "param_sync/bootstrap/launch.hpp"

#include "gpusock/gpusock.hpp"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace param_sync::bootstrap {

/// Thrown if a rank cannot listen at the address where ranks meet, or cannot connect to it.
class MeetingFailure : public gpusock::Error {
 public:
  /// The text `what` tells a user what was tried, and where. `at` is that address.
  MeetingFailure(int error, const std::string& what, bool listening, const gpusock::Endpoint& at)
      : Error(error, what), tried(what), is_listening(listening), address(at) {}

  std::string tried;          ///< what was tried, and where
  bool is_listening;          ///< true: this rank could not listen there; false: it could not connect
  gpusock::Endpoint address;  ///< the address
};

/// One way of bootstrap. The timeout of make_bootstrap() limits how long calls wait. Calls throw gpusock::Error:
/// ETIMEDOUT if not all ranks came, EINVAL if a launcher's variable is invalid, EACCES if a secret is missing, EPROTO
/// if ranks contradict each other, ECANCELED after interrupt(); also MeetingFailure and the errors of sockets.
class Bootstrap {
 public:
  virtual ~Bootstrap() = default;

  /// The rank of this process.
  int rank() const { return rank_; }
  /// Number of ranks.
  int size() const { return size_; }

  /// Returns where this rank is to listen. May wait for another rank.
  virtual gpusock::Endpoint where_to_listen() = 0;

  /// Publishes that this rank listens at `mine`, and returns the addresses of all ranks, by rank.
  virtual std::vector<gpusock::Endpoint> exchange_addresses(const gpusock::Endpoint& mine) = 0;

  /// Ends a call that waits. Any thread may call it.
  virtual void interrupt() noexcept {}

 protected:
  int rank_ = 0;  ///< what rank() returns
  int size_ = 1;  ///< what size() returns
};

/// Makes the bootstrap that `launch` names. Throws gpusock::Error.
std::unique_ptr<Bootstrap> make_bootstrap(const Launch& launch, std::uint64_t timeout_ns);

}  // namespace param_sync::bootstrap
