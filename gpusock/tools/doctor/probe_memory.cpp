#include "gpusock/tools/doctor/probes.hpp"

#include <fmt/format.h>

#include <charconv>
#include <sstream>

namespace gpusock::doctor {
namespace {

/// The fewest bytes that pages of a few contexts need.
constexpr std::uint64_t kPageBytesMin = 1 << 20;
/// Descriptors that a context may use with default options: sockets that callers open or accept, and others.
constexpr std::uint64_t kSocketsDefault = 2 * 1024 + 64;
constexpr std::uint64_t kDescriptorsMin = 128;

std::string size_text(std::uint64_t bytes) {
  if (bytes >= 10ull << 30) return fmt::format("{} GiB", bytes >> 30);
  if (bytes >= 10ull << 20) return fmt::format("{} MiB", bytes >> 20);
  return fmt::format("{} KiB", bytes >> 10);
}

struct Limit {
  std::uint64_t soft = 0, hard = 0;  // ~0: no limit
};

std::uint64_t limit_value(const std::string& word) {
  std::uint64_t value = ~std::uint64_t{0};
  std::from_chars(word.data(), word.data() + word.size(), value);
  return value;
}

/// A line of /proc/self/limits.
std::optional<Limit> read_limit(const Sources& sources, const std::string& name) {
  std::istringstream lines(sources.text("proc/self/limits"));
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with(name)) continue;
    std::istringstream words(line.substr(name.size()));
    std::string soft, hard;
    if (words >> soft >> hard) return Limit{limit_value(soft), limit_value(hard)};
  }
  return std::nullopt;
}

/// True if this process may lock any amount of memory, whatever its limit, as root may.
bool locks_without_limit(const Sources& sources) {
  constexpr int kCapIpcLock = 14;
  const std::string capabilities = value_of(sources.text("proc/self/status"), "CapEff");
  std::uint64_t bits = 0;
  const auto [end, error] = std::from_chars(capabilities.data(), capabilities.data() + capabilities.size(), bits, 16);
  return error == std::errc{} && (bits >> kCapIpcLock & 1) != 0;
}

void probe_locked_memory(const Sources& sources, Report& report) {
  const auto limit = read_limit(sources, "Max locked memory");
  if (!limit) return;
  if (limit->soft == ~std::uint64_t{0} || locks_without_limit(sources)) {
    report.add("memlock", Level::fine, "memory may be locked without limit");
    return;
  }
  report.facts.locked_bytes_max = limit->soft;
  const std::uint64_t connections = limit->soft / kVerbsLockedBytes;
  report.add("memlock", Level::note,
             fmt::format("{} may be locked: {}; {}", size_text(limit->soft),
                         connections == 0 ? "too little for a connection on the verbs link"
                                          : fmt::format("enough for {} connection(s) on the verbs link", connections),
                         report.facts.gpu_build ? "where that counts for the GPU's driver, pinning rings may fail"
                                                : "of the other links only fabric locks some, on an RDMA NIC"),
             "ulimit -l unlimited (for good: 'memlock unlimited' in /etc/security/limits.conf)");
}

void probe_pages(const Sources& sources, Report& report) {
  const std::string chosen = sources.environment("GPUSOCK_OBSERVE").value_or("/dev/shm");
  if (chosen == "off") {
    report.add("pages", Level::note, "GPUSOCK_OBSERVE=off: gpusock-top does not see contexts", "unset GPUSOCK_OBSERVE");
    return;
  }
  if (!chosen.starts_with('/')) {
    report.add("pages", Level::fix, fmt::format("GPUSOCK_OBSERVE='{}' is neither an absolute path nor off", chosen),
               "unset GPUSOCK_OBSERVE");
    return;
  }
  const auto space = sources.space(chosen);
  if (!space) {
    report.add(
        "pages", Level::fix, fmt::format("{} is missing or not writable: gpusock-top does not see contexts", chosen),
        chosen == "/dev/shm" ? "mount -t tmpfs -o mode=1777,size=64m tmpfs /dev/shm, or export GPUSOCK_OBSERVE=FOLDER"
                             : "mkdir -p " + chosen);
  } else if (space->free_bytes < kPageBytesMin) {
    report.add("pages", Level::fix, fmt::format("{} is full: gpusock-top does not see contexts that start now", chosen),
               "df -h " + chosen + "; remove what fills it");
  } else {
    report.add("pages", Level::fine,
               fmt::format("{} has {} of {} free for gpusock-top's pages", chosen, size_text(space->free_bytes),
                           size_text(space->total_bytes)));
  }
}

}  // namespace

void probe_memory(const Sources& sources, Report& report) {
  report.facts.memory_files = sources.make_memory_file();
  if (report.facts.memory_files) {
    report.add("rings", Level::fine, "memory files with seals (memfd_create), in which rings lie, can be made");
  } else {
    report.add("rings", Level::fix, "memfd_create does not work here: no connection gets rings",
               "let the sandbox allow it (docker run --security-opt seccomp=PROFILE), and see ulimit -n");
  }
  probe_locked_memory(sources, report);
  probe_pages(sources, report);
}

void probe_descriptors(const Sources& sources, Report& report) {
  const auto limit = read_limit(sources, "Max open files");
  if (!limit) {
    report.add("nofile", Level::note, "/proc/self/limits does not say how many descriptors a process may have");
  } else if (limit->soft >= kSocketsDefault) {
    report.add("nofile", Level::fine, "a process may have as many descriptors as a context has sockets by default");
  } else {
    const std::uint64_t better = std::min(limit->hard, std::uint64_t{65536});
    report.add(
        "nofile", limit->soft < kDescriptorsMin ? Level::fix : Level::note,
        fmt::format("{} descriptors a process: fewer connections than a context's {} sockets", limit->soft, 2 * 1024),
        limit->hard > limit->soft ? fmt::format("ulimit -n {}", better) : "raise nofile in /etc/security/limits.conf");
  }
}

}  // namespace gpusock::doctor
