#include "host_proxy/tcp_setup.hpp"

#include "host_proxy/tcp_link.hpp"

#include <cerrno>

namespace gpusock::proxy {
namespace {

class TcpSetup final : public LinkSetup {
 public:
  explicit TcpSetup(std::shared_ptr<Segment> segment) : segment_(std::move(segment)) {}

  State advance() override { return segment_ == nullptr ? State::failed : State::ready; }
  Failure failure() const override { return {ENOBUFS, "no memory for another connection's rings"}; }
  const std::shared_ptr<Segment>& memory() const override { return segment_; }

  std::unique_ptr<Link> establish(Slots& slots, std::uint32_t slot, std::unique_ptr<ByteStream> stream, LinkEvents& events) override {
    const ringbuf::RingMemory tx = segment_->ring(0), rx = segment_->ring(1);
    table::SocketSetup& setup = slots.view().setups[slot];
    setup.link_needs_proxy = 1;
    setup.tx = slots.tx_setup(slot, tx);
    setup.rx = slots.rx_setup(slot, rx);
    return std::make_unique<TcpLink>(std::move(stream), slots.tx_consumer(slot, tx), slots.rx_producer(slot, rx), events);
  }

 private:
  std::shared_ptr<Segment> segment_;
};

}  // namespace

std::unique_ptr<LinkSetup> TcpMaker::make(const LinkRequest& request) {
  constexpr auto kOwn = SegmentPool::Use::own;
  return std::make_unique<TcpSetup>(segments_.take(kOwn, segments_.ring_bytes(kOwn, request.own_ring_bytes())));
}

}  // namespace gpusock::proxy
