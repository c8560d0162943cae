#include "gpusock/tools/doctor/probes.hpp"
#include "host_proxy/links/fabric/libfabric_port.hpp"
#include "host_proxy/links/link_order.hpp"
#include "host_proxy/memory/ring_sizes.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace gpusock::doctor {
namespace {

/// True if NICs read and write rings in device memory on the verbs link.
bool nics_reach_rings(const Facts& facts) {
  return *facts.gpudirect && (!facts.has_device_memory() || facts.nics_reach_gpu);
}

/// True if kernels' rings lie in device memory; on p2p, those of some connections may still lie in host memory.
bool are_on_device(const Facts& facts, LinkKind link) {
  if (facts.ring != RingPlacement::automatic) return facts.ring == RingPlacement::device;
  return facts.has_device_memory() && (link == LinkKind::p2p || (link == LinkKind::verbs && nics_reach_rings(facts)));
}

/// Where rings of p2p in one process lie, if kernels use device memory.
const char* place_between_kernels(const Facts& facts) {
  const bool several = facts.gpu_build ? facts.gpus > 1 : facts.shape == proxy::CpuShape::gpu;
  return several ? "device memory between kernels of GPUs that reach each other (else pinned host memory)"
                 : "device memory between kernels of one GPU (else pinned host memory)";
}

const char* place_of_rings(const Facts& facts, LinkKind link) {
  const bool device = are_on_device(facts, link);
  if (facts.has_device_memory() && device && link == LinkKind::p2p) return place_between_kernels(facts);
  return facts.has_device_memory() && device ? "device memory (host threads': pinned host memory)"
         : facts.has_device_memory()         ? "pinned host memory"
         : device                            ? "the CPU device's memory"
         : link == LinkKind::p2p             ? "host memory that both map"
         : link == LinkKind::verbs           ? "host memory that the NICs write"
                                             : "host memory";
}

std::string rings_of(const Facts& facts, LinkKind link) {
  const char* place = place_of_rings(facts, link);
  const proxy::RingSizes sizes = proxy::default_ring_sizes(facts.has_device_memory());
  const bool shared = link == LinkKind::p2p || link == LinkKind::verbs;
  const std::uint64_t kib = (shared ? sizes.shared : sizes.own) >> 10;
  return kib % 1024 == 0 ? fmt::format("{}, {} MiB each", place, kib / 1024)
                         : fmt::format("{}, {} KiB each", place, kib);
}

/// Where the words lie that kernels poll; empty if kernels' memory is the host's.
std::string words_of(const Facts& facts, LinkKind link) {
  if (!facts.has_device_memory()) return "";
  if (link == LinkKind::verbs && are_on_device(facts, link) && nics_reach_rings(facts) && facts.nics_write_in_order) {
    return "device memory (that of rx rings; the others are in pinned host memory)";
  }
  if (link == LinkKind::p2p) return are_on_device(facts, link) ? place_between_kernels(facts) : "pinned host memory";
  return facts.device_words ? "device memory, by BAR writes of the proxy" : "pinned host memory";
}

/// Why no connection can use the verbs link; empty if one can.
std::string verbs_problem(const Facts& facts) {
  if (!facts.verbs_built) return "this build has no verbs link (it needs libibverbs-dev and librdmacm-dev)";
  if (facts.rdma_nics == 0) return "there is no RDMA NIC";
  if (facts.rdma_nics_active == 0) return "no port of an RDMA NIC is up";
  if (facts.locked_bytes_max && *facts.locked_bytes_max < kVerbsLockedBytes) {
    return "only " + std::to_string(*facts.locked_bytes_max >> 10) +
           " KiB of memory may be locked, and a connection's rings need " + std::to_string(kVerbsLockedBytes >> 10);
  }
  return {};
}

std::string fabric_problem(const Facts& facts) {
  if (!facts.fabric_built) return "this build has no fabric link (it needs libfabric-dev)";
  if (!facts.libfabric) return "libfabric is not installed (Debian: libfabric1)";
  const bool wrong = !facts.fabric_provider.empty() && facts.fabric_named.empty();
  return wrong ? "GPUSOCK_FABRIC_PROVIDER names no provider that is here" : "";
}

/// True if GPUSOCK_FABRIC_PROVIDER names one that carries bytes between hosts: then auto takes it rather than tcp.
bool names_provider_between_hosts(const Facts& facts) {
  return std::any_of(facts.fabric_named.begin(), facts.fabric_named.end(),
                     [](const std::string& name) { return !proxy::fabric::FabricProviders::is_local(name); });
}

/// Why the link `named` does not reach peers that would get `best`; empty if it does.
std::string problem_of(const Facts& facts, LinkKind named, LinkKind best) {
  if (named == LinkKind::verbs) return verbs_problem(facts);
  if (named == LinkKind::fabric) return fabric_problem(facts);
  return named == LinkKind::p2p && best != LinkKind::p2p ? "memory is not shared with these peers" : "";
}

/// Why rings lie where they do.
std::string why_there(const Facts& facts, LinkKind link) {
  if (facts.ring == RingPlacement::device) {
    if (link == LinkKind::p2p) return "rings there: GPUSOCK_RING=device";
    const bool reached = !facts.has_device_memory() || facts.nics_reach_gpu;
    if (link == LinkKind::verbs && nics_reach_rings(facts))
      return "rings there: GPUSOCK_RING=device; the NICs read and write them";
    if (link == LinkKind::verbs && reached)
      return "rings there: GPUSOCK_RING=device; GPUSOCK_GPUDIRECT=off has them copied through staging memory";
    return "rings there: GPUSOCK_RING=device; " + std::string(to_string(link)) + " copies them through staging memory";
  }
  if (facts.ring == RingPlacement::host) return "rings there: GPUSOCK_RING=host";
  if (!facts.has_device_memory() || link == LinkKind::p2p) return "";
  if (are_on_device(facts, link)) return "rings there: the NICs read and write them";
  return "rings there: " + std::string(to_string(link)) +
         " would copy those in device memory; GPUSOCK_RING=device tries it";
}

void add_line(std::string& text, const std::string& line) {
  if (!line.empty()) text += (text.empty() ? "" : "\n") + line;
}

/// Changes `choice` if GPUSOCK_LINK gives peers that would get `best` another link, or none. Returns false if it does
/// not.
bool chosen_otherwise(const Facts& facts, LinkKind best, LinkChoice& choice) {
  choice.command = "unset GPUSOCK_LINK";
  if (!facts.default_link) {
    choice.link = "none";
    choice.rings.clear();
    choice.words.clear();
    choice.why = "GPUSOCK_LINK names no link";
  } else if (*facts.default_link == LinkKind::automatic || *facts.default_link == best) {
    choice.command.clear();
    return false;
  } else if (const std::string problem = problem_of(facts, *facts.default_link, best); !problem.empty()) {
    choice.link = "none";
    choice.rings.clear();
    choice.words.clear();
    choice.why = "GPUSOCK_LINK=" + std::string(to_string(*facts.default_link)) +
                 " does not reach these peers: " + problem;
  } else {
    choice.link = to_string(*facts.default_link);
    choice.rings = rings_of(facts, *facts.default_link);
    choice.words = words_of(facts, *facts.default_link);
    choice.why = "not " + std::string(to_string(best)) + ": GPUSOCK_LINK=" + choice.link;
  }
  return true;
}

/// Reports the link that GPUSOCK_LINK names, if it reaches no peer from here.
void report_unusable_link(Report& report) {
  const Facts& facts = report.facts;
  if (!facts.default_link) return;  // probe_environment() has reported it
  const LinkKind named = *facts.default_link;
  const std::string problem = problem_of(facts, named, named);
  if (problem.empty()) return;
  const bool short_of_locked_memory = named == LinkKind::verbs && facts.verbs_built && facts.rdma_nics_active > 0;
  report.add("environment", Level::fix,
             "GPUSOCK_LINK=" + std::string(to_string(named)) + ", but " + problem +
                 ": endpoints that name no link reach no peer",
             short_of_locked_memory ? "ulimit -l unlimited" : "unset GPUSOCK_LINK");
}

LinkChoice none(const char* peer, const char* why, const char* command) { return {peer, "none", "", "", why, command}; }

LinkChoice same_process(const Facts& facts) {
  LinkChoice choice{"same process", "p2p", rings_of(facts, LinkKind::p2p), words_of(facts, LinkKind::p2p), "", ""};
  if (chosen_otherwise(facts, LinkKind::p2p, choice)) return choice;
  add_line(choice.why, why_there(facts, LinkKind::p2p));
  return choice;
}

/// Returns the link that link=auto takes between peers of one kind.
LinkKind best_link(const Facts& facts, bool share_memory) {
  return *std::find_if(proxy::kLinksBestFirst.begin(), proxy::kLinksBestFirst.end(), [&](LinkKind link) {
    return link == LinkKind::p2p      ? share_memory
           : link == LinkKind::verbs  ? verbs_problem(facts).empty()
           : link == LinkKind::fabric ? names_provider_between_hosts(facts)
                                      : true;
  });
}

/// Where the rings and words of host rings lie.
const char* place_in_host_rings(const Facts& facts) {
  return facts.ring == RingPlacement::host ? "pinned host memory"
                                           : "device memory between kernels of one GPU (else pinned host memory)";
}

LinkChoice same_host(const Facts& facts) {
  const bool have_host_rings = facts.has_device_memory() && !facts.host_rings.empty();
  const LinkKind best = best_link(facts, !facts.has_device_memory() || have_host_rings);
  LinkChoice choice{"same host", std::string(to_string(best)), rings_of(facts, best), words_of(facts, best), "", ""};
  if (have_host_rings && best == LinkKind::p2p) {
    choice.rings = std::string(place_in_host_rings(facts)) + ", shared by name";
    choice.words = place_in_host_rings(facts);
  }
  if (chosen_otherwise(facts, best, choice)) return choice;
  if (have_host_rings) {
    const auto& there = facts.host_rings_there;
    const bool used = there && there->has_users;
    choice.why = fmt::format(
        "rings there: GPUSOCK_HOST_RINGS={}, for {} connections at a time{};\n"
        "tcp beyond that, and where the peer has another name or none",
        facts.host_rings, used ? there->connections : facts.host_connections,
        used ? "" : ", or as many as the first process has set");
    return choice;
  }
  if (facts.has_device_memory()) {
    choice.why = "not p2p: other processes' rings cannot be mapped while kernels run on a GPU";
    if (!facts.gpu_build) choice.why += " (GPUSOCK_CPU_SHAPE)";
    choice.command = "export GPUSOCK_HOST_RINGS=NAME (the same in both processes, or auto)";
  } else {
    choice.why = "tcp where users or network namespaces differ (containers)";
    choice.command = "run both as one user, containers with --network host";
  }
  add_line(choice.why, why_there(facts, best));
  return choice;
}

LinkChoice other_host(const Facts& facts) {
  if (!facts.other_interface_up)
    return none("other host", "no interface but the loopback is up", "ip link set NAME up");
  const LinkKind best = best_link(facts, false);
  LinkChoice choice{"other host", std::string(to_string(best)), rings_of(facts, best), words_of(facts, best), "", ""};
  if (chosen_otherwise(facts, best, choice)) return choice;
  if (best != LinkKind::verbs) {
    choice.why = (facts.rdma_nics > 0 ? "not verbs: " : "no better one: ") + verbs_problem(facts);
    if (facts.rdma_nics_active > 0 && facts.verbs_built) choice.command = "ulimit -l unlimited";
    if (best == LinkKind::fabric) {
      choice.why += ";\nnot tcp: GPUSOCK_FABRIC_PROVIDER=" + facts.fabric_provider;
    } else if (facts.rdma_nics_active == 0 && fabric_problem(facts).empty()) {
      choice.why += ";\nlink=fabric takes the provider that libfabric has for this network";
    }
  }
  if (!facts.has_secret) {
    choice.why += (choice.why.empty() ? "" : ";\n") +
                  std::string("listening beyond loopback needs a secret, except with link=tcp");
    if (choice.command.empty()) choice.command = "export GPUSOCK_SECRET=TEXT (the same on all hosts)";
  }
  add_line(choice.why, why_there(facts, best));
  return choice;
}

}  // namespace

void choose_links(Report& report) {
  const Facts& facts = report.facts;
  const auto none_at_all = [&](const char* why, const char* command) {
    for (const char* peer : {"same process", "same host", "other host"})
      report.links.push_back(none(peer, why, command));
  };
  if (facts.gpu_build && !facts.gpu_usable) {
    none_at_all("this build's programs need a GPU", "see above");
  } else if (!facts.memory_files) {
    none_at_all("rings need memory files", "see above");
  } else if (!facts.ring) {
    none_at_all("GPUSOCK_RING is invalid", "unset GPUSOCK_RING");
  } else if (!facts.words) {
    none_at_all("GPUSOCK_WORDS is invalid", "unset GPUSOCK_WORDS");
  } else if (!facts.gpudirect) {
    none_at_all("GPUSOCK_GPUDIRECT is invalid", "unset GPUSOCK_GPUDIRECT");
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
  probe_host_rings(sources, report);
  probe_words(sources, report);
  probe_proxy(sources, report);
  report_unusable_link(report);
  choose_links(report);
  return report;
}

}  // namespace gpusock::doctor
