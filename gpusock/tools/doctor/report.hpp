#pragma once
/// @file What gpusock-doctor found out.

#include "gpusock/endpoint.hpp"
#include "gpusock/ring_placement.hpp"
#include "host_proxy/base/cpu_shape.hpp"
#include "host_proxy/memory/host_rings.hpp"

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace gpusock::doctor {

enum class Level {
  fine,
  note,  ///< worth knowing; nothing that works today suffers
  fix,   ///< something that could work does not
};

std::string_view to_string(Level level);  ///< "fine", "note", "fix"

struct Finding {
  std::string topic;  ///< "gpu", "processors", …: one word
  Level level = Level::fine;
  std::string says;
  std::string command;  ///< the command that repairs or improves it; may be empty unless the level is fix
};

/// What one kind of peer gets.
struct LinkChoice {
  std::string peer;     ///< "same process", "same host", "other host"
  std::string link;     ///< "p2p", "verbs", "fabric", "tcp" or "none"
  std::string rings;    ///< where they lie, and how large they are
  std::string words;    ///< where the words lie that kernels poll; empty if kernels' memory is the host's
  std::string why;      ///< why there is no better link, why rings lie there, and other remarks; may be empty
  std::string command;  ///< the command that gets a better one; empty if none does
};

/// The facts on which the choice of links depends.
struct Facts {
  bool gpu_build = false;  ///< true if programs of this build run their kernels on a GPU
  bool gpu_usable = false;
  proxy::CpuShape shape = proxy::CpuShape::cpu;  ///< GPUSOCK_CPU_SHAPE, if this is a build for the CPU device
  int gpus = 0;
  int rdma_nics = 0;
  int rdma_nics_active = 0;  ///< with a port that is up
  bool verbs_built = false;  ///< true if this build has the verbs link
  bool fabric_built = false;
  bool libfabric = false;                         ///< true if it can be loaded
  std::string fabric_provider;                    ///< GPUSOCK_FABRIC_PROVIDER
  std::vector<std::string> fabric_named;          ///< the providers on this machine that it names
  std::optional<std::uint64_t> locked_bytes_max;  ///< memory that this process may lock; nothing: without limit
  bool memory_files = false;                      ///< true if rings can be made
  bool loopback_up = false;
  bool other_interface_up = false;
  bool has_secret = false;
  std::optional<RingPlacement> ring = RingPlacement::automatic;   ///< GPUSOCK_RING; nothing if it is invalid
  std::optional<RingPlacement> words = RingPlacement::automatic;  ///< GPUSOCK_WORDS; nothing if it is invalid
  bool sees_writes_in_order = false;     ///< true if the GPUs' kernels see writes over the bus in order
  bool device_words = false;             ///< true if kernels poll the proxy's words in a GPU's memory
  std::optional<bool> gpudirect = true;  ///< GPUSOCK_GPUDIRECT; nothing if it is invalid
  bool nics_reach_gpu = false;           ///< true if RDMA NICs can read and write a GPU's memory
  bool nics_write_in_order = false;      ///< true if that GPU's kernels may poll what NICs write there
  std::optional<bool> spin;              ///< GPUSOCK_SPIN; nothing: auto, or it is invalid
  std::string host_rings;                ///< GPUSOCK_HOST_RINGS: the name; empty: off, or it is invalid
  std::uint32_t host_connections = 0;    ///< its slots, if a context with this environment comes first
  bool host_connections_set = false;     ///< true if GPUSOCK_HOST_RINGS says how many
  std::optional<proxy::HostRings::Look> host_rings_there;      ///< what exists of that name already
  std::optional<LinkKind> default_link = LinkKind::automatic;  ///< GPUSOCK_LINK; nothing if it is invalid

  /// True if kernels have memory of their own: on GPUs, and on the CPU device in the shape of one. Then all ring memory
  /// is made with a context, and other processes' rings cannot be mapped while kernels run.
  bool has_device_memory() const { return gpu_build || shape != proxy::CpuShape::cpu; }
  /// The default size of the rings that a context with this environment shares.
  std::uint64_t host_ring_bytes() const;
};

struct Report {
  std::vector<Finding> findings;
  std::vector<LinkChoice> links;
  Facts facts;

  void add(std::string topic, Level level, std::string says, std::string command = {}) {
    findings.push_back({std::move(topic), level, std::move(says), std::move(command)});
  }
  /// True if there is nothing to repair.
  bool well() const;
};

/// Makes one page for people, and the same as JSON.
std::string make_page(const Report& report);
std::string make_json(const Report& report);

}  // namespace gpusock::doctor
