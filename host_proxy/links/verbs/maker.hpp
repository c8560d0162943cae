#pragma once
/// @file How two sides agree on the verbs link: each makes a queue pair, and a ring that the other writes into.

#include "host_proxy/links/link_setup.hpp"
#include "host_proxy/links/verbs/device_rings.hpp"
#include "host_proxy/memory/segment.hpp"

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace gpusock::rdma {
class Device;
}

namespace gpusock::proxy::verbs {

struct Activity;

/// A trial of a queue pair: its first write shows whether it reaches the peer. poll() notifies `sink` at `until_ns`.
struct Trial {
  ReadySink* sink;
  std::uint64_t until_ns;
};

/// How long a trial may take. NICs give up only after 2 to 8 s, and other links must get their turn within the
/// handshake's time.
inline constexpr std::uint64_t kTrialNs = 2'000'000'000;

class VerbsMaker final : public LinkMaker {
 public:
  /// Takes rings from `segments`, which must outlive this object. `device_rings` gives the NIC rings in device memory.
  explicit VerbsMaker(SegmentPool& segments, DeviceRings device_rings = DeviceRings(true));
  ~VerbsMaker();

  LinkKind kind() const override { return LinkKind::verbs; }
  std::unique_ptr<LinkSetup> start(const LinkRequest& request, std::span<const std::byte> offer,
                                   ReadySink& sink) override;
  bool poll(std::uint64_t now_ns) override;
  /// True if completions are awaited: no event reports them.
  bool wants_polling() const override;

  // For the LinkSetups that it makes.
  std::uint64_t now_ns() const { return now_ns_; }  ///< time of the proxy's step
  void begin_trial(const Trial& trial) { trials_.push_back(trial); }
  void end_trial(const ReadySink& sink);
  /// The NIC that this local address belongs to, opened at its first use. If there is none, throws std::system_error
  /// with the reason.
  std::shared_ptr<rdma::Device> device_at(const Endpoint& local);

  DeviceRings& device_rings() { return device_rings_; }

  /// True if this machine has RDMA devices; `sys` is where sysfs is mounted.
  static bool has_devices(const std::string& sys = "/sys");

 private:
  SegmentPool& segments_;
  DeviceRings device_rings_;
  std::map<std::string, std::shared_ptr<rdma::Device>> devices_;  // by local address
  std::shared_ptr<Activity> activity_;
  std::uint64_t now_ns_ = 0;
  std::vector<Trial> trials_;
};

}  // namespace gpusock::proxy::verbs
