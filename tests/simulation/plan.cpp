#include "tests/simulation/plan.hpp"

#include <algorithm>
#include <iterator>

namespace gpusock::sim {
namespace {

constexpr const char* kFaults[] = {"partition", "reset",     "half_reset", "crash", "kill",  "stall",
                                   "no_files",  "no_memory", "cancel",     "slow",  "fabric"};
constexpr const char* kEndings[] = {"orderly", "at once", "reset", "midway"};
constexpr const char* kManners[] = {"copy", "whole", "zero_copy", "polled"};

PlannedWay make_way(Random& random, const Plan& plan, bool records) {
  PlannedWay way;
  way.bytes = random.one_in(4) ? 0 : random.magnitude(1, 5 * plan.ring_bytes);
  way.piece_bytes = random.magnitude(64, records ? plan.ring_bytes / 4 : 3 * plan.ring_bytes);
  if (random.one_in(20) && !records) {  // past the rings
    way.bytes = 20'000 + random.below(30'000);
    way.piece_bytes = 20'000;
  }
  way.piece_bytes = std::max(way.piece_bytes, way.bytes / 50);
  way.sending = static_cast<Manner>(random.below(4));
  way.receiving = static_cast<Manner>(random.below(4));
  if (random.one_in(5)) way.pause_ns = random.magnitude(1'000, 2'000'000);
  way.senders = records ? static_cast<int>(random.between(1, 3)) : 1;
  return way;
}

constexpr LinkKind kLinks[] = {LinkKind::tcp, LinkKind::automatic, LinkKind::p2p, LinkKind::fabric, LinkKind::verbs};

/// `alike`: by which link all of the plan's connections are asked for; nullptr: each by its own.
PlannedConnection make_connection(Random& random, const Plan& plan, const LinkKind* alike) {
  PlannedConnection connection;
  connection.client = static_cast<std::uint32_t>(random.below(plan.processes.size()));
  connection.server = static_cast<std::uint32_t>(random.below(plan.processes.size()));
  const bool together = plan.processes[connection.client].host == plan.processes[connection.server].host;
  connection.link = alike != nullptr ? *alike : kLinks[random.below(std::size(kLinks))];
  if (connection.link == LinkKind::p2p && !together) connection.link = LinkKind::automatic;
  if (connection.link == LinkKind::fabric && !plan.fabric) connection.link = LinkKind::automatic;
  if (connection.link == LinkKind::verbs && !plan.verbs) connection.link = LinkKind::automatic;
  connection.records = connection.link != LinkKind::tcp && random.one_in(3);
  connection.by_loopback = together && random.one_in(2);
  connection.start_ns = random.magnitude(1, 2'000'000);
  connection.deadline_ns = random.magnitude(100'000, 5'000'000'000);
  for (PlannedWay& way : connection.ways) way = make_way(random, plan, connection.records);
  for (Ending& ending : connection.endings) {
    ending = random.percent(65) ? Ending::orderly : static_cast<Ending>(random.between(1, 3));
  }
  connection.midway_ns = random.magnitude(100, 300'000);
  if (random.one_in(3)) {
    connection.times = static_cast<int>(random.between(2, 5));
    for (PlannedWay& way : connection.ways) way.bytes /= 4;
  }
  connection.knocks_first = random.one_in(8);
  return connection;
}

PlannedFault make_fault(Random& random, const Plan& plan) {
  PlannedFault fault;
  fault.kind = static_cast<FaultKind>(random.below(std::size(kFaults)));
  fault.time_ns = random.magnitude(1'000, 20'000'000);
  fault.duration_ns = random.magnitude(1'000, 4'000'000'000);
  fault.target = static_cast<std::uint32_t>(random.below(plan.processes.size()));
  fault.restart = random.one_in(2);
  return fault;
}

/// Two processes that wait for room in each other's rings, when one's host stops without a word: what tells the other
/// one must be its link, which has nothing to write.
void lose_host(Random& random, Plan& plan) {
  plan.hosts = std::max(plan.hosts, 2u);
  plan.processes.resize(2);
  plan.processes[0].host = 0;
  plan.processes[1].host = 1;
  plan.connections.resize(1);
  PlannedConnection& only = plan.connections.front();
  only.client = 0;
  only.server = 1;
  only.link = random.one_in(2) ? LinkKind::fabric : LinkKind::verbs;
  only.records = only.by_loopback = only.knocks_first = false;
  only.times = 1;
  for (PlannedWay& way : only.ways) {
    way.read_late = true;
    way.bytes = 4 * (plan.ring_bytes + plan.wire.buffer_bytes);
    way.piece_bytes = plan.ring_bytes;
    way.senders = 1;
    way.pause_ns = 0;
  }
  plan.fabric = plan.verbs = true;
  PlannedFault crash = make_fault(random, plan);
  crash.kind = FaultKind::crash;
  crash.time_ns = random.magnitude(20'000'000, 1'000'000'000);
  crash.target = 1;
  plan.faults.assign(1, crash);
}

}  // namespace

Plan make_plan(std::uint64_t seed) {
  Random random{Random{seed}()};  // else one seed's numbers would be the last one's, shifted
  Plan plan;
  plan.seed = seed;
  plan.turn_accesses = random.magnitude(5, 400);
  plan.hosts = static_cast<std::uint32_t>(random.between(1, 3));
  plan.wire.latency_ns = random.magnitude(1'000, 2'000'000);
  plan.wire.jitter_ns = random.one_in(2) ? plan.wire.latency_ns : 0;
  plan.wire.bytes_per_us = random.magnitude(10, 10'000);
  plan.wire.loss_percent = random.one_in(6) ? random.between(1, 10) : 0;
  plan.wire.buffer_bytes = random.magnitude(300, 32 << 10);
  plan.wire.segment_bytes = random.magnitude(20, 8 << 10);
  plan.wire.spurious_percent = random.one_in(4) ? random.between(1, 30) : 0;
  plan.wire.ports = random.one_in(4) ? random.between(1, 4) : 0;
  plan.wire.full_percent = random.one_in(4) ? random.below(90) : 0;
  // What takes several connections of one link to go wrong is rare among five of them.
  const LinkKind* alike = random.one_in(3) ? &kLinks[random.below(std::size(kLinks))] : nullptr;
  plan.fabric = random.one_in(2) || (alike != nullptr && *alike == LinkKind::fabric);
  plan.fabric_disorder_ns = random.magnitude(100, 1'000'000);
  plan.fabric_tells_no_loss = plan.fabric_disorder_ns % 2 == 0;  // which is of no matter then
  plan.fabric_refused_percent = random.one_in(2) ? random.below(60) : 0;
  plan.fabric_answers_ns = random.one_in(3) ? random.magnitude(1'000, 500'000'000) : 0;
  plan.fabric_connects_ns = random.one_in(2) ? random.magnitude(1'000, 3'000'000) : 0;
  plan.verbs = random.one_in(3) || (alike != nullptr && *alike == LinkKind::verbs);
  plan.card_delay_ns = random.magnitude(100, 1'000'000);
  plan.ring_bytes = std::uint64_t{4096} << (random.one_in(3) ? random.between(1, 2) : 0);
  plan.sockets_max = static_cast<std::uint32_t>(random.between(4, 8));  // of which three may listen
  plan.backlog = static_cast<int>(random.between(1, 8));
  plan.holds_back = random.one_in(2);
  const std::uint64_t processes = random.between(1, 3);
  for (std::uint64_t i = 0; i < processes; ++i) {
    PlannedProcess process;
    process.host = static_cast<std::uint32_t>(random.below(plan.hosts));
    process.assist = random.one_in(2);
    process.device_rings = random.one_in(5);
    const std::uint64_t nic = random.between(1, 8);
    process.gpudirect = nic % 2 == 0;
    process.flushed = nic % 4 == 0;
    process.device_words = nic % 3 == 0;
    process.copy_bytes_max = std::uint64_t{256} << random.below(6);
    process.hasty = random.one_in(6);
    plan.processes.push_back(process);
  }
  const std::uint64_t connections = random.between(1, 4);
  for (std::uint64_t i = 0; i < connections; ++i) plan.connections.push_back(make_connection(random, plan, alike));
  const std::uint64_t faults = random.percent(45) ? 0 : random.between(1, 3);
  for (std::uint64_t i = 0; i < faults; ++i) plan.faults.push_back(make_fault(random, plan));
  plan.looks_ns = random.one_in(2) ? random.magnitude(1'000'000, 1'000'000'000) : 0;
  for (PlannedConnection& connection : plan.connections) {
    connection.ways[random.below(2)].read_late = random.one_in(6);
    if (!plan.faulty() || !random.one_in(10)) continue;
    for (PlannedWay& way : connection.ways) {  // neither goes on, until something breaks or both lose their patience
      way.read_late = true;
      way.bytes = std::max(way.bytes, 2 * (plan.ring_bytes + plan.wire.buffer_bytes));
      way.piece_bytes = std::max<std::uint64_t>(way.piece_bytes, 512);
    }
  }
  if (plan.processes.size() > 1 && random.one_in(20)) lose_host(random, plan);
  return plan;
}

Plan make_plan(std::uint64_t seed, const Shortage& shortage) {
  Plan plan = make_plan(seed);
  if (!shortage) return plan;
  plan.shortage = shortage;
  plan.faults.clear();
  plan.connections.resize(std::min<std::size_t>(plan.connections.size(), 2));  // each is denied hundreds of things, one
                                                                               // run for each
  for (PlannedConnection& connection : plan.connections) {
    connection.times = 1;
    for (PlannedWay& way : connection.ways) way.bytes = std::min<std::uint64_t>(way.bytes, 2000);
  }
  return plan;
}

std::string describe(const Plan& plan) {
  std::string text = std::to_string(plan.processes.size()) + " processes on " + std::to_string(plan.hosts) +
                     " hosts, rings of " + std::to_string(plan.ring_bytes) + ", " + std::to_string(plan.sockets_max) +
                     " sockets, a turn every " + std::to_string(plan.turn_accesses) +
                     " accesses; wire: " + std::to_string(plan.wire.latency_ns) + " ns, " +
                     std::to_string(plan.wire.bytes_per_us) + " B/us, " + std::to_string(plan.wire.loss_percent) +
                     " % lost, buffers of " + std::to_string(plan.wire.buffer_bytes) +
                     (plan.wire.spurious_percent == 0 ? "" : ", spurious readiness") +
                     (plan.wire.ports == 0 ? "" : ", ports used again") +
                     (plan.wire.full_percent == 0 ? "" : ", full backlogs") + "\n";
  for (std::size_t i = 0; i < plan.processes.size(); ++i) {
    text += "  process " + std::to_string(i) + " on host " + std::to_string(plan.processes[i].host) +
            (plan.processes[i].assist ? ", callers assist" : "") +
            (plan.processes[i].device_rings ? ", rings on the device" : "") +
            (plan.processes[i].device_words ? ", words on the device" : "") +
            (plan.processes[i].hasty ? ", closes listeners early\n" : "\n");
  }
  for (std::size_t i = 0; i < plan.connections.size(); ++i) {
    const PlannedConnection& connection = plan.connections[i];
    text += "  connection " + std::to_string(i) + ": " + std::to_string(connection.client) + " to " +
            std::to_string(connection.server) + " by " + std::string(to_string(connection.link)) +
            (connection.records ? ", records" : "") + ", deadline " + std::to_string(connection.deadline_ns) + " ns" +
            (connection.times == 1 ? "" : ", " + std::to_string(connection.times) + " times") +
            (connection.knocks_first ? ", knocks first" : "");
    for (int way = 0; way < 2; ++way) {
      const PlannedWay& planned = connection.ways[way];
      text += std::string(way == 0 ? "; out " : "; back ") + std::to_string(planned.bytes) + " B in " +
              std::to_string(planned.piece_bytes) + " (" + kManners[static_cast<int>(planned.sending)] + ", " +
              kManners[static_cast<int>(planned.receiving)] + ", pause " + std::to_string(planned.pause_ns) +
              (planned.read_late ? ", read late" : "") + "), ends " +
              kEndings[static_cast<int>(connection.endings[way])];
    }
    text += '\n';
  }
  if (plan.shortage) text += "  denied: " + to_string(plan.shortage) + "\n";
  for (std::size_t i = 0; i < plan.faults.size(); ++i) {
    const PlannedFault& fault = plan.faults[i];
    text += "  fault " + std::to_string(i) + ": " + kFaults[static_cast<int>(fault.kind)] + " at " +
            std::to_string(fault.time_ns) + " ns for " + std::to_string(fault.duration_ns) + " ns, process " +
            std::to_string(fault.target) + (fault.restart ? ", which comes back\n" : "\n");
  }
  return text;
}

}  // namespace gpusock::sim
