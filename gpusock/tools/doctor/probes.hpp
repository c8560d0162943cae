#pragma once
/// @file The questions that gpusock-doctor asks; each adds its findings, and facts that the choice of links rests on.

#include "gpusock/tools/doctor/report.hpp"
#include "gpusock/tools/doctor/sources.hpp"
#include "host_proxy/memory/ring_sizes.hpp"

namespace gpusock::doctor {

void probe_processors(const Sources& sources, Report& report);  ///< how many, and which caches they share
void probe_gpu(const Sources& sources, Report& report);         ///< GPUs, driver, dmabuf, peermem
void probe_words(const Sources& sources, Report& report);       ///< where kernels poll the proxy's words; after the two
                                                                ///< others
void probe_memory(const Sources& sources, Report& report);      ///< memory files, locked memory, place for pages
void probe_descriptors(const Sources& sources, Report& report);  ///< how many sockets a process may have
void probe_network(const Sources& sources, Report& report);      ///< interfaces
/// What a connection on the verbs link locks by default: two rings, their words, and its share of the NIC's queues.
inline constexpr std::uint64_t kVerbsLockedBytes = 2 * proxy::default_ring_sizes(false).shared + (128 << 10);

void probe_rdma(const Sources& sources, Report& report);         ///< RDMA NICs, libibverbs, libfabric
void probe_environment(const Sources& sources, Report& report);  ///< GPUSOCK_…
/// What is in the host rings that it names; after probe_environment().
void probe_host_rings(const Sources& sources, Report& report);
void probe_proxy(const Sources& sources, Report& report);  ///< what its thread does while kernels run; after
                                                           ///< probe_environment()

/// Which link each kind of peer gets, from the facts. After the probes.
void choose_links(Report& report);

/// All of it.
Report examine(const Sources& sources);

}  // namespace gpusock::doctor
