#pragma once
/// @file Ranks that a launcher with PMIx has started (mpirun, srun --mpi=pmix): rank, size and addresses come from it.

#include "param_sync/bootstrap/bootstrap.hpp"

namespace param_sync::bootstrap {

/// True if PMIx can be used here: the library was built with it, and libpmix is installed.
bool pmix_is_there();

/// Asks PMIx for rank and size. The job's end is announced to PMIx when the result goes. Throws gpusock::Error.
std::unique_ptr<Bootstrap> make_pmix_bootstrap(std::uint64_t timeout_ns);

}  // namespace param_sync::bootstrap
