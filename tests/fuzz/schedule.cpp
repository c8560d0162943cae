// Files of schedules and topologies: any text is refused with an Error, or what it describes can be written, checked,
// run in virtual time and, for small topologies, packed with trees.
#include "param_sync/schedule/check.hpp"
#include "param_sync/schedule/file.hpp"
#include "param_sync/schedule/packing.hpp"
#include "param_sync/schedule/topology.hpp"
#include "simulate/simulation.hpp"
#include "tests/fuzz/target.hpp"

#include <cmath>

namespace gpusock::fuzz::of_schedule {

using param_sync::schedule::Error;

void run_schedule_text(std::string_view text) {
  const auto schedule = param_sync::schedule::from_json(text);
  FUZZ_CHECK(param_sync::schedule::from_json(param_sync::schedule::to_json(schedule)) == schedule);
  if (schedule.nodes() * static_cast<long>(schedule.chunks) > 4096) return;
  const auto counts = param_sync::schedule::check(schedule);
  std::uint64_t chunks = 0;
  for (const auto& edge : counts.edges) chunks += edge.chunks;
  FUZZ_CHECK(chunks == counts.chunks_sent());
  const auto timeline = param_sync::simulate::simulate(schedule, 1, {});  // what is right ends
  FUZZ_CHECK(std::isfinite(timeline.end_s));
}

void run_topology_text(std::string_view text) {
  const auto topology = param_sync::schedule::topology_from_json(text);
  FUZZ_CHECK(topology.nodes() == 1 || topology.min_cut() > 0);
  if (topology.nodes() > 6) return;
  double sum = 0;
  for (const auto& packed : param_sync::schedule::pack_trees(topology)) sum += packed.bandwidth;
  FUZZ_CHECK(sum <= topology.min_cut() * 1.000001);
}

FUZZ_TARGET(schedule) {
  const bool topology = input.below(2) == 1;
  try {
    if (topology) {
      run_topology_text(input.rest());
    } else {
      run_schedule_text(input.rest());
    }
  } catch (const Error&) {
  }
}

}  // namespace gpusock::fuzz::of_schedule
