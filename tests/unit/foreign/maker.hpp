#pragma once
// Small plans, made step by step.
#include "foreign/plan.hpp"

#include <random>
#include <vector>

namespace foreign_test {

using namespace param_sync::foreign;

/// A plan that is made step by step. Blocks are numbered over all ranks.
class Maker {
 public:
  Maker(Collective collective, int ranks, int chunks, int scratch_chunks = 0, bool in_place = true);

  int block(int rank);
  int connection(int from, int to);
  int counter(int initial = 0);
  int barrier(int blocks);
  int queue(int rank);

  Step& move(int block, std::vector<Place> from, std::vector<Place> to, int count = 1);
  Step& send(int block, int connection, Place from, int count = 1);
  Step& receive(int block, int connection, Place to, int count = 1);
  Step& receive_add(int block, int connection, Place place, int count = 1);
  Step& await(int block, int other, int step);
  Step& signal(int block, int counter);
  Step& wait(int block, int counter);
  Step& meet(int block, int barrier);
  Step& sync(int block);
  Step& flush(int block, int queue);

  /// Threads meet only where `sync` says so, as in MSCCL++.
  Maker& without_syncs();

  Plan plan;

 private:
  Step& add(int block, Kind kind, const char* name);
};

inline Place in(int rank, int cell) { return {rank, Buffer::input, cell}; }
inline Place out(int rank, int cell) { return {rank, Buffer::output, cell}; }
inline Place scratch(int rank, int cell) { return {rank, Buffer::scratch, cell}; }
inline Place packet(int rank, int cell, bool waits = false) { return {rank, Buffer::packets, cell, waits}; }

/// An all-reduce on a ring of so many ranks, in place, with a block for each rank.
Plan ring(int ranks);

/// An all-reduce of two ranks: a block receives into scratch memory, and another one awaits it and adds.
Plan pair_with_awaits();

/// An all-reduce of two ranks by writes into each other's scratch memory, with counters, as in MSCCL++.
Plan pair_with_counters();

/// Right plans, with a little of each thing that the search of all orders knows.
std::vector<Plan> right_plans();

/// Changes one thing of a plan.
void mutate(Plan& plan, std::mt19937& random);

/// True if a reader could have read the plan.
bool could_be_read(const Plan& plan);

}  // namespace foreign_test
