#include "foreign/plan.hpp"

#include <fmt/format.h>

#include <utility>

namespace param_sync::foreign {
namespace {

struct Name {
  const char* text;
  Collective collective;
};

constexpr Name kNames[] = {
    {"allreduce", Collective::all_reduce},
    {"allgather", Collective::all_gather},
    {"reducescatter", Collective::reduce_scatter},
    {"reduce_scatter", Collective::reduce_scatter},
    {"alltoall", Collective::all_to_all},
    {"broadcast", Collective::broadcast},
    {"reduce", Collective::reduce},
    {"sendrecv", Collective::send_receive},
};

const char* word(Buffer buffer) {
  switch (buffer) {
    case Buffer::input:
      return "input";
    case Buffer::output:
      return "output";
    case Buffer::scratch:
      return "scratch";
    case Buffer::packets:
      return "scratch packet";
  }
  return "";
}

}  // namespace

const char* to_string(Collective collective) {
  for (const Name& name : kNames) {
    if (name.collective == collective) return name.text;
  }
  return "";
}

Collective parse_collective(const std::string& text) {
  for (const Name& name : kNames) {
    if (text == name.text) return name.collective;
  }
  throw Error(fmt::format("the collective \"{}\" is none that we can prove", text.substr(0, 40)));
}

Sizes sizes_of(Collective collective, int ranks, int data_chunks) {
  const bool is_shared = collective == Collective::all_gather || collective == Collective::reduce_scatter ||
                         collective == Collective::all_to_all;
  if (is_shared && data_chunks % ranks != 0) {
    throw Error(fmt::format("{} ranks cannot share {} chunks evenly", ranks, data_chunks));
  }
  Sizes sizes{data_chunks, data_chunks, 0};
  if (collective == Collective::all_gather) sizes.input = data_chunks / ranks;
  if (collective == Collective::reduce_scatter) sizes.output = data_chunks / ranks;
  return sizes;
}

int offset_in_place(const Plan& plan, int rank) {
  const bool has_parts = plan.collective == Collective::all_gather || plan.collective == Collective::reduce_scatter;
  return has_parts ? rank * (plan.data_chunks / plan.ranks) : 0;
}

std::string location(const Plan& plan, const Block& block, const Step& step) {
  const std::string loop = step.iteration == kNone ? "" : fmt::format(", iteration {}", step.iteration);
  return fmt::format("rank {}, thread block {}, {} {} ({}){}", block.rank, block.id, plan.steps_called, step.index,
                     step.name, loop);
}

std::string name_of(const Plan& plan, const Place& place) {
  const std::string slice = plan.slices == 1 ? ""
                                             : fmt::format(" (slice {} of {})", place.cell % plan.slices, plan.slices);
  return fmt::format("{} chunk {}{} of rank {}", word(place.buffer), place.cell / plan.slices, slice, place.rank);
}

}  // namespace param_sync::foreign
