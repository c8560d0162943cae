#include "param_sync/group/connected_group.hpp"

#include <cerrno>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace param_sync {
namespace {

constexpr int kColorMax = (1 << 24) - 1;  // a float holds each whole number up to it exactly

/// Returns each rank's number (at most kColorMax), by rank: one all-gather of the group.
std::vector<int> gather(Group& group, gpusock::DeviceBuffer<float>& memory, int own, std::uint64_t timeout_ns) {
  std::vector<float> numbers(memory.size());
  numbers[static_cast<std::size_t>(group.rank())] = static_cast<float>(own);
  memory.copy_in(numbers);
  group.wait(group.all_gather({memory.data(), memory.size()}, timeout_ns));
  memory.copy_out(numbers);
  return {numbers.begin(), numbers.end()};
}

/// Returns the same address with port 0, which stands for any free port.
gpusock::Endpoint without_port(gpusock::Endpoint at) {
  at.port = 0;
  return at;
}

}  // namespace

Group Group::split(int color) try {
  Impl& all = *impl_;
  all.ready();
  if (color < 0 || color > kColorMax) {
    throw gpusock::Error(
        EINVAL, "a group: the color " + std::to_string(color) + ", but colors are 0 to " + std::to_string(kColorMax));
  }
  const std::uint64_t timeout_ns = all.options.connect_timeout_ns;
  gpusock::DeviceBuffer<float> memory(all.context, static_cast<std::size_t>(all.nodes));
  const std::vector<int> colors = gather(*this, memory, color, timeout_ns);
  std::vector<std::size_t> members;
  int rank = 0;
  for (std::size_t i = 0; i < colors.size(); ++i) {
    if (colors[i] != color) continue;
    if (i == static_cast<std::size_t>(all.rank)) rank = static_cast<int>(members.size());
    members.push_back(i);
  }
  GroupOptions options = all.options;
  options.stream = nullptr;
  auto made = std::make_unique<Impl>(all.context, rank, static_cast<int>(members.size()), options);
  const gpusock::Endpoint at = made->listen(without_port(all.listens_at));
  const std::vector<int> ports = gather(*this, memory, at.port, timeout_ns);
  std::vector<gpusock::Endpoint> addresses;
  addresses.reserve(members.size());
  for (const std::size_t member : members) {
    addresses.push_back(all.addresses[member]);
    addresses.back().port = static_cast<std::uint16_t>(ports[member]);
  }
  made->connect(addresses);
  return Group(std::move(made));
} catch (const gpusock::Error&) {
  impl_->executor.give_up();  // the others would wait for this rank
  throw;
}

}  // namespace param_sync
