#pragma once
/// @file Which rank this process is, if a launcher (mpirun, srun, torchrun, ./run cluster, Kubernetes) has started all
/// ranks.

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace param_sync::bootstrap {

inline constexpr int kRanksMax = 64;  ///< most ranks of a run

/// The settings of a launcher. Exactly one of `peers`, `rendezvous` and `pmix` says how the ranks find each other; none
/// is needed if there is only one rank.
struct Launch {
  int rank = 0;                      ///< rank of this process
  int size = 0;                      ///< number of ranks; 0: only PMIx knows it
  std::string source{};              ///< the variable that holds the rank, for messages
  std::vector<std::string> peers{};  ///< HOST:PORT of each rank
  std::string rendezvous{};          ///< HOST:PORT where rank 0 waits for the others
  bool pmix = false;                 ///< true: by PMIx, whose rank and size count instead of those above
};

/// Says which two ranks have the same address in a list of the ranks' addresses. Empty if all differ.
std::string problem_of_peers(const std::vector<std::string>& peers);

/// Returns a variable's value, or nullptr: std::getenv, or a function of a test.
using Environment = std::function<const char*(const char*)>;

/// Reads the environment. Returns nullopt if no launcher has set it. `with_pmix` is true if PMIx can be asked. The rank
/// is the first of these that is set: GPUSOCK_RANK (with GPUSOCK_SIZE), OMPI_COMM_WORLD_RANK (OMPI_COMM_WORLD_SIZE),
/// RANK (WORLD_SIZE), SLURM_PROCID (SLURM_NTASKS); with PMIx, PMIX_RANK alone is enough. The ranks meet by the first of
/// GPUSOCK_PEERS, GPUSOCK_RENDEZVOUS, PMIx, MASTER_ADDR with MASTER_PORT, and the first host of Slurm's list. Throws
/// gpusock::Error (EINVAL), which names the variables, if they are incomplete or contradict each other.
std::optional<Launch> read_launch(const Environment& variable, bool with_pmix);

/// Reads this process's environment. Asks PMIx if the library was built with it and libpmix is installed.
std::optional<Launch> read_launch();

}  // namespace param_sync::bootstrap
