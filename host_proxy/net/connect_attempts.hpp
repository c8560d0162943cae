#pragma once
/// @file Connects to an endpoint of several addresses: tries them in order until one accepts the connection.

#include "host_proxy/net/network.hpp"

#include <memory>

namespace gpusock::proxy {

/// Tries the addresses of one endpoint, and keeps their errors. If an address fails, goes on with the next one. Stops
/// if this host lacks descriptors or memory, because no other address would help then.
class ConnectAttempts {
 public:
  explicit ConnectAttempts(const Endpoint& to) : to_(to) {}

  /// Begins to connect to the next address; nullptr if none is left: see error(). The stream may still fail: then call
  /// note_failure() before the next call.
  std::unique_ptr<ByteStream> start_next(Network& network);

  /// True if there are addresses that were not tried.
  bool has_more() const { return next_ < to_.addresses(); }

  /// Call this when an address did not accept the connection. `error` is an errno.
  void note_failure(int error);

  /// The endpoint with only the address that was tried last.
  const Endpoint& current() const { return current_; }

  /// Why no address accepted the connection, as an errno: the error that says most. A lack of descriptors or memory
  /// comes first, then ECONNREFUSED, which says that the host is there. An error on the way there (EHOSTUNREACH,
  /// ENETUNREACH, EADDRNOTAVAIL, EAFNOSUPPORT) says the least. Among equal ones the last error counts.
  int error() const { return error_; }

 private:
  Endpoint to_;
  Endpoint current_;
  int next_ = 0;
  int error_ = 0;
};

}  // namespace gpusock::proxy
