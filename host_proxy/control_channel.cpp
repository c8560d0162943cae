#include "host_proxy/control_channel.hpp"

#include <bit>
#include <cerrno>
#include <cstring>

namespace gpusock::proxy {

static_assert(std::endian::native == std::endian::little, "control messages are written as they lie in memory");

ControlChannel::ControlChannel(std::unique_ptr<ByteStream> stream, LinkEvents& events)
    : stream_(std::move(stream)), events_(events) {}

void ControlChannel::say_ended(std::uint64_t final_position) {
  if (!ended_) post(kEnded, final_position);
  ended_ = true;
}

void ControlChannel::say_deaf() {
  if (!deaf_) post(kDeaf, 0);
  deaf_ = true;
}

void ControlChannel::say_closed() { post(kClosed, 0); }

bool ControlChannel::pump() {
  if (failed_) return false;
  const bool received = read_notices();  // first: a peer that has closed in order does not take what we would write
  const bool sent = !failed_ && flush();
  return sent || received;
}

void ControlChannel::post(Kind kind, std::uint64_t position) {
  const Notice notice{kind, position};
  std::memcpy(outbox_.data() + outbox_bytes_, &notice, sizeof notice);
  outbox_bytes_ += sizeof notice;
}

bool ControlChannel::flush() {
  if (outbox_bytes_ == 0) return false;
  const iovec vector{outbox_.data(), outbox_bytes_};
  const auto result = stream_->write({&vector, 1});
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

bool ControlChannel::read_notices() {
  bool moved = false;
  while (!failed_ && !peer_closed_ && stream_->readable) {
    const iovec vector{inbox_.data() + inbox_bytes_, inbox_.size() - inbox_bytes_};
    const auto result = stream_->read({&vector, 1});
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

void ControlChannel::take(const Notice& notice) {
  if (notice.kind == kEnded && !peer_ended_) {
    peer_ended_ = true;
    events_.on_ended(notice.position);
  } else if (notice.kind == kDeaf) {
    events_.on_peer_deaf();
  } else if (notice.kind == kClosed && peer_ended_) {
    peer_closed_ = true;
    events_.on_peer_deaf();
  } else {
    fail(EPROTO);
  }
}

void ControlChannel::fail(int error) {
  failed_ = true;
  events_.on_failed(error);
}

}  // namespace gpusock::proxy
