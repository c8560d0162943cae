#pragma once
/// @file Which rank this process is, if a launcher (mpirun, srun, torchrun, ./run cluster, Kubernetes) has started all
/// ranks.

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace param_sync::bootstrap {

inline constexpr int kRanksMax = 64;  ///< of a launcher

/// What a launcher says. Exactly one of `peers`, `rendezvous` and `pmix` tells how the ranks find each other; none
/// where there is one rank only.
struct Launch {
  int rank = 0;                      ///< of this process
  int size = 0;                      ///< 0: only PMIx knows
  std::string source{};              ///< the variable that holds the rank, for messages
  std::vector<std::string> peers{};  ///< HOST:PORT of each rank
  std::string rendezvous{};          ///< HOST:PORT where rank 0 waits for the others
  bool pmix = false;                 ///< by PMIx, which may also know the rank and size better
};

/// What is wrong with a list of the ranks' addresses, or nothing: two ranks have the same.
std::string problem_of_peers(const std::vector<std::string>& peers);

/// A variable's value, or nullptr: std::getenv, or a test's.
using Environment = std::function<const char*(const char*)>;

/// What the environment says; nothing where no launcher is at work. `with_pmix`: could PMIx be asked. The rank is,
/// first of all, GPUSOCK_RANK (with GPUSOCK_SIZE), OMPI_COMM_WORLD_RANK (OMPI_COMM_WORLD_SIZE), RANK (WORLD_SIZE) or
/// SLURM_PROCID (SLURM_NTASKS); PMIX_RANK alone will do with PMIx. The ranks meet by GPUSOCK_PEERS, GPUSOCK_RENDEZVOUS,
/// PMIx, MASTER_ADDR and MASTER_PORT, or on the first host of Slurm's list. Throws gpusock::Error (EINVAL) that names
/// the variables where they are half set or contradict each other.
std::optional<Launch> read_launch(const Environment& variable, bool with_pmix);

/// The same of this process's environment. PMIx is asked if the library was built with it and libpmix is installed.
std::optional<Launch> read_launch();

}  // namespace param_sync::bootstrap
