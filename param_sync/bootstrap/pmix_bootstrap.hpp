#pragma once
/// @file Bootstrap for ranks of a launcher with PMIx (mpirun, srun --mpi=pmix): PMIx gives rank, size and addresses.

#include "param_sync/bootstrap/bootstrap.hpp"

namespace param_sync::bootstrap {

/// True if PMIx can be used here: the library was built with it, and libpmix is installed.
bool pmix_is_there();

/// Asks PMIx for rank and size. The result's destructor tells PMIx that this process ends. Throws gpusock::Error.
std::unique_ptr<Bootstrap> make_pmix_bootstrap(std::uint64_t timeout_ns);

}  // namespace param_sync::bootstrap
