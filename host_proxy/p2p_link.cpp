#include "host_proxy/p2p_link.hpp"

#include <bit>
#include <cerrno>
#include <cstring>

namespace gpusock::proxy {

static_assert(std::endian::native == std::endian::little, "control messages are written as they lie in memory");

P2pLink::P2pLink(std::unique_ptr<ByteStream> control, std::shared_ptr<Segment> segment, int side, LinkEvents& events)
    : control_(std::move(control)), segment_(std::move(segment)), side_(side), events_(events) {}

bool P2pLink::pump() {
  if (failed_) return false;
  const bool received = read_notices();  // first: a peer that has closed in order does not take what we would write
  const bool sent = !failed_ && flush();
  return sent || received;
}

void P2pLink::end_sending() {
  if (!ended_) post(kEnded);
  ended_ = true;
}

void P2pLink::end_receiving() {
  if (!deaf_) post(kDeaf);
  deaf_ = true;
}

void P2pLink::close() { post(kClosed); }

void P2pLink::post(Kind kind) {
  const Notice notice{kind, ringbuf::SystemAtomics::Ref<std::uint64_t>(*segment_->committed(side_)).load(ringbuf::kAcquire)};
  std::memcpy(outbox_.data() + outbox_bytes_, &notice, sizeof notice);
  outbox_bytes_ += sizeof notice;
}

bool P2pLink::flush() {
  if (outbox_bytes_ == 0) return false;
  const iovec vector{outbox_.data(), outbox_bytes_};
  const auto result = control_->write({&vector, 1});
  if (result > 0) {
    outbox_bytes_ -= static_cast<std::size_t>(result);
    std::memmove(outbox_.data(), outbox_.data() + result, outbox_bytes_);
    return true;
  }
  if (result < 0 && result != -EAGAIN) {
    outbox_bytes_ = 0;
    if (!peer_closed_) fail(ECONNRESET);
  }
  return false;
}

bool P2pLink::read_notices() {
  bool moved = false;
  while (!failed_ && !peer_closed_ && control_->readable) {
    const iovec vector{inbox_.data() + inbox_bytes_, inbox_.size() - inbox_bytes_};
    const auto result = control_->read({&vector, 1});
    if (result == -EAGAIN) break;
    if (result <= 0) {
      fail(ECONNRESET);  // gone without having said so
      break;
    }
    moved = true;
    inbox_bytes_ += static_cast<std::size_t>(result);
    if (inbox_bytes_ < inbox_.size()) continue;
    Notice notice;
    std::memcpy(&notice, inbox_.data(), sizeof notice);
    inbox_bytes_ = 0;
    take(notice);
  }
  return moved;
}

void P2pLink::take(const Notice& notice) {
  if (notice.kind == kEnded && !peer_ended_) {
    peer_ended_ = true;
    events_.on_ended(notice.final_position);
  } else if (notice.kind == kDeaf) {
    events_.on_peer_deaf();
  } else if (notice.kind == kClosed && peer_ended_) {
    peer_closed_ = true;
    events_.on_peer_deaf();
  } else {
    fail(EPROTO);
  }
}

Link::Traffic P2pLink::traffic() const {
  using Ref = ringbuf::SystemAtomics::Ref<std::uint64_t>;
  return {Ref(*segment_->committed(side_)).load(ringbuf::kRelaxed),       // relaxed: counters for people
          Ref(*segment_->consumed(1 - side_)).load(ringbuf::kRelaxed)};  // relaxed: counters for people
}

void P2pLink::fail(int error) {
  failed_ = true;
  events_.on_failed(error);
}

}  // namespace gpusock::proxy
