#pragma once
/// @file Open MPI's rules for all-reduces: the baseline for our chooser.

#include "tune/chooser.hpp"

namespace param_sync::tune {

/// What Open MPI takes for a commutative all-reduce by its fixed rules, by ranks and bytes: those of coll/tuned from
/// version 4.1 on (ompi_coll_tuned_allreduce_intra_dec_fixed in coll_tuned_decision_fixed.c). Its algorithms are ours
/// under other names: recursive doubling is `butterfly`, Rabenseifner's is `rhd`. Its segmented ring is a plain one
/// here, as the rules give no segment size. A reduction and a broadcast one after the other are `tree:binary` with one
/// chunk.
Candidate open_mpi_choice(int nodes, double bytes);

}  // namespace param_sync::tune
