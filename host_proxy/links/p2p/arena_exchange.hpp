#pragma once
/// @file How contexts of several processes give each other their arenas (arenas.hpp), over the Unix sockets by which
/// they share segments.

#include "host_proxy/memory/arenas.hpp"

#include <chrono>
#include <future>
#include <vector>

namespace gpusock::proxy {

/// Asks other processes for the descriptors of their arenas (Arenas::Fetch).
std::vector<Arenas::Fetched> fetch_descriptors(const std::vector<Arenas::Asked>& asked, std::chrono::nanoseconds wait);

/// Gives this descriptor to other processes (Arenas::Give).
std::vector<Arenas::Taken> give_descriptor(const std::vector<Arenas::Asked>& to, const Arenas::Id& giver,
                                           int descriptor, std::chrono::nanoseconds wait);

/// Maps the arenas that others give. Each one is mapped on a thread of its own, because that may wait for kernels, and
/// the proxy must not wait. The destructor waits for those threads.
class GivenArenas {
 public:
  /// The arenas must outlive this object.
  explicit GivenArenas(Arenas& arenas) : arenas_(arenas) {}

  /// Maps the arena, and sends the result on the connection. If that cannot begin, closes the connection.
  void take(const Arenas::Id& giver, Descriptor arena, Descriptor connection) noexcept;

 private:
  Arenas& arenas_;
  std::vector<std::future<void>> under_way_;
};

}  // namespace gpusock::proxy
