#pragma once
/// @file How contexts of several processes give each other their arenas (arenas.hpp), over the Unix sockets by which
/// they share segments.

#include "host_proxy/memory/arenas.hpp"

#include <chrono>
#include <future>
#include <vector>

namespace gpusock::proxy {

/// Asks other processes for the descriptors that they offer for good (Arenas::Fetch).
std::vector<Arenas::Fetched> fetch_descriptors(const std::vector<Arenas::Asked>& asked, std::chrono::nanoseconds wait);

/// Gives them this descriptor (Arenas::Give).
std::vector<Arenas::Taken> give_descriptor(const std::vector<Arenas::Asked>& to, const Arenas::Id& giver,
                                           int descriptor, std::chrono::nanoseconds wait);

/// What others give. Each arena is mapped on a thread of its own, because that may wait for kernels: the proxy does
/// not. The destructor waits for those threads.
class GivenArenas {
 public:
  /// It outlives this.
  explicit GivenArenas(Arenas& arenas) : arenas_(arenas) {}

  /// Maps it, and says on the connection what came of it. Where that cannot even begin, the connection ends.
  void take(const Arenas::Id& giver, Descriptor arena, Descriptor connection) noexcept;

 private:
  Arenas& arenas_;
  std::vector<std::future<void>> under_way_;
};

}  // namespace gpusock::proxy
