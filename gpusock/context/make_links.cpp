#include "gpusock/context/make_links.hpp"

#include "host_proxy/links/link_order.hpp"
#include "host_proxy/links/p2p/maker.hpp"
#include "host_proxy/links/tcp/maker.hpp"
#if defined(GPUSOCK_HAS_FABRIC)
#include "host_proxy/links/fabric/maker.hpp"
#endif
#if defined(GPUSOCK_HAS_VERBS)
#include "host_proxy/links/verbs/maker.hpp"
#endif

namespace gpusock::detail {
namespace {

/// Makes a link of this kind, or returns nullptr if this context has none.
std::unique_ptr<proxy::LinkMaker> make_link(LinkKind kind, const Options& options, proxy::PosixNetwork& network,
                                            proxy::SegmentPool& segments) {
  if (kind == LinkKind::p2p && options.p2p) return std::make_unique<proxy::P2pMaker>(network, segments);
#if defined(GPUSOCK_HAS_VERBS)
  if (kind == LinkKind::verbs && proxy::verbs::VerbsMaker::has_devices()) {
    return std::make_unique<proxy::verbs::VerbsMaker>(segments, proxy::verbs::DeviceRings(options.gpudirect));
  }
#endif
#if defined(GPUSOCK_HAS_FABRIC)
  if (kind == LinkKind::fabric)
    return std::make_unique<proxy::fabric::FabricMaker>(network, segments, options.fabric_provider);
#endif
  if (kind == LinkKind::tcp) return std::make_unique<proxy::TcpMaker>(segments);
  return nullptr;
}

}  // namespace

std::vector<std::unique_ptr<proxy::LinkMaker>> make_links(const Options& options, proxy::PosixNetwork& network,
                                                          proxy::SegmentPool& segments) {
  std::vector<std::unique_ptr<proxy::LinkMaker>> makers;
  for (const LinkKind kind : proxy::kLinksBestFirst) {
    if (auto maker = make_link(kind, options, network, segments)) makers.push_back(std::move(maker));
  }
  return makers;
}

}  // namespace gpusock::detail
