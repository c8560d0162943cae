#pragma once
/// @file The cells of all ranks' buffers: what each holds, and which steps have used it.

#include "foreign/contents.hpp"
#include "foreign/plan.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace param_sync::foreign {

/// By lane: how many units of its work are known to be done: a vector clock.
using Clock = std::vector<std::uint32_t>;

/// Takes the later one of both, for each lane.
void join(Clock& clock, const Clock& other);

/// An access to a cell.
struct Access {
  int lane = kNone;            ///< who
  std::uint32_t epoch = 0;     ///< its unit, from 1
  const Step* step = nullptr;  ///< nullptr: the caller of the plan
  int unit = 0;                ///< the cell is this one of those that the step uses, from 0
};

/// A cell of memory.
struct Cell {
  Contents::Id value = Contents::kNothing;
  Access write;                          ///< the last write
  std::vector<Access> reads;             ///< reads since then; of a lane only the last one
  int call = kNone;                      ///< packets: the call that wrote its flag
  std::shared_ptr<const Clock> written;  ///< packets: the clock of the first write in this call
};

/// All cells.
class Memory {
 public:
  /// Throws Error if there are more than kCellsMax.
  Memory(const Plan& plan, bool in_place);

  /// The cell that is the `unit`-th from `place` on, in the `call`-th call.
  Cell& at(const Place& place, int unit, int call) { return cells_[index(place, unit, call)]; }
  const Cell& at(const Place& place, int unit, int call) const { return cells_[index(place, unit, call)]; }
  std::size_t index(const Place& place, int unit, int call) const;

 private:
  struct Rank {
    std::size_t input, output, scratch, packets;  ///< their first cells
    std::size_t scratch_cells;                    ///< of one of the scratch buffers that calls take turns with
  };

  bool doubles_scratch_;
  std::vector<Rank> ranks_;
  std::vector<Cell> cells_;
};

/// What a cell of a rank's output should hold at the end: Contents::kNothing if it may hold anything.
Contents::Id expected(const Plan& plan, Contents& contents, int rank, int cell);

}  // namespace param_sync::foreign
