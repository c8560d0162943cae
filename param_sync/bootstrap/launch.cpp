#include "param_sync/bootstrap/launch.hpp"

#include "param_sync/bootstrap/hostlist.hpp"

#include "gpusock/error.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <charconv>

namespace param_sync::bootstrap {
namespace {

/// The names of a launcher's variables for rank and size.
struct Names {
  const char* rank;
  const char* size;
  bool size_alone = false;  // true: size without rank is ignored (salloc and sbatch set it for their shell, not a task)
};
constexpr Names kOurs{"GPUSOCK_RANK", "GPUSOCK_SIZE"};
constexpr Names kOpenMpi{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"};
constexpr Names kTorch{"RANK", "WORLD_SIZE"};
constexpr Names kSlurm{"SLURM_PROCID", "SLURM_NTASKS", true};

constexpr int kPortMax = 65535;
constexpr int kSlurmPorts = 10000;
constexpr int kSlurmPortMin = 20000;

[[noreturn]] void refuse_environment(const std::string& why) { throw gpusock::Error(EINVAL, why); }

std::vector<std::string> split(const std::string& list) {
  std::vector<std::string> all;
  for (std::size_t begin = 0; begin != std::string::npos;) {
    const std::size_t comma = list.find(',', begin);
    all.push_back(list.substr(begin, comma - begin));
    begin = comma == std::string::npos ? comma : comma + 1;
  }
  return all;
}

/// Returns a variable's text, "" if it is not set. An empty variable counts as not set, so that scripts can clear it.
std::string text(const Environment& variable, const char* name) {
  const char* value = variable(name);
  return value == nullptr ? "" : value;
}

int number(const Environment& variable, const char* name, int max) {
  const std::string value = text(variable, name);
  int result = -1;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), result);
  if (error != std::errc{} || end != value.data() + value.size() || result < 0 || result > max) {
    refuse_environment(fmt::format("{}={} is no number from 0 to {}", name, value, max));
  }
  return result;
}

/// Returns rank and size from one launcher's variables; nullopt if that launcher has not set them.
std::optional<Launch> identity(const Environment& variable, const Names& names) {
  const bool has_rank = !text(variable, names.rank).empty();
  const bool has_size = !text(variable, names.size).empty();
  if (!has_rank && (!has_size || names.size_alone)) return std::nullopt;
  if (!has_size) refuse_environment(fmt::format("{} is set, but not {}: set both", names.rank, names.size));
  if (!has_rank) refuse_environment(fmt::format("{} is set, but not {}: set both", names.size, names.rank));
  Launch launch;
  launch.source = names.rank;
  launch.size = number(variable, names.size, 1 << 20);
  launch.rank = number(variable, names.rank, 1 << 20);
  if (launch.size < 1 || launch.size > kRanksMax) {
    refuse_environment(fmt::format("{}={}: there are 1 to {} ranks", names.size, launch.size, kRanksMax));
  }
  if (launch.rank >= launch.size) {
    refuse_environment(fmt::format("{}={} contradicts {}={}: ranks are 0 to {}", names.rank, launch.rank, names.size,
                                   launch.size, launch.size - 1));
  }
  return launch;
}

/// Returns the rank and size that count. Slurm's count only if no other launcher has set any: mpirun and torchrun start
/// their ranks from Slurm's tasks.
std::optional<Launch> identity(const Environment& variable) {
  std::optional<Launch> first;
  for (const Names& names : {kOurs, kOpenMpi, kTorch}) {
    const auto launch = identity(variable, names);
    if (!launch) continue;
    if (!first) {
      first = launch;
    } else if (first->rank != launch->rank || first->size != launch->size) {
      refuse_environment(fmt::format("{} says rank {} of {}, but {} says rank {} of {}: unset the wrong ones",
                                     first->source, first->rank, first->size, launch->source, launch->rank,
                                     launch->size));
    }
  }
  return first ? first : identity(variable, kSlurm);
}

void take_peers(const std::string& list, Launch& launch) {
  launch.peers = split(list);
  const std::string problem = problem_of_peers(launch.peers);
  if (!problem.empty()) refuse_environment("GPUSOCK_PEERS " + problem);
  if (launch.peers.size() == static_cast<std::size_t>(launch.size)) return;
  refuse_environment(
      fmt::format("GPUSOCK_PEERS lists {} addresses, but there are {} ranks: list HOST:PORT of every rank",
                  launch.peers.size(), launch.size));
}

/// Returns where ranks meet: at MASTER_PORT, or at the next port if torchrun's agents say that they use MASTER_PORT.
std::string torch_rendezvous(const Environment& variable, const std::string& host) {
  const bool taken = text(variable, "TORCHELASTIC_USE_AGENT_STORE") == "True";
  const int port = number(variable, "MASTER_PORT", kPortMax);
  if (taken && port == kPortMax) {
    refuse_environment(
        fmt::format("MASTER_PORT={} is torchrun's own, and there is no next port for the ranks to meet "
                    "at: take a lower one",
                    port));
  }
  const bool is_ipv6 = host.find(':') != std::string::npos;
  return fmt::format("{}{}{}:{}", is_ipv6 ? "[" : "", host, is_ipv6 ? "]" : "", port + (taken ? 1 : 0));
}

/// Returns the step's first host, on which Slurm puts rank 0, and a port that other jobs on that host rarely use.
std::string slurm_rendezvous(const Environment& variable) {
  struct {
    const char* list;
    const char* count;
  } constexpr kLists[] = {{"SLURM_STEP_NODELIST", "SLURM_STEP_NUM_NODES"},
                          {"SLURM_JOB_NODELIST", "SLURM_JOB_NUM_NODES"},
                          {"SLURM_NODELIST", "SLURM_NNODES"}};
  for (const auto& [list, count] : kLists) {
    if (text(variable, list).empty()) continue;
    const auto hosts = expand_hosts(text(variable, list));
    if (!text(variable, count).empty() && number(variable, count, 1 << 20) != static_cast<int>(hosts.size())) {
      refuse_environment(
          fmt::format("{} names {} hosts, which contradicts {}={}", list, hosts.size(), count, text(variable, count)));
    }
    int port = 0;
    for (const char* id : {"SLURM_JOB_ID", "SLURM_STEP_ID"}) {
      if (!text(variable, id).empty())
        port = (port * 16 + number(variable, id, 0x7FFFFFFF) % kSlurmPorts) % kSlurmPorts;
    }
    return fmt::format("{}:{}", hosts.size() == 1 ? "127.0.0.1" : hosts.front(), kSlurmPortMin + port);
  }
  return "";
}

}  // namespace

