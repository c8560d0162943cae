#include "host_proxy/links/tcp/tcp_setup.hpp"

#include "host_proxy/links/mirrored_link.hpp"
#include "host_proxy/links/tcp/tcp_link.hpp"

#include <cerrno>

namespace gpusock::proxy {
namespace {

class TcpSetup final : public LinkSetup {
 public:
  TcpSetup(std::shared_ptr<Segment> host, std::shared_ptr<Segment> callers, DeviceCopies* copies)
      : host_(std::move(host)), callers_(std::move(callers)), copies_(copies) {}

  State advance() override { return callers_ == nullptr ? State::failed : State::ready; }
  Failure failure() const override { return {ENOBUFS, "no memory for another connection's rings"}; }
  const std::shared_ptr<Segment>& memory() const override { return callers_; }

  std::unique_ptr<Link> establish(Slots& slots, std::uint32_t slot, std::unique_ptr<ByteStream> stream,
                                  LinkEvents& events) override {
    try {
      return make(slots, slot, stream, events);
    } catch (...) {
      if (stream != nullptr) stream->reset_on_close();  // the peer must not take it for an orderly end
      throw;
    }
  }

 private:
  /// Takes the stream over last.
  std::unique_ptr<Link> make(Slots& slots, std::uint32_t slot, std::unique_ptr<ByteStream>& stream,
                             LinkEvents& events) {
    table::SocketSetup& setup = slots.view().setups[slot];
    setup.link_needs_proxy = 1;
    setup.tx = slots.tx_setup(slot, callers_->callers_ring(1));
    setup.rx = slots.rx_setup(slot, callers_->callers_ring(0));
    if (callers_ == host_) {
      return std::make_unique<TcpLink>(std::move(stream), slots.tx_consumer(slot, host_->ring(1)),
                                       slots.rx_producer(slot, host_->ring(0)), events);
    }
    auto mirrored = std::make_unique<MirroredLink>(*copies_, slots, slot, MirroredLink::Memory{callers_, host_},
                                                   *stream, events);
    mirrored->set_link(
        std::make_unique<TcpLink>(std::move(stream), mirrored->tx(), mirrored->rx(), mirrored->events()));
    return mirrored;
  }

  std::shared_ptr<Segment> host_;
  std::shared_ptr<Segment> callers_;
  DeviceCopies* copies_;
};

}  // namespace

std::unique_ptr<LinkSetup> TcpMaker::make(const LinkRequest& request) {
  constexpr auto kOwn = SegmentPool::Use::own;
  auto host = segments_.take(kOwn, segments_.ring_bytes(kOwn, request.own_ring_bytes()));
  auto callers = host == nullptr ? nullptr : MirroredLink::callers_rings(segments_, copies_, request.kernels, host);
  return std::make_unique<TcpSetup>(std::move(host), std::move(callers), copies_);
}

}  // namespace gpusock::proxy
