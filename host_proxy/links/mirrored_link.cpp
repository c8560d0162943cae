#include "host_proxy/links/mirrored_link.hpp"

#include "host_proxy/base/log.hpp"

#include <cstring>
#include <string>
#include <utility>

namespace gpusock::proxy {
namespace {

std::shared_ptr<void> both(const MirroredLink::Memory& memory) {
  return std::make_shared<std::pair<std::shared_ptr<Segment>, std::shared_ptr<Segment>>>(memory.callers, memory.host);
}

}  // namespace

MirroredLink::MirroredLink(DeviceCopies& copies, const Slots& slots, std::uint32_t slot, const Memory& memory,
                           ByteStream& stream, LinkEvents& events)
    : stream_(stream),
      events_(events),
      tx_committed_(slots.tx_setup(slot, memory.host->ring(1)).start),
      rx_arrived_(slots.rx_setup(slot, memory.host->ring(0)).start),
      polls_(memory.arrived != nullptr),
      tx_(slots.tx_setup(slot, memory.host->ring(1)).memory, &tx_committed_, slots.tx_setup(slot, {}).consumed,
          tx_committed_),
      rx_(slots.rx_setup(slot, memory.host->ring(0)).memory, &rx_arrived_, slots.rx_setup(slot, {}).consumed,
          rx_arrived_),
      out_(copies, both(memory), RingMirror::To::host,
           {slots.tx_setup(slot, memory.callers->ring(1)).memory, tx_.memory()}, slots.tx_setup(slot, {}).committed,
           &tx_committed_, tx_committed_),
      in_(copies, both(memory), RingMirror::To::device,
          {slots.rx_setup(slot, memory.callers->ring(0)).memory, rx_.memory()}, polls_ ? memory.arrived : &rx_arrived_,
          slots.rx_setup(slot, {}).committed, rx_arrived_) {}

std::shared_ptr<Segment> MirroredLink::callers_rings(SegmentPool& segments, const DeviceCopies* copies, bool kernels,
                                                     const std::shared_ptr<Segment>& host) {
  if (copies == nullptr || segments.placement_for(kernels) != RingPlacement::device) return host;
  return segments.take(SegmentPool::Use::own, host->ring_bytes(), RingPlacement::device);
}

bool MirroredLink::pump() {
  if (failed_) return false;
  bool moved = out_.step();
  if (end_wanted_ && !end_sent_ && out_.idle()) {
    link_->end_sending();
    end_sent_ = moved = true;
  }
  moved |= link_->pump();
  moved |= in_.step();
  if (out_.error() != 0 || in_.error() != 0) {
    fail(out_.error() != 0 ? out_.error() : in_.error());
    return true;
  }
  pass_on_events();
  return moved;
}

void MirroredLink::end_receiving() {
  read_shut_down_ = true;
  link_->end_receiving();
}

bool MirroredLink::watches_memory() const {
  return !failed_ && (out_.busy() || in_.busy() || polls_ || link_->watches_memory());
}

/// Callers learn of an end, and of a failure, once they can have all that came before it.
void MirroredLink::pass_on_events() {
  if (final_ && (read_shut_down_ || static_cast<std::int64_t>(in_.position() - *final_) >= 0)) {
    events_.on_ended(*final_);
    final_.reset();
  }
  if (links_error_ != 0 && in_.idle()) {
    failed_ = true;
    events_.on_failed(links_error_);
  }
}

/// Fails for a reason that the network does not know of. A reset: the peer must not take it for an orderly end.
void MirroredLink::fail(int error) {
  failed_ = true;
  log_warn("a connection with rings in device memory ended: " + std::string(strerror(error)));
  stream_.reset_on_close();
  events_.on_failed(error);
}

}  // namespace gpusock::proxy
