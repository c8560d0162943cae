#include "host_proxy/links/control_channel.hpp"

#include <bit>
#include <cerrno>
#include <cstring>
#include <span>

namespace gpusock::proxy {
namespace {

/// The most notices that one progress() takes: a peer may send any number of probes.
constexpr int kNoticesPerCall = 64;

}  // namespace

static_assert(std::endian::native == std::endian::little, "control messages are written as they lie in memory");

ControlChannel::ControlChannel(std::unique_ptr<ByteStream> stream, LinkEvents& events, TakeNotice take_notice)
    : stream_(std::move(stream)), events_(events), take_notice_(std::move(take_notice)) {
  outbox_.reserve(4 * sizeof(Notice));  // room for the notices that end a connection
}

void ControlChannel::say_ended(std::uint64_t final_position) {
  if (!ended_) queue_notice(kEnded, final_position);
  ended_ = true;
}

void ControlChannel::say_read_shut_down() {
  if (!read_shut_down_) queue_notice(kReadShutDown, 0);
  read_shut_down_ = true;
}

void ControlChannel::say_closed() {
  queue_notice(kClosed, 0);
  closed_ = true;
}

void ControlChannel::probe() {
  if (failed_ || closed_ || peer_left() || !outbox_.empty()) return;
  queue_notice(kProbe, 0);
  flush();
}

bool ControlChannel::progress() {
  if (failed_) return false;
  const bool received = read_notices();  // first: a peer that has closed in order takes no more notices
  const bool sent = !failed_ && flush();
  return sent || received;
}

void ControlChannel::queue_notice(std::uint64_t kind, std::uint64_t position) {
  const Notice notice{kind, position};
  const auto bytes = std::as_bytes(std::span(&notice, 1));
  outbox_.insert(outbox_.end(), bytes.begin(), bytes.end());
}

bool ControlChannel::flush() {
  if (peer_closed_) outbox_.clear();  // the peer does not read them
  if (outbox_.empty() || !stream_->writable) return false;
  const iovec vector{outbox_.data(), outbox_.size()};
  const auto result = stream_->write({&vector, 1});
  if (result > 0) {
    outbox_.erase(outbox_.begin(), outbox_.begin() + result);
    return true;
  }
  if (result < 0 && result != -EAGAIN) {
    outbox_.clear();
    fail(ECONNRESET);
  }
  return false;
}

bool ControlChannel::read_notices() {
  bool moved = false;
  for (int taken = 0; taken < kNoticesPerCall && !peer_left() && stream_->readable;) {
    const iovec vector{inbox_.data() + inbox_bytes_, inbox_.size() - inbox_bytes_};
    const auto result = stream_->read({&vector, 1});
    if (result == -EAGAIN) break;
    if (result <= 0) {
      if (closed_) {
        left_ = true;  // expected: the peer has received kClosed
      } else {
        fail(ECONNRESET);  // the peer is gone, and has not sent kClosed
      }
      break;
    }
    moved = true;
    inbox_bytes_ += static_cast<std::size_t>(result);
    if (inbox_bytes_ < inbox_.size()) continue;
    Notice notice;
    std::memcpy(&notice, inbox_.data(), sizeof notice);
    inbox_bytes_ = 0;
    take(notice);
    ++taken;
  }
  return moved;
}

void ControlChannel::take(const Notice& notice) {
  if (notice.kind == kEnded && !peer_ended_) {
    peer_ended_ = true;
    events_.on_ended(notice.position);
  } else if (notice.kind == kReadShutDown && !peer_read_shut_down_) {  // once: a peer must not keep this side reading
    peer_read_shut_down_ = true;
    events_.on_peer_read_shut_down();
  } else if (notice.kind == kClosed && peer_ended_) {
    peer_closed_ = true;
    stream_->end_writing();  // tells the peer that its kClosed has arrived
    events_.on_peer_read_shut_down();
  } else if (notice.kind == kProbe) {
    return;  // the operating system acknowledges it
  } else if (!take_notice_ || !take_notice_(notice.kind, notice.position)) {
    fail(EPROTO);
  }
}

void ControlChannel::fail(int error) {
  failed_ = true;
  events_.on_failed(error);
}

}  // namespace gpusock::proxy
