// Options, from the environment and set by a program, and what launchers say in the environment: taken or refused with
// EINVAL.
#include "gpusock/context/options.hpp"
#include "gpusock/endpoint.hpp"
#include "param_sync/bootstrap/hostlist.hpp"
#include "param_sync/bootstrap/launch.hpp"
#include "tests/fuzz/target.hpp"

#include <cerrno>
#include <cstdlib>
#include <map>

namespace gpusock::fuzz::of_options {
namespace {

constexpr const char* kVariables[] = {
    "GPUSOCK_GPU",        "GPUSOCK_SECRET",       "GPUSOCK_OBSERVE",      "GPUSOCK_FABRIC_PROVIDER",
    "GPUSOCK_LINK",       "GPUSOCK_RANK",         "GPUSOCK_SIZE",         "GPUSOCK_PEERS",
    "GPUSOCK_RENDEZVOUS", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "RANK",
    "WORLD_SIZE",         "MASTER_ADDR",          "MASTER_PORT",          "TORCHELASTIC_USE_AGENT_STORE",
    "SLURM_PROCID",       "SLURM_NTASKS",         "SLURM_STEP_NODELIST",  "SLURM_STEP_NUM_NODES",
    "SLURM_JOB_NODELIST", "SLURM_JOB_NUM_NODES",  "SLURM_JOB_ID",         "SLURM_STEP_ID",
    "PMIX_RANK",          "PMIX_NAMESPACE"};

/// Does this; an Error must be EINVAL (or ENOENT, for a name), anything else is thrown on.
template <class Do>
void refuse_or(Do what) {
  try {
    what();
  } catch (const Error& error) {
    FUZZ_CHECK(error.code().value() == EINVAL || error.code().value() == ENOENT);
    FUZZ_CHECK(*error.what() != '\0');
  }
}

void check_launch(const param_sync::bootstrap::Launch& launch) {
  FUZZ_CHECK(launch.size >= 1 && launch.size <= param_sync::bootstrap::kRanksMax);
  FUZZ_CHECK(launch.rank >= 0 && launch.rank < launch.size);
  FUZZ_CHECK(launch.peers.empty() || launch.peers.size() == static_cast<std::size_t>(launch.size));
}

}  // namespace

/// The first byte of a line says which variable, the rest of it is its text; "=" and eight numbers are Options.
FUZZ_TARGET(options) {
  std::map<std::string, std::string> environment;
  Options set;
  std::string_view text = input.rest();
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    if (line.empty()) continue;
    if (line[0] == '=') {
      Input numbers({reinterpret_cast<const std::uint8_t*>(line.data()) + 1, line.size() - 1});
      set.sockets_max = numbers.take<std::uint32_t>();
      set.ring_bytes = numbers.take<std::uint64_t>();
      set.connections_max = numbers.take<std::uint32_t>();
      set.handshake_timeout_ns = numbers.take<std::uint64_t>();
      continue;
    }
    const std::string value(line.substr(1));
    environment[kVariables[static_cast<unsigned char>(line[0]) % std::size(kVariables)]] = value.c_str();  // to its
                                                                                                           // first zero
  }
  for (const char* name : kVariables) {
    const auto found = environment.find(name);
    found == environment.end() ? unsetenv(name) : setenv(name, found->second.c_str(), 1);
  }
  refuse_or([] { detail::check(Options::from_env()); });
  refuse_or([&] {
    detail::check(set);
    FUZZ_CHECK(set.sockets_max >= 1 && set.sockets_max <= 4096 && set.ring_bytes <= kRingBytesMax);
  });
  refuse_or([] { Endpoint::parse("127.0.0.1:1"); });  // GPUSOCK_LINK
  for (const bool with_pmix : {false, true}) {
    refuse_or([&] {
      const auto launch = param_sync::bootstrap::read_launch([](const char* name) { return std::getenv(name); },
                                                             with_pmix);
      if (launch && !launch->pmix) check_launch(*launch);
    });
  }
  refuse_or([&] {
    const auto hosts = param_sync::bootstrap::expand_hosts(environment["SLURM_JOB_NODELIST"]);
    FUZZ_CHECK(hosts.size() <= param_sync::bootstrap::kHostsMax);
  });
  for (const char* name : kVariables) unsetenv(name);
}

}  // namespace gpusock::fuzz::of_options
