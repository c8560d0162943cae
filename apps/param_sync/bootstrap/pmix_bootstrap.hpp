#pragma once
/// @file Nodes that a launcher with PMIx has started (mpirun, srun --mpi=pmix): rank, size and addresses come from it.

#include "bootstrap/bootstrap.hpp"

namespace param_sync {

/// True if PMIx can be used here: this program was built with it, and libpmix is installed.
bool pmix_is_there();

/// Sets `config`'s rank and number of nodes. The job's end is announced to PMIx when the result goes. Throws
/// gpusock::Error.
std::unique_ptr<Bootstrap> make_pmix_bootstrap(Config& config);

}  // namespace param_sync
