#pragma once
/// @file Connecting to an endpoint of several addresses: in their order, until one takes the connection.

#include "host_proxy/net/network.hpp"

#include <memory>

namespace gpusock::proxy {

/// The addresses of one endpoint, and what became of those that were tried. It moves on from an address to which no
/// connection is made. It stops if this host lacks descriptors or memory: no other address would help then.
class ConnectAttempts {
 public:
  explicit ConnectAttempts(const Endpoint& to) : to_(to) {}

  /// Begins to connect to the next address; nullptr if none is left (error()). The stream may still fail: then call
  /// note_failure() before the next call.
  std::unique_ptr<ByteStream> start_next(Network& network);

  /// True if there are addresses that were not tried.
  bool has_more() const { return next_ < to_.addresses(); }

  /// An address did not take the connection: an errno.
  void note_failure(int error);

  /// The endpoint with the address tried last alone.
  const Endpoint& current() const { return current_; }

  /// Why no address took the connection, as an errno: the most telling of the errors. A lack of descriptors or memory
  /// comes first, then ECONNREFUSED, which says that the host is there. An error of the way there (EHOSTUNREACH,
  /// ENETUNREACH, EADDRNOTAVAIL, EAFNOSUPPORT) says the least. Of equals, the last one.
  int error() const { return error_; }

 private:
  Endpoint to_;
  Endpoint current_;
  int next_ = 0;
  int error_ = 0;
};

}  // namespace gpusock::proxy
