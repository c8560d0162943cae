#include "gpusock/error.hpp"
#include "gpusock/tools/doctor/probes.hpp"
#include "host_proxy/base/log.hpp"
#include "host_proxy/base/processors.hpp"
#include "host_proxy/base/variables.hpp"
#include "host_proxy/links/fabric/provider_name.hpp"
#include "host_proxy/memory/host_rings.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>

namespace gpusock::doctor {
namespace {

constexpr const char* kProvider = "GPUSOCK_FABRIC_PROVIDER";

/// Reports an invalid value: with it, making a context throws Error.
void report_invalid(Report& report, const char* variable, const std::string& value, const char* rule) {
  report.add("environment", Level::fix, fmt::format("{}='{}' {}: no context can be made", variable, value, rule),
             fmt::format("unset {}", variable));
}

/// Sets `fact` to what the variable says, if it is set; to nothing if its value is invalid, which is reported.
template <class Fact, class Parse>
void probe(const Sources& sources, Report& report, const char* variable, const char* rule, Fact& fact, Parse parse) {
  const auto value = sources.environment(variable);
  if (!value) return;
  try {
    fact = parse(*value);
  } catch (const Error&) {
    fact = std::nullopt;
    report_invalid(report, variable, *value, rule);
  }
}

void probe_processors_variable(const Sources& sources, Report& report) {
  constexpr const char* kProcessors = "GPUSOCK_PROCESSORS";
  const std::string processors = sources.environment(kProcessors).value_or("near");
  const auto named = proxy::parse_processors(processors);
  const auto allowed = proxy::parse_processors(value_of(sources.text("proc/self/status"), "Cpus_allowed_list"));
  const bool usable = std::find_first_of(named.begin(), named.end(), allowed.begin(), allowed.end()) != named.end();
  if (processors == "near" || processors == "any" || usable) return;
  report_invalid(report, kProcessors, processors,
                 "must be near, any, or a list like 0-3,8 with a processor that may be used");
}

void probe_gpudirect(const Sources& sources, Report& report) {
  constexpr const char* kGpudirect = "GPUSOCK_GPUDIRECT";
  probe(sources, report, kGpudirect, "must be auto or off", report.facts.gpudirect, [](const std::string& value) {
    if (value != "auto" && value != "off") throw Error(EINVAL, kGpudirect);
    return value == "auto";
  });
  const RingPlacement ring = report.facts.ring.value_or(RingPlacement::host);
  const bool in_host_memory = ring == RingPlacement::host ||
                              (ring == RingPlacement::automatic && !report.facts.has_device_memory());
  if (report.facts.gpudirect == false && in_host_memory) {
    report.add("environment", Level::note, "GPUSOCK_GPUDIRECT=off changes nothing: rings lie in host memory",
               "unset GPUSOCK_GPUDIRECT");
  }
}

void probe_fabric_provider(const Sources& sources, Report& report) {
  const auto provider = sources.environment(kProvider);
  if (!provider) return;
  const std::string undo = fmt::format("unset {}", kProvider);
  if (!proxy::is_fabric_provider_name(*provider)) {
    report_invalid(report, kProvider, *provider, "is not a provider's name");
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
      "environment", Level::fix,
      fmt::format("{}='{}' names no provider of libfabric that the fabric link has here; {}", kProvider, *provider,
                  there.empty() ? "there is none" : fmt::format("there are: {}", fmt::join(there, " "))),
      undo);
}

void probe_spin(const Sources& sources, Report& report) {
  const auto value = sources.environment("GPUSOCK_SPIN");
  if (!value || *value == "auto") return;
  if (*value == "on" || *value == "off") {
    report.facts.spin = *value == "on";
  } else {
    report_invalid(report, "GPUSOCK_SPIN", *value, "must be auto, on or off");
  }
}

void probe_host_rings_variable(const Sources& sources, Report& report) {
  constexpr const char* kHostRings = "GPUSOCK_HOST_RINGS";
  const std::string value = sources.environment(kHostRings).value_or(proxy::HostRings::kAutomatic);
  const auto chosen = proxy::HostRings::parse(value);
  if (!chosen) return report_invalid(report, kHostRings, value, "must be auto, off or a name");
  if (chosen->name == proxy::HostRings::kAutomatic && !report.facts.has_device_memory())
    return;  // contexts then make no host rings
  report.facts.host_rings = chosen->name;
  report.facts.host_connections_set = chosen->connections.has_value();
  report.facts.host_connections = chosen->connections.value_or(proxy::HostRings::kConnectionsDefault);
}

void probe_shape(const Sources& sources, Report& report) {
  constexpr const char* kShape = "GPUSOCK_CPU_SHAPE";
  if (report.facts.gpu_build) return;
  report.facts.shape = shape_of(sources);
  std::optional<proxy::CpuShape> valid;
  probe(sources, report, kShape, "is no shape of the CPU device", valid, proxy::parse_cpu_shape);
  std::optional<proxy::GroupCalls> calls;
  probe(sources, report, "GPUSOCK_CPU_GROUP_CALLS", "must be leader or all", calls, proxy::parse_group_calls);
}

/// Reports variables of gpusock that nothing reads, such as misspelt ones.
void probe_unknown_variables(const Sources& sources, Report& report) {
  for (const std::string& variable : sources.variables()) {
    if (const auto remark = proxy::remark_on_variable(variable)) {
      report.add("environment", Level::note, *remark, "unset " + variable.substr(0, variable.find('=')));
    }
  }
}

/// A variable that CUDA reads, and which of its values suit kernels that wait for each other.
struct CudaVariable {
  const char* name;
  bool (*accepts)(const std::string& value);
  Level level;
  const char* says;     ///< the text for another value, after the variable and the value
  const char* command;  ///< what to do then
};

constexpr unsigned kQueuesMax = 32;

/// How many queues the text asks for; 0 if it is not a number up to kQueuesMax.
unsigned queues_of(const std::string& text) {
  const unsigned queues = number_of(text).value_or(0);
  return queues <= kQueuesMax ? queues : 0;
}

constexpr CudaVariable kCudaVariables[] = {
    {"CUDA_LAUNCH_BLOCKING", [](const std::string& value) { return value.empty() || value == "0"; }, Level::fix,
     " makes programs wait for the end of each kernel: no context can be made", "unset CUDA_LAUNCH_BLOCKING"},
    {"CUDA_MODULE_LOADING", [](const std::string& value) { return value == "EAGER"; }, Level::note,
     ": this build's programs change it before they use CUDA; where a program takes gpusock up later, a new kernel may "
     "have to wait for those that run, and fail",
     "export CUDA_MODULE_LOADING=EAGER"},
    {"CUDA_DEVICE_MAX_CONNECTIONS", [](const std::string& value) { return queues_of(value) != 0; }, Level::note,
     " is no number from 1 to 32: a process may use CUDA's default of 8 streams of a GPU at one time; there "
     "could be 32",
     "unset CUDA_DEVICE_MAX_CONNECTIONS"},
    {"CUDA_DEVICE_MAX_CONNECTIONS",
     [](const std::string& value) { return queues_of(value) == 0 || queues_of(value) == kQueuesMax; }, Level::note,
     ": a process may use so many streams of a GPU at one time; there could be 32",
     "unset CUDA_DEVICE_MAX_CONNECTIONS"},
};

void probe_cuda_variables(const Sources& sources, Report& report) {
  if (!report.facts.gpu_build) return;
  for (const CudaVariable& variable : kCudaVariables) {
    const auto value = sources.environment(variable.name);
    if (!value || variable.accepts(*value)) continue;
    report.add("environment", variable.level, fmt::format("{}='{}'{}", variable.name, *value, variable.says),
               variable.command);
  }
}

}  // namespace

void probe_environment(const Sources& sources, Report& report) {
  report.facts.has_secret = sources.environment("GPUSOCK_SECRET").has_value();
  probe(sources, report, "GPUSOCK_LINK", "is not a link", report.facts.default_link, parse_link);
  const auto placement_in = [](const char* variable) {
    return [variable](const std::string& value) { return parse_ring_placement(value, variable); };
  };
  constexpr const char* kPlacements = "must be auto, host or device";
  probe(sources, report, "GPUSOCK_RING", kPlacements, report.facts.ring, placement_in("GPUSOCK_RING"));
  probe(sources, report, "GPUSOCK_WORDS", kPlacements, report.facts.words, placement_in("GPUSOCK_WORDS"));
  probe_processors_variable(sources, report);
  probe_gpudirect(sources, report);
  probe_spin(sources, report);
  probe_shape(sources, report);
  probe_host_rings_variable(sources, report);
  probe_fabric_provider(sources, report);
  probe_cuda_variables(sources, report);
  probe_unknown_variables(sources, report);
  const auto level = sources.environment("GPUSOCK_LOG");
  if (level && !proxy::is_log_level(*level)) {
    report_invalid(report, "GPUSOCK_LOG", *level, "must be trace, debug, info, warn, error or off");
  }
}

}  // namespace gpusock::doctor
