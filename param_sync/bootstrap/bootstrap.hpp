#pragma once
/// @file How ranks that a launcher has started learn each other's addresses.

#include "param_sync/bootstrap/launch.hpp"

#include "gpusock/gpusock.hpp"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace param_sync::bootstrap {

/// The place where ranks meet could not be opened, or reached.
class MeetingFailure : public gpusock::Error {
 public:
  /// `what` was tried, and where, in the user's words; `at` is the same place.
  MeetingFailure(int error, const std::string& what, bool listening, const gpusock::Endpoint& at)
      : Error(error, what), tried(what), is_listening(listening), place(at) {}

  std::string tried;        ///< what was tried, and where
  bool is_listening;        ///< true: this rank could not listen there; false: it could not connect
  gpusock::Endpoint place;  ///< where
};

/// One way of bootstrap. Calls that wait give up at the deadline with which it was made. They throw gpusock::Error:
/// (ETIMEDOUT) not all ranks came, (EINVAL) a launcher's variable is invalid, (EACCES) a secret is missing, (EPROTO)
/// ranks contradict each other, (ECANCELED) after interrupt(), MeetingFailure, and the errors of sockets.
class Bootstrap {
 public:
  virtual ~Bootstrap() = default;

  /// The rank of this process.
  int rank() const { return rank_; }
  /// How many ranks there are.
  int size() const { return size_; }

  /// Where this rank is to listen. May wait for another rank.
  virtual gpusock::Endpoint where_to_listen() = 0;

  /// Publishes that this rank listens at `mine`, and returns the addresses of all ranks, by rank.
  virtual std::vector<gpusock::Endpoint> exchange_addresses(const gpusock::Endpoint& mine) = 0;

  /// Ends a call that waits. Any thread may call it.
  virtual void interrupt() noexcept {}

 protected:
  int rank_ = 0;  ///< what rank() returns
  int size_ = 1;  ///< what size() returns
};

/// The way that `launch` names. Throws gpusock::Error.
std::unique_ptr<Bootstrap> make_bootstrap(const Launch& launch, std::uint64_t timeout_ns);

}  // namespace param_sync::bootstrap
