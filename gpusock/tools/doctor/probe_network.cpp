#include "gpusock/tools/doctor/probes.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string>
#include <vector>

namespace gpusock::doctor {
namespace {

std::string describe(const Interface& interface) {
  const std::string speed = interface.mbit_per_s > 0 ? fmt::format("{} Mbit/s, ", interface.mbit_per_s) : "";
  const std::string mtu = interface.mtu > 0 ? std::to_string(interface.mtu) : "unknown";
  return fmt::format("{} ({}MTU {})", interface.name, speed, mtu);
}

std::string describe_nic(const Sources& sources, const std::string& name) {
  const std::string port = "sys/class/infiniband/" + name + "/ports/1";
  const std::string state = sources.line(port + "/state");  // "4: ACTIVE"
  return fmt::format("{} ({}, {}, {})", name, sources.line(port + "/link_layer"), sources.line(port + "/rate"),
                     state.substr(std::min(state.size(), state.find(": ") + 2)));
}

/// The names in the output of `fi_info -l`. Only names are not indented: "tcp:", then "    version: 117.0", …
std::vector<std::string> parse_providers(const std::string& text) {
  std::vector<std::string> names;
  std::size_t start = 0;
  while (start < text.size()) {
    const std::size_t end = std::min(text.find('\n', start), text.size());
    const std::string line = text.substr(start, end - start);
    if (line.size() > 1 && line.back() == ':' && line[0] != ' ') names.push_back(line.substr(0, line.size() - 1));
    start = end + 1;
  }
  return names;
}

}  // namespace

void probe_network(const Sources& sources, Report& report) {
  std::vector<std::string> up;
  for (const Interface& interface : sources.interfaces()) {
    if (!interface.up) continue;
    if (interface.loopback) {
      report.facts.loopback_up = true;
    } else {
      up.push_back(describe(interface));
    }
  }
  report.facts.other_interface_up = !up.empty();
  if (!report.facts.loopback_up) {
    report.add("network", Level::fix, "the loopback interface is down: nothing reaches 127.0.0.1", "ip link set lo up");
  }
  if (up.empty()) {
    report.add("network", Level::note, "no interface but the loopback is up: no other host can be reached", "ip link");
  } else {
    report.add("network", Level::fine, fmt::format("up: {}", fmt::join(up, ", ")));
  }
}

void probe_rdma(const Sources& sources, Report& report) {
  std::vector<std::string> nics;
  for (const std::string& name : sources.names("sys/class/infiniband")) {
    nics.push_back(describe_nic(sources, name));
    if (nics.back().find("ACTIVE") != std::string::npos) ++report.facts.rdma_nics_active;
  }
  report.facts.rdma_nics = static_cast<int>(nics.size());
  const bool verbs = sources.library("libibverbs.so.1"), fabric = sources.library("libfabric.so.1");
  const auto providers = fabric ? parse_providers(sources.list_providers()) : std::vector<std::string>();
  report.add("rdma", Level::fine, nics.empty() ? "no RDMA NICs" : fmt::format("{}", fmt::join(nics, ", ")));
  report.facts.libfabric = fabric;
  report.facts.verbs_built = sources.verbs_built;
  report.facts.fabric_built = sources.fabric_built;
  report.add(
      "libraries", Level::fine,
      fmt::format("libibverbs {}{}; libfabric {}{}{}", verbs ? "found" : "not installed",
                  sources.verbs_built ? "" : ", and this build has no link for it", fabric ? "found" : "not installed",
                  providers.empty() ? "" : fmt::format(" with {}", fmt::join(providers, " ")),
                  sources.fabric_built ? "" : ", and this build has no link for it"));
}

}  // namespace gpusock::doctor
