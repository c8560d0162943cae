#include "bootstrap/bootstrap.hpp"

#include "settings/launch.hpp"
#include "bootstrap/place.hpp"
#include "bootstrap/pmix_bootstrap.hpp"
#include "bootstrap/rendezvous.hpp"
#include "settings/config.hpp"

namespace param_sync {
namespace {

/// All addresses are known beforehand.
class PeerList : public Bootstrap {
 public:
  PeerList(const std::vector<std::string>& peers, int rank) : rank_(static_cast<std::size_t>(rank)) {
    for (const std::string& peer : peers) {
      peers_.push_back(parse_place(peer));
      if (peers.size() > 1) need_port(peers_.back(), peer);
    }
  }
  gpusock::Endpoint where_to_listen() override { return peers_.at(rank_); }
  std::vector<gpusock::Endpoint> exchange_addresses(const gpusock::Endpoint&) override { return peers_; }

 private:
  std::size_t rank_;
  std::vector<gpusock::Endpoint> peers_;
};

}  // namespace

std::unique_ptr<Bootstrap> make_bootstrap(const Launch& launch, Config& config) {
  if (launch.pmix) return make_pmix_bootstrap(config);
  config.rank = launch.rank;
  config.nodes = launch.size;
  if (launch.size == 1) return std::make_unique<PeerList>(std::vector<std::string>{"127.0.0.1:0"}, 0);
  if (!launch.peers.empty()) return std::make_unique<PeerList>(launch.peers, launch.rank);
  return std::make_unique<Rendezvous>(launch.rendezvous, launch.rank, launch.size, config.timeout_s);
}

}  // namespace param_sync
