#pragma once
/// @file Two ends of a connection in one context.

#include <gpusock/gpusock.hpp>

#include "tests/support/patience.hpp"

#include <gtest/gtest.h>

#include <string>

namespace gpusock::costs {

/// Options of a context that does nothing but what the test asks for.
inline Options quiet_options() {
  Options options;
  options.sockets_max = 64;
  options.observe = "";
  return options;
}

/// The sockets stay open as long as the context: what the proxy does to close one comes at a time of its own.
struct Pair {
  Pair(const Context& context, const std::string& link) {
    const Net net = context.net();
    const Socket listener = net.listen(this_thread(), Endpoint::parse("127.0.0.1:0,link=" + link), 1, patience());
    Endpoint where;
    EXPECT_EQ(net.getsockname(listener, where), 0);
    socket = net.connect(this_thread(), where, patience());
    peer = net.accept(this_thread(), listener, patience());
    EXPECT_GE(peer, 0);
  }

  Socket socket, peer;
};

}  // namespace gpusock::costs
