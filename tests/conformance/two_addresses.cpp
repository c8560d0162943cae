#include "tests/conformance/two_addresses.hpp"

#include "gpusock/context/context_impl.hpp"

#include <fcntl.h>

#include <utility>

namespace gpusock::conformance {

struct TwoAddresses::Mappings {
  std::unique_ptr<proxy::DeviceArena> made, mapped;
};

TwoAddresses::TwoAddresses(Context& context, std::size_t bytes) : mappings_(std::make_unique<Mappings>()) {
  const auto platform = context.impl().device.platform();
  mappings_->made = platform->make_arena(bytes);
  proxy::Descriptor again(fcntl(mappings_->made->descriptor(), F_DUPFD_CLOEXEC, 3));
  mappings_->mapped = platform->map_arena(std::move(again), bytes, platform->name_on_host());
  platform->zero_device(mappings_->made->memory(), bytes);
}
TwoAddresses::~TwoAddresses() = default;

std::byte* TwoAddresses::one() const { return mappings_->made->memory(); }
std::byte* TwoAddresses::other() const { return mappings_->mapped->memory(); }

std::string why_apart(Context& one, Context& other) {
  const auto its = one.impl().device.platform(), others = other.impl().device.platform();
  if (!its->reaches_device_memory_of(*others)) return its->why_apart_from(*others);
  return others->reaches_device_memory_of(*its) ? std::string() : others->why_apart_from(*its);
}

}  // namespace gpusock::conformance
