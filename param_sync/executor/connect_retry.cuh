#pragma once
/// @file Which attempts to reach a peer are worth another one.

#include "gpusock/device.cuh"

namespace param_sync {

/// True if an attempt that failed so may succeed later: the peer or the network is not up yet, or the peer has just
/// gone away. A loopback interface that is down stays down. A peer whose memory p2p cannot share is up, and later it
/// cannot be shared either.
__device__ inline bool worth_retrying(std::int64_t error, const gpusock::Endpoint& to) {
  const bool loopback = to.family == 4 && to.address[0] == 127;
  const bool named_p2p = to.link == gpusock::LinkKind::p2p;
  return error == -ECONNREFUSED || error == -ECONNRESET || (error == -EHOSTUNREACH && !named_p2p) ||
         (error == -ENETUNREACH && !loopback);
}

}  // namespace param_sync
