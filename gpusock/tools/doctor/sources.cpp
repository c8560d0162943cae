#include "gpusock/tools/doctor/sources.hpp"

#include "host_proxy/links/fabric/libfabric_port.hpp"

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <system_error>

namespace gpusock::doctor {
namespace {

constexpr std::size_t kTextBytesMax = 1 << 20;
bool load_library(const char* name) {
  // The library stays loaded: unloading gains nothing, and leak checkers can still say whose memory is left.
  return dlopen(name, RTLD_LAZY | RTLD_LOCAL | RTLD_NODELETE) != nullptr;
}

std::string run_fi_info() {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> pipe(popen("fi_info -l 2>/dev/null", "r"), pclose);
  if (pipe == nullptr) return {};
  std::string text(65536, '\0');
  text.resize(std::fread(text.data(), 1, text.size(), pipe.get()));
  return text;
}

/// Asks for providers as contexts do for connections on this machine.
std::vector<std::string> ask_fabric([[maybe_unused]] const std::string& wanted) {
#if defined(GPUSOCK_HAS_FABRIC)
  Endpoint loopback;
  loopback.family = 4;
  loopback.address[0] = 127;
  loopback.address[3] = 1;
  return proxy::fabric::FabricProviders(wanted).names_for(loopback);
#else
  return {};
#endif
}

std::optional<Space> space_in(const std::string& folder) {
  struct statvfs facts {};
  if (access(folder.c_str(), W_OK | X_OK) != 0 || statvfs(folder.c_str(), &facts) != 0) return std::nullopt;
  return Space{facts.f_bavail * facts.f_frsize, facts.f_blocks * facts.f_frsize};
}

bool can_make_memory_file() {
  const int descriptor = memfd_create("gpusock-doctor", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (descriptor < 0) return false;
  const bool sealed = ftruncate(descriptor, 4096) == 0 &&
                      fcntl(descriptor, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0;
  close(descriptor);
  return sealed;
}

std::optional<std::string> environment_of(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr || *value == '\0' ? std::nullopt : std::optional<std::string>(value);
}

std::vector<std::string> all_variables() {
  std::vector<std::string> all;
  for (char** variable = environ; variable != nullptr && *variable != nullptr; ++variable) all.emplace_back(*variable);
  return all;
}

}  // namespace

Sources Sources::of_this_machine() {
  Sources sources;
  sources.built_for = GPUSOCK_BUILT_FOR;
#if defined(GPUSOCK_HAS_VERBS)
  sources.verbs_built = true;
#endif
#if defined(GPUSOCK_HAS_FABRIC)
  sources.fabric_built = true;
#endif
  sources.cuda = ask_cuda_driver;
  sources.library = load_library;
  sources.list_providers = run_fi_info;
  sources.fabric_providers = ask_fabric;
  sources.interfaces = ask_interfaces;
  sources.space = space_in;
  sources.make_memory_file = can_make_memory_file;
  sources.environment = environment_of;
  sources.variables = all_variables;
  sources.host_rings = [](const std::string& name) {
    return proxy::HostRings::look_at(proxy::HostRings::path_of(name));
  };
  return sources;
}

std::string Sources::text(const std::string& path) const {
  std::ifstream file(root / path, std::ios::binary);
  std::string all;
  char part[4096];
  while (all.size() < kTextBytesMax && (file.read(part, sizeof part), file.gcount() > 0)) {
    all.append(part, static_cast<std::size_t>(file.gcount()));
  }
  return all;
}

std::string Sources::line(const std::string& path) const {
  const std::string all = text(path);
  return all.substr(0, all.find('\n'));
}

std::vector<std::string> Sources::names(const std::string& path) const {
  std::vector<std::string> names;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(root / path, error), end; !error && entry != end;
       entry.increment(error)) {
    names.push_back(entry->path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

bool Sources::exists(const std::string& path) const {
  std::error_code error;
  return std::filesystem::exists(root / path, error);
}

proxy::CpuShape shape_of(const Sources& sources) {
  if (sources.built_for != "cpu") return proxy::CpuShape::cpu;
  try {
    return proxy::parse_cpu_shape(sources.environment("GPUSOCK_CPU_SHAPE").value_or(""));
  } catch (const Error&) {
    return proxy::CpuShape::cpu;  // probe_environment() reports it
  }
}

std::optional<unsigned> number_of(const std::string& text) {
  unsigned number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() ? std::optional(number) : std::nullopt;
}

std::string value_of(const std::string& text, std::string_view name) {
  std::size_t start = 0;
  while (start < text.size()) {
    const std::size_t end = std::min(text.find('\n', start), text.size());
    const std::string_view line(text.data() + start, end - start);
    const std::size_t colon = line.find(':');
    if (line.starts_with(name) && colon != std::string_view::npos &&
        line.substr(name.size(), colon - name.size()).find_first_not_of(" \t") == std::string_view::npos) {
      const std::size_t value = line.find_first_not_of(" \t", colon + 1);
      return value == std::string_view::npos ? std::string() : std::string(line.substr(value));
    }
    start = end + 1;
  }
  return {};
}

}  // namespace gpusock::doctor
