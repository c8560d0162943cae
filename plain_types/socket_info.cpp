#include "plain_types/socket_info.hpp"

namespace gpusock {

std::string_view to_string(SocketState state) {
  static constexpr std::string_view kNames[] = {"opening", "listening", "waiting", "connected", "closing", "failed"};
  return kNames[static_cast<int>(state)];
}

}  // namespace gpusock
