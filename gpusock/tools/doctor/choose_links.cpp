#include "gpusock/tools/doctor/probes.hpp"

namespace gpusock::doctor {
namespace {

constexpr const char* kNotBuilt = "fabric and verbs links are not built in this version";

std::string rings_of(const Facts& facts, bool p2p) {
  if (facts.gpu_build) return "pinned host memory, 1 MiB each";
  return p2p ? "host memory that both map, 2 MiB each" : "host memory, 256 KiB each";
}

/// What GPUSOCK_LINK takes away from peers that have `best`; false where nothing.
bool chosen_otherwise(const Facts& facts, const char* best, LinkChoice& choice) {
  if (!facts.default_link) {
    choice.link = "none";
    choice.why = "GPUSOCK_LINK names no link, so endpoints have to";
  } else if (*facts.default_link == LinkKind::tcp && std::string(best) == "p2p") {
    choice.link = "tcp";
    choice.rings = rings_of(facts, false);
    choice.why = "not p2p: GPUSOCK_LINK=tcp";
  } else if (*facts.default_link == LinkKind::p2p && std::string(best) == "tcp") {
    choice.link = "none";
    choice.why = "GPUSOCK_LINK=p2p does not reach these peers";
  } else {
    return false;
  }
  choice.command = "unset GPUSOCK_LINK";
  return true;
}

LinkChoice none(const char* peer, const char* why, const char* command) { return {peer, "none", "", why, command}; }

LinkChoice same_process(const Facts& facts) {
  LinkChoice choice{"same process", "p2p", rings_of(facts, true), "", ""};
  if (chosen_otherwise(facts, "p2p", choice)) return choice;
  if (facts.gpu_build) choice.why = "rings in device memory are not built in this version";
  return choice;
}

LinkChoice same_host(const Facts& facts) {
  const char* best = facts.gpu_build ? "tcp" : "p2p";
  LinkChoice choice{"same host", best, rings_of(facts, !facts.gpu_build), "", ""};
  if (chosen_otherwise(facts, best, choice)) return choice;
  if (facts.gpu_build) {
    choice.why = "not p2p: other processes' rings cannot be mapped while kernels run on a GPU";
    choice.command = "use several contexts in one process instead";
  } else {
    choice.why = "tcp where users or network namespaces differ (containers)";
    choice.command = "run both as one user, containers with --network host";
  }
  return choice;
}

LinkChoice other_host(const Facts& facts) {
  if (!facts.other_interface_up) return none("other host", "no interface but the loopback is up", "ip link set NAME up");
  LinkChoice choice{"other host", "tcp", rings_of(facts, false), "", ""};
  if (chosen_otherwise(facts, "tcp", choice)) return choice;
  choice.why = facts.rdma_nics > 0 ? "not by the RDMA NICs: " : "no better one: ";
  choice.why += kNotBuilt;
  if (!facts.has_secret) {
    choice.why += ";\nlistening beyond loopback needs a secret, except with link=tcp";
    choice.command = "export GPUSOCK_SECRET=TEXT (the same on all hosts)";
  }
  return choice;
}

}  // namespace

void choose_links(Report& report) {
  const Facts& facts = report.facts;
  if (facts.gpu_build && !facts.gpu_usable) {
    for (const char* peer : {"same process", "same host", "other host"}) {
      report.links.push_back(none(peer, "this build's programs need a GPU", "see above"));
    }
  } else if (!facts.memory_files) {
    for (const char* peer : {"same process", "same host", "other host"}) {
      report.links.push_back(none(peer, "rings need memory files", "see above"));
    }
  } else if (!facts.loopback_up) {
    report.links = {none("same process", "the loopback interface is down", "ip link set lo up"),
                    none("same host", "the loopback interface is down", "ip link set lo up"), other_host(facts)};
  } else {
    report.links = {same_process(facts), same_host(facts), other_host(facts)};
  }
}

Report examine(const Sources& sources) {
  Report report;
  probe_processors(sources, report);
  probe_gpu(sources, report);
  probe_memory(sources, report);
  probe_descriptors(sources, report);
  probe_network(sources, report);
  probe_rdma(sources, report);
  probe_environment(sources, report);
  choose_links(report);
  return report;
}

}  // namespace gpusock::doctor
