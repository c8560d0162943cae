#include "param_sync/bootstrap/bootstrap.hpp"

#include "param_sync/bootstrap/rank_address.hpp"
#include "param_sync/bootstrap/pmix_bootstrap.hpp"
#include "param_sync/bootstrap/rendezvous.hpp"

#include <cstdlib>

namespace param_sync::bootstrap {
namespace {

/// A bootstrap in which all addresses are known in advance.
class PeerList : public Bootstrap {
 public:
  PeerList(const std::vector<std::string>& peers, int rank) {
    rank_ = rank;
    size_ = static_cast<int>(peers.size());
    peers_.reserve(peers.size());
    for (const std::string& peer : peers) {
      peers_.push_back(parse_address(peer));
      if (peers.size() > 1) need_port(peers_.back(), peer);
    }
  }
  gpusock::Endpoint where_to_listen() override { return peers_.at(static_cast<std::size_t>(rank_)); }
  std::vector<gpusock::Endpoint> exchange_addresses(const gpusock::Endpoint&) override { return peers_; }

 private:
  std::vector<gpusock::Endpoint> peers_;
};

}  // namespace

std::optional<Launch> read_launch() {
  return read_launch([](const char* name) { return std::getenv(name); }, pmix_is_there());
}

std::unique_ptr<Bootstrap> make_bootstrap(const Launch& launch, std::uint64_t timeout_ns) {
  if (launch.pmix) return make_pmix_bootstrap(timeout_ns);
  if (launch.size == 1) return std::make_unique<PeerList>(std::vector<std::string>{"127.0.0.1:0"}, 0);
  if (!launch.peers.empty()) return std::make_unique<PeerList>(launch.peers, launch.rank);
  return std::make_unique<Rendezvous>(launch.rendezvous, launch.rank, launch.size, timeout_ns);
}

}  // namespace param_sync::bootstrap
