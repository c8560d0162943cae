#include "gpusock/context/options.hpp"

#include "gpusock/endpoint.hpp"
#include "host_proxy/base/cpu_shape.hpp"
#include "host_proxy/base/log.hpp"
#include "host_proxy/base/processors.hpp"
#include "host_proxy/links/fabric/provider_name.hpp"
#include "host_proxy/memory/host_rings.hpp"
#include "host_proxy/memory/segment.hpp"

#include <charconv>
#include <cstdlib>
#include <string_view>

#include <sys/stat.h>

namespace gpusock {
namespace {

[[noreturn]] void reject(const std::string& what) { throw Error::with_cause(EINVAL, what); }

int parse_gpu(std::string_view text) {
  int value = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || value < 0) {
    reject("GPUSOCK_GPU='" + std::string(text) + "' is not a GPU's number: 0 is the first");
  }
  return value;
}

bool parse_gpudirect(std::string_view text) {
  if (text != "auto" && text != "off") reject("GPUSOCK_GPUDIRECT='" + std::string(text) + "' must be auto or off");
  return text == "auto";
}

std::optional<bool> parse_spin(std::string_view text) {
  if (text != "auto" && text != "on" && text != "off") {
    reject("GPUSOCK_SPIN='" + std::string(text) + "' must be auto, on or off");
  }
  return text == "auto" ? std::optional<bool>() : text == "on";
}

/// Returns the folder of the page that gpusock-top reads; empty for "off".
std::string parse_folder(std::string_view text) {
  if (text == "off") return {};
  if (!text.starts_with('/')) reject("GPUSOCK_OBSERVE='" + std::string(text) + "' must be an absolute path, or off");
  std::string folder(text);
  struct stat found {};
  if (stat(folder.c_str(), &found) != 0 || !S_ISDIR(found.st_mode)) {
    reject("GPUSOCK_OBSERVE='" + folder + "' is no folder: make it (mkdir -p), or unset the variable");
  }
  return folder;
}

/// Checks only the form of a provider's name. The first connection that needs it finds out whether libfabric has it.
std::string parse_provider(std::string_view text) {
  if (!proxy::is_fabric_provider_name(text)) {
    reject("GPUSOCK_FABRIC_PROVIDER='" + std::string(text) +
           "' must be one provider's name as fi_info prints it, like tcp or verbs;ofi_rxm");
  }
  return std::string(text);
}

void check_log_level(std::string_view text) {
  if (proxy::is_log_level(text)) return;
  reject("GPUSOCK_LOG='" + std::string(text) + "' must be trace, debug, info, warn, error or off");
}

void check_processors(const std::string& text) {
  if (text == "near" || text == "any" || !proxy::usable(proxy::parse_processors(text)).empty()) return;
  reject("GPUSOCK_PROCESSORS='" + text +
         "' must be near, any, or a list like 0-3,8 with a processor that this process may use");
}

void parse_host_rings(std::string_view text, Options& options) {
  const auto chosen = proxy::HostRings::parse(text);
  if (!chosen) {
    reject("GPUSOCK_HOST_RINGS='" + std::string(text) +
           "' must be auto, off, NAME or NAME,connections=N: a name has 1 to 64 letters, digits, '.', '_' or '-', N is "
           "1 to " +
           std::to_string(proxy::HostRings::kConnectionsMax));
  }
  options.host_rings = chosen->name;
  options.host_connections_max = chosen->connections.value_or(options.host_connections_max);
}

const char* environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr || *value == '\0' ? nullptr : value;
}

}  // namespace

Options Options::from_env() {
  Options options;
  if (const char* gpu = environment("GPUSOCK_GPU")) options.gpu = parse_gpu(gpu);
  if (const char* secret = environment("GPUSOCK_SECRET")) options.secret = secret;
  if (const char* ring = environment("GPUSOCK_RING")) options.ring = parse_ring_placement(ring);
  if (const char* words = environment("GPUSOCK_WORDS")) options.words = parse_ring_placement(words, "GPUSOCK_WORDS");
  if (const char* gpudirect = environment("GPUSOCK_GPUDIRECT")) options.gpudirect = parse_gpudirect(gpudirect);
  if (const char* rings = environment("GPUSOCK_HOST_RINGS")) parse_host_rings(rings, options);
  if (const char* provider = environment("GPUSOCK_FABRIC_PROVIDER")) options.fabric_provider = parse_provider(provider);
  if (const char* processors = environment("GPUSOCK_PROCESSORS")) options.processors = processors;
  check_processors(options.processors);
  if (const char* spin = environment("GPUSOCK_SPIN")) options.spin = parse_spin(spin);
  if (const char* folder = environment("GPUSOCK_OBSERVE")) options.observe = parse_folder(folder);
  // These set no option of a context. They are checked here so that a program learns of every wrong variable when it
  // starts.
  if (const char* level = environment("GPUSOCK_LOG")) check_log_level(level);
  proxy::cpu_shape_from_env();
  proxy::group_calls_from_env();
  detail::default_link();
  return options;
}

void detail::check(const Options& options) {
  if (options.sockets_max < 1 || options.sockets_max > 4096) {
    reject("Options::sockets_max is " + std::to_string(options.sockets_max) + "; it must be from 1 to 4096");
  }
  const std::uint64_t ring = options.ring_bytes;
  if (ring != 0 && !is_ring_size(ring)) {
    reject("Options::ring_bytes is " + std::to_string(ring) + "; it must be 0 or a power of two from 4096 to 67108864");
  }
  if (options.connections_max < 1) reject("Options::connections_max must be at least 1");
  if (!options.host_rings.empty() && !proxy::HostRings::is_name(options.host_rings)) {
    reject("Options::host_rings is '" + options.host_rings + "'; a name has 1 to 64 letters, digits, '.', '_' or '-'");
  }
  if (!proxy::HostRings::is_count(options.host_connections_max)) {
    reject("Options::host_connections_max is " + std::to_string(options.host_connections_max) +
           "; it must be from 1 to " + std::to_string(proxy::HostRings::kConnectionsMax));
  }
  if (options.handshake_timeout_ns == 0) reject("Options::handshake_timeout_ns must not be 0");
  if (options.timeout_ns == 0) reject("Options::timeout_ns must not be 0; kForever lets calls wait for ever");
  check_processors(options.processors);
}

}  // namespace gpusock
