#pragma once
/// @file Agreeing on the verbs link: each side makes a queue pair and a ring that the other writes into.

#include "host_proxy/link_setup.hpp"
#include "host_proxy/segment.hpp"
#include "host_proxy/staging_pool.hpp"

#include <map>
#include <memory>
#include <string>

namespace gpusock::rdma {
class Card;
}

namespace gpusock::proxy::verbs {

struct Activity;

class VerbsMaker final : public LinkMaker {
 public:
  /// Both outlive it. `staging`: nullptr where no rings are in device memory.
  explicit VerbsMaker(SegmentPool& segments, StagingPool* staging = nullptr);
  ~VerbsMaker();

  LinkKind kind() const override { return LinkKind::verbs; }
  std::unique_ptr<LinkSetup> offer(const LinkRequest& request, ReadySink& sink) override;
  std::unique_ptr<LinkSetup> answer(const LinkRequest& request, std::span<const std::byte> offer, ReadySink& sink) override;
  bool poll() override;
  /// Completions are waited for: the card tells nobody.
  bool wants_polling() const override;

  /// The card that this local address belongs to, opened at its first use. Throws std::system_error that says why there is none.
  std::shared_ptr<rdma::Card> card_at(const Endpoint& local);

  /// Has this machine RDMA devices at all; `sys` is where sysfs is mounted.
  static bool has_devices(const std::string& sys = "/sys");

 private:
  SegmentPool& segments_;
  StagingPool* staging_;
  std::map<std::string, std::shared_ptr<rdma::Card>> cards_;  // by local address
  std::shared_ptr<Activity> activity_;
};

}  // namespace gpusock::proxy::verbs
