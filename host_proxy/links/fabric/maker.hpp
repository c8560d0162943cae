#pragma once
/// @file How two sides agree on the fabric link: on a provider that both have, on the pair of endpoints to use, and on
/// each other's memory.

#include "host_proxy/links/fabric/discovery.hpp"
#include "host_proxy/links/fabric/idle_endpoints.hpp"
#include "host_proxy/links/fabric/peer_endpoint.hpp"
#include "host_proxy/links/link_setup.hpp"
#include "host_proxy/memory/segment.hpp"
#include "host_proxy/net/posix_network.hpp"

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace gpusock::proxy::fabric {

/// Wraps an endpoint before a context uses it. For tests.
using PortDecorator = std::function<std::unique_ptr<FabricPort>(std::unique_ptr<FabricPort>)>;

/// Decorates the endpoints of all contexts that are made after this call; an empty decorator ends that. For tests. Any
/// thread may call.
void decorate_ports(PortDecorator decorator);

class FabricMaker final : public LinkMaker, private ReadySink {
 public:
  /// The references must outlive this object. `provider`: libfabric's name of the provider to use; empty: the best one
  /// that both sides have. libfabric is asked for its providers when a socket is opened that may use this link.
  FabricMaker(PosixNetwork& network, SegmentPool& segments, std::string provider);
  ~FabricMaker();

  LinkKind kind() const override { return LinkKind::fabric; }
  bool prepare(const Endpoint& asked) override;
  std::unique_ptr<LinkSetup> start(const LinkRequest& request, std::span<const std::byte> offer,
                                   ReadySink& sink) override;
  bool poll(std::uint64_t now_ns) override;
  void maintain(std::uint64_t now_ns) override;
  /// Also arms the endpoints' descriptors to end the sleep; to do that in each step would cost more than the step.
  bool wants_polling() const override;

  // For the LinkSetups that it makes.
  /// The providers here; nullptr while libfabric is being asked. `sink` is then notified when libfabric has answered.
  const FabricProviders* providers(ReadySink& sink);
  /// Call this before `sink` is destroyed.
  void forget(ReadySink& sink) { std::erase(waiting_, &sink); }
  bool names_provider() const { return !wanted_.empty(); }
  const Identity& context() const { return context_; }

  // These throw Error.
  /// For a connector: the endpoint for the acceptor's context at request.peer. Opened if there is none.
  std::shared_ptr<PeerEndpoint> peer_of_acceptor(const std::string& provider, const LinkRequest& request,
                                                 const Identity& acceptor);
  /// For an acceptor: the endpoint for the connector that has chosen `pair`. Opened if there is none.
  std::shared_ptr<PeerEndpoint> peer_of_connector(const std::string& provider, const LinkRequest& request,
                                                  const Identity& pair);
  SegmentPool& segments() { return segments_; }

 private:
  class Watched;

  void begin_discovery();
  bool is_asking() const { return discovery_ != nullptr && !discovery_->over(); }
  bool tell_waiting();
  void on_ready() override {}  // the descriptor only ends a sleep: poll() looks at all endpoints
  std::shared_ptr<PeerEndpoint> find(const std::string& key);
  std::shared_ptr<PeerEndpoint> make_peer(const std::string& key, const std::string& provider,
                                          const LinkRequest& request, const Identity& pair);

  PosixNetwork& network_;
  SegmentPool& segments_;
  std::string wanted_;
  Identity context_;
  PortDecorator decorator_;
  std::shared_ptr<Discovery> discovery_;                        // nullptr: not begun
  std::vector<ReadySink*> waiting_;                             // notified at its end
  std::map<std::string, std::weak_ptr<FabricDomain>> domains_;  // by provider and local address
  std::map<std::string, std::weak_ptr<PeerEndpoint>> peers_;    // by role, provider and identity
  std::vector<std::weak_ptr<PeerEndpoint>> polled_;
  IdleEndpoints idle_;
};

}  // namespace gpusock::proxy::fabric