std::string problem_of_peers(const std::vector<std::string>& peers) {
  for (std::size_t rank = 0; rank < peers.size(); ++rank) {
    const auto first = std::find(peers.begin(), peers.end(), peers[rank]) - peers.begin();
    if (static_cast<std::size_t>(first) == rank) continue;
    return fmt::format("gives ranks {} and {} the same address, {}: each rank needs one of its own", first, rank,
                       peers[rank]);
  }
  return "";
}

std::optional<Launch> read_launch(const Environment& variable, bool with_pmix) {
  const std::string peers = text(variable, "GPUSOCK_PEERS"), rendezvous = text(variable, "GPUSOCK_RENDEZVOUS");
  const std::string master = text(variable, "MASTER_ADDR");
  const bool has_pmix = with_pmix && !text(variable, "PMIX_RANK").empty() && !text(variable, "PMIX_NAMESPACE").empty();
  if (!peers.empty() && !rendezvous.empty())
    refuse_environment("GPUSOCK_PEERS and GPUSOCK_RENDEZVOUS are both set: unset one");

  auto launch = identity(variable);
  const bool ours = launch && launch->source == kOurs.rank;
  if (peers.empty() && rendezvous.empty() && has_pmix && !ours) {
    if (!launch) launch = Launch{};
    launch->source = "PMIX_RANK";
    launch->pmix = true;
    return launch;
  }
  if (!launch) {
    if (peers.empty() && rendezvous.empty()) return std::nullopt;
    refuse_environment(fmt::format("{} is set, but nothing says which rank this is: set GPUSOCK_RANK and GPUSOCK_SIZE",
                                   peers.empty() ? "GPUSOCK_RENDEZVOUS" : "GPUSOCK_PEERS"));
  }
  if (!peers.empty()) {
    take_peers(peers, *launch);
  } else if (!rendezvous.empty()) {
    launch->rendezvous = rendezvous;
  } else if (!master.empty() || !text(variable, "MASTER_PORT").empty()) {
    if (master.empty()) refuse_environment("MASTER_PORT is set, but not MASTER_ADDR: set both");
    if (text(variable, "MASTER_PORT").empty()) refuse_environment("MASTER_ADDR is set, but not MASTER_PORT: set both");
    launch->rendezvous = torch_rendezvous(variable, master);
  } else {
    launch->rendezvous = slurm_rendezvous(variable);
  }
  if (launch->size == 1) {
    launch->peers.clear();
    launch->rendezvous.clear();
  } else if (launch->peers.empty() && launch->rendezvous.empty()) {
    refuse_environment(fmt::format(
        "{} says that this is one of {} ranks, but nothing where the others are: set GPUSOCK_RENDEZVOUS=HOST:PORT, "
        "where rank 0 is to wait for them, or GPUSOCK_PEERS=HOST:PORT,... of all ranks",
        launch->source, launch->size));
  }
  return launch;
}

}  // namespace param_sync::bootstrap
