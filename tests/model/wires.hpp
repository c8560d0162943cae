#pragma once
/// @file Connected sockets in memory, for kernels.

#include "world.hpp"

namespace gpusock::model {

/// Two pairs of connected sockets: 0 and 1, 2 and 3.
struct Wires {
  Wires() {
    side.table.proxy_words = proxy_words;
    side.table.setups = setups;
    side.table.requests = requests;
    side.table.options = options;
    side.table.abort = &abort;
    side.table.slots = 4;
    side.slots = slots;
    side.hooks = &hooks();
    for (std::uint32_t i = 0; i < 4; ++i) {
      setups[i].rings.tx = setups[i ^ 1].rings.rx = {{rings[i], sizeof rings[i], 0}, &committed[i], &consumed[i], 0};
    }
    for (std::uint32_t i = 0; i < 4; ++i) {
      proxy_words[i].status = table::Status{1, 0, table::Phase::connected, 0}.pack();
      const Socket socket = table::make_handle(i, 1);
      handles[i] = detail::adopt(side, socket, detail::claim(side, socket));
    }
  }
  Net net() const { return detail::NetAccess::make(side, side); }

  alignas(8) std::byte rings[4][128] = {};
  std::uint64_t committed[4] = {}, consumed[4] = {}, abort = 0, requests[4] = {}, options[4] = {};
  table::ProxyWords proxy_words[4];
  table::SocketSetup setups[4];
  table::CallerSlot slots[4];
  Socket handles[4] = {};
  detail::Side side;
};

}  // namespace gpusock::model
