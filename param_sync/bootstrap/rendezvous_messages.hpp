#pragma once
/// @file The messages between rank 0 and the other ranks when they meet (rendezvous.hpp), and checks of their contents.

#include "param_sync/bootstrap/launch.hpp"

#include "gpusock/gpusock.hpp"

#include <cstdint>
#include <vector>

namespace param_sync::bootstrap {

inline constexpr std::uint64_t kRendezvousMagic = 0x3174656D79737067;  // "gpsymet1"

/// Each other rank sends it to rank 0.
struct Greeting {
  std::uint64_t magic = kRendezvousMagic;
  std::uint32_t rank = 0;
  std::uint32_t size = 0;
  gpusock::ResolvedEndpoint listens;
};

/// Rank 0 sends it to each rank once all ranks are there, or to a rank that it refuses.
struct Answer {
  std::uint64_t magic = kRendezvousMagic;
  std::uint64_t fits = 0;  ///< 0: refused, as another process has this rank or the run has another size
  gpusock::ResolvedEndpoint listens[kRanksMax];
};

/// True if `at` may be the address of a rank.
inline bool is_address(const gpusock::ResolvedEndpoint& at) {
  return (at.family == 4 || at.family == 6) && at.port != 0;
}

/// True if the greeting may come from a rank of a run of `size` ranks. Rank 0 receives greetings and sends none.
inline bool can_be(const Greeting& greeting, int size) {
  return greeting.size == static_cast<std::uint32_t>(size) && greeting.rank > 0 && greeting.rank < greeting.size &&
         is_address(greeting.listens);
}

/// Returns the addresses of the ranks of a run of `size` ranks. Empty if the answer has an invalid address.
inline std::vector<gpusock::Endpoint> addresses_in(const Answer& answer, int size) {
  std::vector<gpusock::Endpoint> all;
  for (int rank = 0; rank < size; ++rank) {
    if (!is_address(answer.listens[rank])) return {};
    all.push_back({answer.listens[rank], {}});
  }
  return all;
}

}  // namespace param_sync::bootstrap
