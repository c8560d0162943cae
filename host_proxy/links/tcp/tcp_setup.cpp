#include "host_proxy/links/tcp/tcp_setup.hpp"

#include "host_proxy/links/tcp/tcp_link.hpp"
#include "host_proxy/memory/staged_ends.hpp"

#include <cerrno>

namespace gpusock::proxy {
namespace {

class TcpSetup final : public LinkSetup {
 public:
  TcpSetup(std::shared_ptr<Segment> segment, StagingPool* staging) : segment_(std::move(segment)), staging_(staging) {}

  State advance() override { return segment_ == nullptr ? State::failed : State::ready; }
  Failure failure() const override { return {ENOBUFS, "no memory for another connection's rings"}; }
  const std::shared_ptr<Segment>& memory() const override { return segment_; }

  std::unique_ptr<Link> establish(Slots& slots, std::uint32_t slot, std::unique_ptr<ByteStream> stream,
                                  LinkEvents& events) override {
    try {
      return make(slots, slot, stream, events);
    } catch (...) {
      stream->reset_on_close();  // the peer must not take it for an orderly end
      throw;
    }
  }

 private:
  /// Takes the stream over last.
  std::unique_ptr<Link> make(Slots& slots, std::uint32_t slot, std::unique_ptr<ByteStream>& stream,
                             LinkEvents& events) {
    table::SocketSetup& setup = slots.view().setups[slot];
    setup.link_needs_proxy = 1;
    setup.tx = slots.tx_setup(slot, segment_->callers_ring(0));
    setup.rx = slots.rx_setup(slot, segment_->callers_ring(1));
    const ringbuf::ByteConsumer<> tx = slots.tx_consumer(slot, segment_->ring(0));
    const ringbuf::ByteProducer<> rx = slots.rx_producer(slot, segment_->ring(1));
    std::unique_ptr<RingSource> source;
    std::unique_ptr<RingSink> sink;
    if (segment_->placement() == RingPlacement::device) {
      source = std::make_unique<StagedSource>(tx, segment_, *staging_);
      sink = std::make_unique<StagedSink>(rx, segment_, *staging_);
    } else {
      source = std::make_unique<DirectSource>(tx);
      sink = std::make_unique<DirectSink>(rx);
    }
    return std::make_unique<TcpLink>(std::move(stream), std::move(source), std::move(sink), events);
  }

  std::shared_ptr<Segment> segment_;
  StagingPool* staging_;
};

}  // namespace

std::unique_ptr<LinkSetup> TcpMaker::make(const LinkRequest& request) {
  constexpr auto kOwn = SegmentPool::Use::own;
  auto segment = segments_.take(kOwn, segments_.ring_bytes(kOwn, request.own_ring_bytes()),
                                segments_.placement_for(request.kernels));
  return std::make_unique<TcpSetup>(std::move(segment), staging_);
}

}  // namespace gpusock::proxy
