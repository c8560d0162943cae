// Endpoint::parse: takes or refuses any text, and takes what it prints. Names are not looked up here
// (numeric_lookup.cpp).
#include "gpusock/endpoint.hpp"
#include "gpusock/error.hpp"
#include "tests/fuzz/target.hpp"

#include <bit>
#include <cerrno>

namespace gpusock::fuzz::of_endpoint {

FUZZ_TARGET(endpoint) {
  try {
    const Endpoint endpoint = Endpoint::parse(input.rest());
    FUZZ_CHECK(endpoint.family == 4 || endpoint.family == 6);
    FUZZ_CHECK(static_cast<int>(endpoint.link) < kLinkKinds);
    FUZZ_CHECK(endpoint.ring_bytes == 0 ||
               (std::has_single_bit(endpoint.ring_bytes) && endpoint.ring_bytes >= kRingBytesMin &&
                endpoint.ring_bytes <= kRingBytesMax));
    FUZZ_CHECK(Endpoint::parse(endpoint.to_string()) == endpoint);
  } catch (const Error& error) {
    FUZZ_CHECK(error.code().value() == EINVAL || error.code().value() == ENOENT);
  }
}

}  // namespace gpusock::fuzz::of_endpoint
