#include "gpusock/error.hpp"
#include "gpusock/tools/doctor/probes.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>

namespace gpusock::doctor {
namespace {

constexpr const char* kTopic = "host-rings";
constexpr const char* kOtherName = "export GPUSOCK_HOST_RINGS=NAME (another one, the same in all processes)";

std::string ring_bytes_text(std::uint64_t bytes) {
  return bytes % (1 << 20) == 0 ? fmt::format("{} MiB", bytes >> 20) : fmt::format("{} KiB", bytes >> 10);
}

/// For example "2 of at most 64 contexts share memory of their GPU (2 on 0000:17:00.0)".
std::string members_text(const std::vector<proxy::Arenas::Listed>& members) {
  if (members.empty()) return "no context shares GPU memory";
  std::map<std::string, int> devices;
  for (const auto& member : members) ++devices[member.device];
  std::vector<std::string> parts;
  parts.reserve(devices.size());
  for (const auto& [device, count] : devices) parts.push_back(fmt::format("{} on {}", count, device));
  return fmt::format("{} of at most {} contexts share memory of their GPU ({})", members.size(),
                     proxy::Arenas::kMembersMax, fmt::join(parts, ", "));
}

/// Reports what a context with this environment finds there.
void report_fit(const proxy::HostRings::Look& look, Report& report) {
  const std::uint64_t ring = report.facts.host_ring_bytes();
  if (ring > look.room_bytes) {
    report.add(
        kTopic, Level::fix,
        fmt::format("rings of {}, the default of this build, do not fit there: connections that need host rings use "
                    "tcp",
                    ring_bytes_text(ring)),
        fmt::format("{}, or set Options::ring_bytes to {}", kOtherName, look.room_bytes));
  }
  if (report.facts.host_connections_set && report.facts.host_connections != look.connections) {
    report.add(kTopic, Level::note,
               fmt::format("connections={} changes nothing: the process that came first has chosen {}",
                           report.facts.host_connections, look.connections));
  }
  if (look.in_use == look.connections) {
    report.add(kTopic, Level::note, "all are in use: another connection uses tcp, or fails with link=p2p",
               fmt::format("start all processes with GPUSOCK_HOST_RINGS={},connections={}", report.facts.host_rings,
                           2 * look.connections));
  }
  if (look.members.size() == proxy::Arenas::kMembersMax) {
    report.add(kTopic, Level::note, "another context shares host memory alone, and no GPU memory", kOtherName);
  }
}

}  // namespace

std::uint64_t Facts::host_ring_bytes() const { return proxy::default_ring_sizes(has_device_memory()).shared; }

void probe_host_rings(const Sources& sources, Report& report) {
  const std::string& name = report.facts.host_rings;
  if (name.empty()) return;
  try {
    report.facts.host_rings_there = sources.host_rings(name);
  } catch (const Error& error) {
    if (name == proxy::HostRings::kAutomatic) {
      report.add(kTopic, Level::note, fmt::format("'{}': {}: other processes are reached by tcp", name, error.what()),
                 kOtherName);
      report.facts.host_rings.clear();
    } else {
      report.add(kTopic, Level::fix,
                 fmt::format("GPUSOCK_HOST_RINGS={}: {}: no context can be made", name, error.what()), kOtherName);
    }
    return;
  }
  const auto& look = report.facts.host_rings_there;
  if (!look) {
    report.add(kTopic, Level::fine, fmt::format("'{}': not there yet; the first context makes them", name));
  } else if (!look->has_users) {
    report.add(kTopic, Level::fine, fmt::format("'{}': all users have died; the next context makes new ones", name));
  } else {
    const std::string dead = look->left_by_dead == 0
                                 ? ""
                                 : fmt::format(
                                       " ({} left by processes that died, free within a second of the next use)",
                                       look->left_by_dead);
    report.add(kTopic, Level::fine,
               fmt::format("'{}': {} of {} connections are in use{}, rings of up to {}; {}", name, look->in_use,
                           look->connections, dead, ring_bytes_text(look->room_bytes), members_text(look->members)));
    report_fit(*look, report);
  }
}

}  // namespace gpusock::doctor
