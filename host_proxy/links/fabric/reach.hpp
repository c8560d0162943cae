#pragma once
/// @file Chooses which of a provider's addresses here leads to a peer, by the local address of a connection to it.

#include "plain_types/endpoint.hpp"

#include <cstddef>
#include <span>
#include <string>

namespace gpusock::proxy::fabric {

/// An address that a provider has on this machine.
struct ProviderAddress {
  enum class Kind {
    ip,          ///< the address is `ip`
    infiniband,  ///< a port's GID
    own,         ///< of the provider's own kind, for its only network
  };
  Kind kind = Kind::own;
  std::string domain;  ///< the device
  Endpoint ip;
};

inline constexpr std::size_t kNowhere = ~std::size_t{0};

/// The index of the address to use for connections from `local`; kNowhere if there is none. The same IP address is
/// best. A machine reaches itself by any device, so any device serves a loopback address. InfiniBand's GIDs are used
/// only for devices without an IP address: Ethernet devices have them too, and are not reached by them.
std::size_t choose_address(std::span<const ProviderAddress> addresses, const Endpoint& local);

}  // namespace gpusock::proxy::fabric
