#pragma once
/// @file Messages that are one object: for tests in which a host thread plays a peer.

#include "gpusock/device.cuh"
#include "tests/support/patience.hpp"

#include <gtest/gtest.h>

#include <cstdint>

namespace gpusock::test {

/// Sends it whole, or fails the test.
template <class T>
void send_whole(const Net& net, Socket socket, const T& what) {
  EXPECT_EQ(net.send(this_thread(), socket, &what, sizeof what, kWaitAll, patience()),
            static_cast<std::int64_t>(sizeof what));
}

/// Receives one whole, or fails the test.
template <class T>
T receive_whole(const Net& net, Socket socket) {
  T what{};
  EXPECT_EQ(net.recv(this_thread(), socket, &what, sizeof what, kWaitAll, patience()),
            static_cast<std::int64_t>(sizeof what));
  return what;
}

}  // namespace gpusock::test
