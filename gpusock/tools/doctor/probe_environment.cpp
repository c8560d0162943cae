#include "gpusock/error.hpp"
#include "gpusock/tools/doctor/probes.hpp"
#include "host_proxy/base/log.hpp"
#include "host_proxy/base/processors.hpp"
#include "host_proxy/links/fabric/provider_name.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>

namespace gpusock::doctor {
namespace {

constexpr const char* kProvider = "GPUSOCK_FABRIC_PROVIDER";

void probe_fabric_provider(const Sources& sources, Report& report) {
  const auto provider = sources.environment(kProvider);
  if (!provider) return;
  const std::string undo = fmt::format("unset {}", kProvider);
  if (!proxy::is_fabric_provider_name(*provider)) {
    report.add("environment", Level::mend,
               fmt::format("{}='{}' is not a provider's name: no context can be made", kProvider, *provider), undo);
    return;
  }
  if (!report.facts.fabric_built || !report.facts.libfabric) {
    report.add("environment", Level::note,
               fmt::format("{}='{}' changes nothing: {}", kProvider, *provider,
                           report.facts.fabric_built ? "libfabric is not installed" : "this build has no fabric link"),
               undo);
    return;
  }
  report.facts.fabric_provider = *provider;
  report.facts.fabric_named = sources.fabric_providers(*provider);
  if (!report.facts.fabric_named.empty()) return;
  const auto there = sources.fabric_providers("");
  report.add(
      "environment", Level::mend,
      fmt::format("{}='{}' names no provider of libfabric that the fabric link has here; {}", kProvider, *provider,
                  there.empty() ? "there is none" : fmt::format("there are: {}", fmt::join(there, " "))),
      undo);
}

}  // namespace

void probe_environment(const Sources& sources, Report& report) {
  report.facts.has_secret = sources.environment("GPUSOCK_SECRET").has_value();
  if (const auto link = sources.environment("GPUSOCK_LINK")) {
    try {
      report.facts.default_link = parse_link(*link);
    } catch (const Error&) {
      report.facts.default_link = std::nullopt;
      report.add("environment", Level::mend,
                 fmt::format("GPUSOCK_LINK='{}' is not a link: no context can be made", *link), "unset GPUSOCK_LINK");
    }
  }
  if (const auto ring = sources.environment("GPUSOCK_RING")) {
    try {
      report.facts.ring = parse_ring_placement(*ring);
    } catch (const Error&) {
      report.facts.ring = std::nullopt;
      report.add("environment", Level::mend,
                 fmt::format("GPUSOCK_RING='{}' must be auto, host or device: no context can be made", *ring),
                 "unset GPUSOCK_RING");
    }
  }
  const std::string processors = sources.environment("GPUSOCK_PROCESSORS").value_or("near");
  const auto named = proxy::parse_processors(processors);
  const auto allowed = proxy::parse_processors(value_of(sources.text("proc/self/status"), "Cpus_allowed_list"));
  const bool one = std::any_of(named.begin(), named.end(), [&](int processor) {
    return std::find(allowed.begin(), allowed.end(), processor) != allowed.end();
  });
  if (processors != "near" && processors != "any" && !one) {
    report.add("environment", Level::mend,
               fmt::format("GPUSOCK_PROCESSORS='{}' must be near, any, or a list like 0-3,8 with a processor that may "
                           "be used: no context can be made",
                           processors),
               "unset GPUSOCK_PROCESSORS");
  }
  if (const auto gpudirect = sources.environment("GPUSOCK_GPUDIRECT")) {
    report.facts.gpudirect = *gpudirect == "auto";
    if (*gpudirect != "auto" && *gpudirect != "off") {
      report.facts.gpudirect = std::nullopt;
      report.add("environment", Level::mend,
                 fmt::format("GPUSOCK_GPUDIRECT='{}' must be auto or off: no context can be made", *gpudirect),
                 "unset GPUSOCK_GPUDIRECT");
    } else if (*gpudirect == "off" && report.facts.ring != RingPlacement::device) {
      report.add("environment", Level::note, "GPUSOCK_GPUDIRECT=off changes nothing: rings lie in host memory",
                 "unset GPUSOCK_GPUDIRECT");
    }
  }
  probe_fabric_provider(sources, report);
  const auto level = sources.environment("GPUSOCK_LOG");
  if (level && !proxy::is_log_level(*level)) {
    report.add(
        "environment", Level::mend,
        fmt::format("GPUSOCK_LOG='{}' must be trace, debug, info, warn, error or off: no context can be made", *level),
        "unset GPUSOCK_LOG");
  }
}

}  // namespace gpusock::doctor
