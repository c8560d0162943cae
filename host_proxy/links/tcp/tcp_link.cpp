#include "host_proxy/links/tcp/tcp_link.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

namespace gpusock::proxy {
namespace {

/// The most bytes that one system call moves: enough to make its cost small, and few enough that the ring's other end
/// starts on the bytes while they are in the cache.
constexpr std::uint64_t kTurnBytes = 256 << 10;
/// The most system calls that one progress() makes to send: a producer that never pauses must not keep the step from
/// other connections.
constexpr int kWritesPerCall = 8;
/// A read takes the room up to the ring's end alone if there is this much of it: one piece costs the system less than
/// two.
constexpr std::uint64_t kPieceBytes = 16 << 10;
constexpr std::uint64_t kUnitBytes = detail::PastRing::kUnitBytes;

std::span<const iovec> to_vectors(const ringbuf::RingSpans& spans, std::array<iovec, 2>& vectors) {
  vectors[0] = {spans.first.data, spans.first.bytes};
  vectors[1] = {spans.second.data, spans.second.bytes};
  return std::span<const iovec>(vectors).first(spans.second.bytes == 0 ? 1 : 2);
}

}  // namespace

TcpLink::TcpLink(std::unique_ptr<ByteStream> stream, ringbuf::ByteConsumer<> tx, ringbuf::ByteProducer<> rx,
                 LinkEvents& events)
    : stream_(std::move(stream)),
      tx_(tx),
      rx_(rx),
      events_(events),
      tx_start_(tx.position()),
      rx_start_(rx.position()) {}

bool TcpLink::progress() {
  if (failed_) return false;
  if (stream_->broken) take_breakage();
  if (failed_) return true;
  if (refuses_input_ && drop_arriving()) return true;  // before the end is sent: a reset must not follow an orderly end
  const bool sent = transmit();
  const bool received = discard_ ? drop_arriving() : deliver();
  return sent || received;
}

bool TcpLink::transmit() {
  bool moved = false;
  for (int writes = 0; writes < kWritesPerCall && !writing_ended_ && !failed_; ++writes) {
    const std::uint64_t ready = tx_.readable();
    if (ready == ringbuf::kRingCorrupt) {
      fail(EPROTO);
      break;
    }
    if (ready == 0 && rest_bytes_ == 0) return end_writing_if_all_is_sent() || moved;
    if (!stream_->writable) break;
    if (rest_bytes_ != 0) {
      if (!transmit_rest()) break;
      moved = true;
      continue;
    }
    const std::uint64_t wanted = std::min(ready, kTurnBytes);
    std::array<iovec, 2> vectors;
    const std::uint64_t written = write(to_vectors(tx_.spans(wanted), vectors));
    if (written == 0) break;
    tx_.release(written);
    moved = true;
    if (written < wanted) break;  // the network is full
  }
  return moved;
}

/// Returns the number of bytes written; 0 if none can be written now, or ever again.
std::uint64_t TcpLink::write(std::span<const iovec> from) {
  const auto result = stream_->write(from);
  if (result >= 0) return static_cast<std::uint64_t>(result);
  if (result != -EAGAIN) fail_sending(static_cast<int>(-result));
  return 0;
}

/// Handles an event that the connection is broken. It may come while nothing is read or written: the rx ring may be
/// full, the peer's stream may have ended long ago, and the caller may have nothing to send.
void TcpLink::take_breakage() {
  stream_->broken = false;
  if (const int error = stream_->take_error(); error != 0) fail_sending(error);
}

/// Reports the error to senders at once. Readers first get what arrived before it, however long they take, and then the
/// error.
void TcpLink::fail_sending(int error) {
  if (send_error_ != 0) return;
  send_error_ = error;
  stream_->reset_on_close();  // if this side lacked memory, the peer must not take it for an orderly end
  stream_->readable = true;
  writing_ended_ = true;  // the rest cannot be delivered
  events_.on_sending_failed(error);
  if (reading_ended_) fail(error);  // readers have all bytes
}

std::uint64_t TcpLink::move_past_ring(const detail::PastRing& wanted) {
  auto* data = static_cast<std::byte*>(wanted.data);
  return wanted.sends() ? transmit_past_ring(data, wanted.bytes) : deliver_past_ring(data, wanted.bytes);
}

std::uint64_t TcpLink::transmit_past_ring(std::byte* data, std::uint64_t bytes) {
  if (failed_ || writing_ended_ || end_wanted_ || !stream_->writable) return 0;
  if (tx_.readable() != 0 || rest_bytes_ != 0) return 0;
  std::uint64_t done = 0;
  for (int writes = 0; writes < kWritesPerCall && done < bytes && !writing_ended_; ++writes) {
    const std::uint64_t wanted = std::min(bytes - done, kTurnBytes);
    const iovec vector{data + done, wanted};
    const std::uint64_t written = write({&vector, 1});
    done += written;
    if (written < wanted) break;
  }
  const std::uint64_t whole = std::min(bytes, (done + kUnitBytes - 1) / kUnitBytes * kUnitBytes);
  keep_rest(data + done, whole - done);
  past_rings_.tx_bytes += whole;
  return whole;
}

void TcpLink::keep_rest(const std::byte* data, std::uint64_t bytes) {
  std::memcpy(rest_.data(), data, bytes);
  rest_bytes_ = bytes;
}

/// Sends what the network takes of the rest. False if that is nothing.
bool TcpLink::transmit_rest() {
  const iovec vector{rest_.data(), rest_bytes_};
  const std::uint64_t written = write({&vector, 1});
  rest_bytes_ -= written;
  std::memmove(rest_.data(), rest_.data() + written, rest_bytes_);
  return written != 0;
}

bool TcpLink::end_writing_if_all_is_sent() {
  if (!end_wanted_ || writing_ended_) return false;
  stream_->end_writing();
  writing_ended_ = true;
  return true;
}

bool TcpLink::deliver() {
  if (reading_ended_ || failed_ || !stream_->readable) return false;
  const std::uint64_t room = rx_.writable();
  if (room == ringbuf::kRingCorrupt) {
    fail(EPROTO);
    return true;
  }
  rx_full_ = room == 0;
  if (rx_full_) return false;
  ringbuf::RingSpans spans = rx_.spans(std::min(room, kTurnBytes));
  if (spans.first.bytes >= kPieceBytes) spans.second.bytes = 0;
  std::array<iovec, 2> vectors;
  const std::uint64_t arrived = read(to_vectors(spans, vectors));
  if (arrived != 0) rx_.commit(arrived);
  return arrived != 0 || reading_ended_;
}

/// Returns how many bytes were read: 0 if there are none now, or none will come. In that case it reports the end or the
/// error.
std::uint64_t TcpLink::read(std::span<const iovec> into) {
  const auto result = stream_->read(into);
  if (send_error_ != 0) stream_->drained = false;  // the next read finds out that readers have all: no event need come
  if (result > 0) return static_cast<std::uint64_t>(result);
  if (result == -EAGAIN && send_error_ == 0) return 0;
  // Report it now: the system reports its error only once. Later writes get EPIPE, which is not the cause.
  if (result < 0 && result != -EAGAIN) fail_sending(static_cast<int>(-result));
  // After its error a broken stream also reports an end. With EPIPE the end is true: the peer had ended its direction.
  const bool in_order = result == 0 && (send_error_ == 0 || send_error_ == EPIPE);
  reading_ended_ = true;
  if (in_order) events_.on_ended(rx_.position());
  if (send_error_ != 0) fail(send_error_);
  return 0;
}

std::uint64_t TcpLink::deliver_past_ring(std::byte* data, std::uint64_t bytes) {
  if (discard_ || reading_ended_ || failed_ || !stream_->readable || has_unread()) return 0;
  const iovec vector{data, std::min(bytes, kTurnBytes)};
  const std::uint64_t arrived = read({&vector, 1});
  const std::uint64_t whole = arrived == bytes ? arrived : arrived / kUnitBytes * kUnitBytes;
  put_into_ring(data + whole, arrived - whole);
  past_rings_.rx_bytes += whole;
  return whole;
}

/// Puts bytes into the rx ring, which has room for them.
void TcpLink::put_into_ring(const std::byte* data, std::uint64_t bytes) {
  if (bytes == 0) return;
  const ringbuf::RingSpans to = rx_.spans(bytes);
  std::memcpy(to.first.data, data, to.first.bytes);
  if (to.second.bytes != 0) std::memcpy(to.second.data, data + to.first.bytes, to.second.bytes);
  rx_.commit(bytes);
}

bool TcpLink::drop_arriving() {
  if (reading_ended_ || failed_ || !stream_->readable) return false;
  std::array<std::byte, 16384> sink;
  const iovec vector{sink.data(), sink.size()};
  const bool arrived = read({&vector, 1}) != 0;
  if (arrived && refuses_input_) reset_unread();
  return arrived || reading_ended_;
}

/// RFC 9293, 3.6.1 and RFC 2525, 2.17: a host that closes with unread input resets the connection, so that the peer
/// learns that not all of what it sent was received. After Shutdown::read unread bytes are dropped without a reset, as
/// they are before the close. This includes bytes that came before the proxy knew of the shutdown.
bool TcpLink::refuse_input() {
  refuses_input_ = !discard_;
  stream_->readable = true;  // bytes that the operating system holds have arrived, too
  const bool unread = refuses_input_ && has_unread();
  if (unread) transmit();  // sends what the network takes at once of the bytes before the close
  return unread;
}

/// Resets the connection, because bytes have come that no caller will receive. First sends as much of what was sent
/// before the close as the network takes at once.
void TcpLink::reset_unread() {
  end_wanted_ = false;  // no orderly end before the reset
  transmit();
  if (!failed_) fail(ECONNRESET);
}

void TcpLink::end_sending() { end_wanted_ = true; }

Link::Traffic TcpLink::traffic() const {
  return {tx_.position() - tx_start_ + past_rings_.tx_bytes, rx_.position() - rx_start_ + past_rings_.rx_bytes};
}

/// Fails the connection, and resets it: the network may not know the reason, and the peer must not see an orderly end.
void TcpLink::fail(int error) {
  stream_->reset_on_close();
  failed_ = true;
  events_.on_failed(error);
}

}  // namespace gpusock::proxy
