#pragma once
/// @file What ranks say to rank 0, and it to them, where they meet (rendezvous.hpp); and what of it can be.

#include "param_sync/bootstrap/launch.hpp"

#include "gpusock/gpusock.hpp"

#include <cstdint>
#include <vector>

namespace param_sync::bootstrap {

inline constexpr std::uint64_t kRendezvousMagic = 0x3174656D79737067;  // "gpsymet1"

/// From each other rank to rank 0.
struct Greeting {
  std::uint64_t magic = kRendezvousMagic;
  std::uint32_t rank = 0;
  std::uint32_t size = 0;
  gpusock::ResolvedEndpoint listens;
};

/// From rank 0, once all are there, or as soon as they cannot be.
struct Answer {
  std::uint64_t magic = kRendezvousMagic;
  std::uint64_t fits = 0;  ///< 0: another rank like this one, or another size
  gpusock::ResolvedEndpoint listens[kRanksMax];
};

/// True if this may be the address of a rank.
inline bool is_place(const gpusock::ResolvedEndpoint& at) { return (at.family == 4 || at.family == 6) && at.port != 0; }

/// True if it may come from a rank of a run of `size` ranks, other than rank 0, which receives it.
inline bool can_be(const Greeting& greeting, int size) {
  return greeting.size == static_cast<std::uint32_t>(size) && greeting.rank > 0 && greeting.rank < greeting.size &&
         is_place(greeting.listens);
}

/// Where the ranks of a run of `size` are; empty where the answer gives something that is no place.
inline std::vector<gpusock::Endpoint> places_in(const Answer& answer, int size) {
  std::vector<gpusock::Endpoint> all;
  for (int rank = 0; rank < size; ++rank) {
    if (!is_place(answer.listens[rank])) return {};
    all.push_back({answer.listens[rank], {}});
  }
  return all;
}

}  // namespace param_sync::bootstrap
