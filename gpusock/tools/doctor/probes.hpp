#pragma once
/// @file The probes of gpusock-doctor. Each adds findings, and facts on which the choice of links depends.

#include "gpusock/tools/doctor/report.hpp"
#include "gpusock/tools/doctor/sources.hpp"
#include "host_proxy/memory/ring_sizes.hpp"

namespace gpusock::doctor {

void probe_processors(const Sources& sources, Report& report);  ///< how many, and which caches they share
void probe_gpu(const Sources& sources, Report& report);         ///< GPUs, driver, dmabuf, peermem
void probe_words(const Sources& sources, Report& report);       ///< where kernels poll the proxy's words. Call it after
                                                                ///< probe_gpu() and probe_environment()
void probe_memory(const Sources& sources, Report& report);      ///< memory files, locked memory, room for pages
void probe_descriptors(const Sources& sources, Report& report);  ///< how many sockets a process may have
void probe_network(const Sources& sources, Report& report);      ///< interfaces
/// Bytes that a connection on the verbs link locks by default: two rings, their words, its share of the NIC's queues.
inline constexpr std::uint64_t kVerbsLockedBytes = 2 * proxy::default_ring_sizes(false).shared + (128 << 10);

void probe_rdma(const Sources& sources, Report& report);         ///< RDMA NICs, libibverbs, libfabric
void probe_environment(const Sources& sources, Report& report);  ///< GPUSOCK_…
/// The state of the host rings that GPUSOCK_HOST_RINGS names. Call it after probe_environment().
void probe_host_rings(const Sources& sources, Report& report);
void probe_proxy(const Sources& sources, Report& report);  ///< what its thread does while kernels run; call it after
                                                           ///< probe_environment()

/// Chooses from the facts the link that each kind of peer gets. Call it after the probes.
void choose_links(Report& report);

/// Runs all probes, and chooses the links.
Report examine(const Sources& sources);

}  // namespace gpusock::doctor
