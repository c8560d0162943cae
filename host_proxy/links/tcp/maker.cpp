#include "host_proxy/links/tcp/maker.hpp"

#include "host_proxy/links/tcp/tcp_link.hpp"

namespace gpusock::proxy {
namespace {

class TcpSetup final : public LinkSetup {
 public:
  TcpSetup(SegmentPool& segments, const LinkRequest& request) {
    attempt([&] { rings_ = segments.take_rings(request.own_ring_bytes(), request.kernels); });
  }

  std::unique_ptr<Link> make_link(const table::RingPair& rings, std::unique_ptr<ByteStream>&& stream,
                                  LinkEvents& events) override {
    return std::make_unique<TcpLink>(std::move(stream), rings.tx.proxy_consumer(), rings.rx.proxy_producer(), events);
  }
};

}  // namespace

std::unique_ptr<LinkSetup> TcpMaker::start(const LinkRequest& request, std::span<const std::byte>, ReadySink&) {
  return std::make_unique<TcpSetup>(segments_, request);
}

}  // namespace gpusock::proxy
