#include "plain_types/ring_placement.hpp"

#include "plain_types/error.hpp"

#include <cerrno>
#include <string>

namespace gpusock {
namespace {

constexpr std::string_view kNames[] = {"auto", "host", "device"};

}  // namespace

RingPlacement parse_ring_placement(std::string_view text, std::string_view variable) {
  for (int i = 0; i < 3; ++i) {
    if (text == kNames[i]) return static_cast<RingPlacement>(i);
  }
  throw Error(EINVAL, std::string(variable) + "='" + std::string(text) + "' must be auto, host or device");
}

std::string_view to_string(RingPlacement placement) { return kNames[static_cast<int>(placement)]; }

}  // namespace gpusock
