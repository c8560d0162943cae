#pragma once
/// @file Open MPI's all-reduce beside ours.

#include <cstdint>
#include <string>

namespace param_sync::commands {

/// The median seconds of MPI_Allreduce on floats, between so many processes of this machine. Runs mpirun with the
/// program param_sync-mpi, which lies beside this one where MPI was found when it was built. `link`: "tcp" is Open
/// MPI's tcp, everything else what Open MPI takes itself. Throws schedule::Error: what is missing.
double mpi_all_reduce_s(int nodes, const std::string& link, std::uint64_t bytes, int repeats);

}  // namespace param_sync::commands
