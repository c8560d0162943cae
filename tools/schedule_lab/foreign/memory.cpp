#include "foreign/memory.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace param_sync::foreign {

void join(Clock& clock, const Clock& other) {
  for (std::size_t i = 0; i < clock.size(); ++i) clock[i] = std::max(clock[i], other[i]);
}

Memory::Memory(const Plan& plan, bool in_place) : doubles_scratch_(plan.doubles_scratch) {
  const Sizes collective = sizes_of(plan.collective, plan.ranks, plan.data_chunks);
  const auto cells = [&plan](int chunks) {
    return static_cast<std::size_t>(chunks) * static_cast<std::size_t>(plan.slices);
  };
  std::size_t end = 0;
  for (int rank = 0; rank < plan.ranks; ++rank) {
    const Sizes& sizes = plan.sizes[static_cast<std::size_t>(rank)];
    const std::size_t input = cells(std::max(sizes.input, collective.input));
    const std::size_t output = cells(std::max(sizes.output, collective.output));
    const std::size_t scratch = cells(sizes.scratch);
    const std::size_t offset = cells(offset_in_place(plan, rank));
    const bool is_scattered = plan.collective == Collective::reduce_scatter;
    Rank made{end, end, 0, 0, scratch};
    if (in_place) {
      (is_scattered ? made.output : made.input) += offset;
      end = std::max(made.input + input, made.output + output);
    } else {
      made.output += input;
      end += input + output;
    }
    made.scratch = end;
    end += scratch * (doubles_scratch_ ? 2 : 1);
    made.packets = end;
    end += scratch * (doubles_scratch_ ? 2 : 1);
    ranks_.push_back(made);
    if (end > static_cast<std::size_t>(kCellsMax)) {
      throw Error(fmt::format("its buffers have more than {} cells in all", kCellsMax));
    }
  }
  cells_.resize(end);
}

std::size_t Memory::index(const Place& place, int unit, int call) const {
  const Rank& rank = ranks_[static_cast<std::size_t>(place.rank)];
  const auto cell = static_cast<std::size_t>(place.cell) + static_cast<std::size_t>(unit);
  const std::size_t turn = doubles_scratch_ && call % 2 == 1 ? rank.scratch_cells : 0;
  switch (place.buffer) {
    case Buffer::input:
      return rank.input + cell;
    case Buffer::output:
      return rank.output + cell;
    case Buffer::scratch:
      return rank.scratch + turn + cell;
    case Buffer::packets:
      return rank.packets + turn + cell;
  }
  return 0;
}

Contents::Id expected(const Plan& plan, Contents& contents, int rank, int cell) {
  const int part = plan.data_chunks / plan.ranks * plan.slices;  // of those that ranks share
  const auto sum = [&plan, &contents](int at) {
    Contents::Id all = contents.part({0, at});
    for (int from = 1; from < plan.ranks; ++from) all = contents.sum(all, contents.part({from, at}));
    return all;
  };
  switch (plan.collective) {
    case Collective::all_reduce:
      return sum(cell);
    case Collective::reduce:
      return rank == plan.root ? sum(cell) : Contents::kNothing;
    case Collective::reduce_scatter:
      return sum(rank * part + cell);
    case Collective::all_gather:
      return contents.part({cell / part, cell % part});
    case Collective::all_to_all:
      return contents.part({cell / part, rank * part + cell % part});
    case Collective::broadcast:
      return contents.part({plan.root, cell});
    case Collective::send_receive:
      return contents.part({(rank + plan.ranks - 1) % plan.ranks, cell});
  }
  return Contents::kNothing;
}

}  // namespace param_sync::foreign
