#pragma once
/// @file Open MPI's rules for all-reduces: the baseline for our chooser.

#include "tune/chooser.hpp"

namespace param_sync::tune {

/// Returns what Open MPI's fixed rules take for a commutative all-reduce of so many ranks and bytes. They are the
/// rules of coll/tuned since version 4.1 (ompi_coll_tuned_allreduce_intra_dec_fixed in coll_tuned_decision_fixed.c).
/// Its algorithms have other names here: recursive doubling is `butterfly`, Rabenseifner's is `rhd`, a reduction
/// followed by a broadcast is `tree:binary` with one chunk. Its segmented ring is `ring`, since the rules give no
/// segment size.
Candidate open_mpi_choice(int nodes, double bytes);

}  // namespace param_sync::tune
