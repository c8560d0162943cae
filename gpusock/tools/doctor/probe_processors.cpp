#include "gpusock/tools/doctor/probes.hpp"
#include "host_proxy/base/processors.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <set>

namespace gpusock::doctor {
namespace {

std::string cpu_folder(int processor) { return "sys/devices/system/cpu/cpu" + std::to_string(processor); }

std::string list_of(const std::vector<int>& processors) {
  std::string list;
  for (std::size_t i = 0; i < processors.size();) {
    std::size_t last = i;
    while (last + 1 < processors.size() && processors[last + 1] == processors[last] + 1) ++last;
    list += (list.empty() ? "" : ",") + std::to_string(processors[i]);
    if (last != i) list += "-" + std::to_string(processors[last]);
    i = last + 1;
  }
  return list;
}

std::vector<int> usable_processors(const Sources& sources) {
  auto usable = proxy::parse_processors(value_of(sources.text("proc/self/status"), "Cpus_allowed_list"));
  auto online = proxy::parse_processors(sources.line("sys/devices/system/cpu/online"));
  if (usable.empty()) return online;
  if (online.empty()) return usable;
  std::erase_if(usable,
                [&](int processor) { return std::find(online.begin(), online.end(), processor) == online.end(); });
  return usable;
}

/// How many processors' time the control group grants; 0: no limit.
double granted_processors(const Sources& sources) {
  const std::string line = sources.line("sys/fs/cgroup/cpu.max");
  double quota = 0, period = 0;
  const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), quota);
  if (error != std::errc{} || end == line.data() + line.size()) return 0;  // "max 100000"
  std::from_chars(end + 1, line.data() + line.size(), period);
  return period > 0 ? quota / period : 0;
}

/// For each level and size of data cache: the groups of usable processors that share one.
std::map<std::pair<int, std::string>, std::set<std::vector<int>>> read_caches(const Sources& sources,
                                                                              const std::vector<int>& usable) {
  std::map<std::pair<int, std::string>, std::set<std::vector<int>>> caches;
  for (const int processor : usable) {
    for (const std::string& name : sources.names(cpu_folder(processor) + "/cache")) {
      const std::string folder = cpu_folder(processor) + "/cache/" + name;
      const std::string type = sources.line(folder + "/type"), level = sources.line(folder + "/level");
      if ((type != "Data" && type != "Unified") || level.size() != 1 || level[0] < '1' || level[0] > '9') continue;
      auto sharing = proxy::parse_processors(sources.line(folder + "/shared_cpu_list"));
      std::erase_if(sharing, [&](int other) { return std::find(usable.begin(), usable.end(), other) == usable.end(); });
      caches[{level[0] - '0', sources.line(folder + "/size")}].insert(sharing);
    }
  }
  return caches;
}

void report_caches(const Sources& sources, const std::vector<int>& usable, Report& report) {
  std::vector<std::string> parts;
  for (const auto& [cache, groups] : read_caches(sources, usable)) {
    std::vector<std::string> shared;
    for (const auto& group : groups) {
      if (group.size() > 1) shared.push_back(list_of(group));
    }
    if (shared.size() > 4) shared = {fmt::format("{} groups of {}", shared.size(), groups.begin()->size())};
    parts.push_back(
        fmt::format("L{} {}{}", cache.first, cache.second,
                    shared.empty() ? " each" : fmt::format(" shared by {}", fmt::join(shared, " and by "))));
  }
  if (parts.empty()) {
    report.add("caches", Level::note, "this machine does not say which processors share caches");
  } else {
    report.add("caches", Level::fine, fmt::format("{}", fmt::join(parts, ", ")));
  }
}

/// True if callers can wake a sleeping proxy: see Platform::callers_can_wake().
bool callers_can_wake(const Sources& sources) {
  return sources.built_for == "cpu" && shape_of(sources) == proxy::CpuShape::cpu;
}

/// Reports what the proxy's thread does while kernels run, if these cannot wake it.
void report_spin(const Sources& sources, std::size_t processors, Report& report) {
  const bool spins = proxy::proxy_policy(false, processors, {}, report.facts.spin).spins;
  const std::string why = report.facts.spin
                              ? "GPUSOCK_SPIN"
                              : fmt::format("{} {} processors", spins ? "more than" : "at most", proxy::kFewProcessors);
  const std::string kept = sources.environment("GPUSOCK_PROCESSORS").value_or("near");
  report.add(
      "proxy", Level::fine,
      spins ? fmt::format("while kernels run, each context's proxy keeps a processor ({}; GPUSOCK_PROCESSORS={})", why,
                          kept)
            : fmt::format("while kernels run, each context's proxy takes up to 1 ms to see what they do ({})", why));
}

}  // namespace

void probe_processors(const Sources& sources, Report& report) {
  const auto usable = usable_processors(sources);
  const std::size_t online = proxy::parse_processors(sources.line("sys/devices/system/cpu/online")).size();
  const std::string model = value_of(sources.text("proc/cpuinfo"), "model name");
  std::string says = fmt::format("{} of {} processors", usable.size(), std::max(online, usable.size()));
  if (!model.empty()) says += ", " + model;
  if (proxy::proxy_policy(callers_can_wake(sources), usable.size()).assists)
    says += "; callers that wait run the proxy's step themselves";
  report.add("processors", Level::fine, says);
  if (const double granted = granted_processors(sources); granted > 0 && granted < static_cast<double>(usable.size())) {
    report.add(
        "processors", Level::note,
        fmt::format("the control group grants the time of {:.1f} of them: waits grow when it is used up", granted),
        "raise cpu.max of the control group (docker run --cpus)");
  }
  report_caches(sources, usable, report);
}

void probe_proxy(const Sources& sources, Report& report) {
  if (!callers_can_wake(sources)) report_spin(sources, usable_processors(sources).size(), report);
}

}  // namespace gpusock::doctor
