#pragma once
/// @file The interface by which OneSidedLink uses one connection's one-sided writes, in both directions: bytes into the
/// peer's ring, credit back, and how either side learns of them. It does not know the socket's own rings. Byte counts
/// start at 0 with the connection.

#include "host_proxy/net/network.hpp"

#include <cstddef>
#include <cstdint>
#include <new>
#include <string>
#include <string_view>
#include <vector>

namespace gpusock::proxy {

class OneSidedTransport {
 public:
  virtual ~OneSidedTransport() = default;
  OneSidedTransport(const OneSidedTransport&) = delete;
  OneSidedTransport& operator=(const OneSidedTransport&) = delete;

  virtual std::string name() const = 0;  ///< for the log
  /// True if no event reports what the peer writes, so that the link has to look for it.
  virtual bool is_silent() const = 0;
  /// True if the NIC writes the word that callers poll; else the link writes it.
  virtual bool commits() const { return false; }
  /// True if callers may have consumed bytes that arrived() does not count yet, because they poll another word.
  virtual bool callers_may_lead() const { return false; }

  /// Words that the peer needs before it may write; the link sends them.
  virtual std::vector<std::uint64_t> setup_words() const { return {}; }
  /// Takes the next of the peer's set-up words. Returns 0, or an errno: EPROTO if the word is invalid.
  virtual int take_word(std::uint64_t word) = 0;
  /// True once all of the peer's set-up words have arrived: this side may now write.
  bool is_open() const { return open_; }
  std::uint64_t peer_ring_bytes() const { return peer_ring_bytes_; }

  /// Sets the sink that is notified of completions; nullptr: none.
  void set_sink(ReadySink* sink) { sink_ = sink; }
  /// Handles what has happened since the last call; true if there was anything. Call it first in each step.
  virtual bool poll() = 0;
  /// Why nothing can be sent or received any more, an errno; 0: no error. reason() is a text for logs, maybe empty.
  int error() const { return error_; }
  const std::string& reason() const { return reason_; }
  /// Called when the connection has failed: its writes are not awaited any more.
  virtual void abandon() {}

  // Sending.
  std::uint64_t sent() const { return sent_; }  ///< bytes written, or being written
  /// The bytes of these whose memory is not read any more.
  std::uint64_t completed() const { return completed_; }
  /// Bytes that the peer's callers have consumed, according to its credit.
  std::uint64_t peer_consumed() const { return peer_consumed_; }
  /// How many bytes the next write may have; 0 if no write can start now.
  virtual std::uint64_t write_bytes_max() const = 0;
  /// Starts to write the next bytes, which must not pass the end of the peer's ring. Returns 0, -EAGAIN (not now) or
  /// another negated errno.
  virtual int write(const std::byte* from, std::uint64_t bytes) = 0;

  // Receiving.
  /// Bytes that the peer has written, up to the first gap.
  virtual std::uint64_t arrived() const = 0;
  /// Makes all arrived bytes visible to callers, if arrival alone does not. Returns 0 or a negated errno.
  virtual int make_visible() { return 0; }
  /// Consumed bytes that were reported to the peer.
  std::uint64_t credited() const { return credited_; }
  /// True if credit is due now although it is little. `bytes`: how much. Called once a step.
  virtual bool is_credit_due(std::uint64_t bytes) = 0;
  /// Reports to the peer that `consumed` bytes are consumed. Returns 0, -EAGAIN (not now) or another negated errno.
  virtual int send_credit(std::uint64_t consumed) = 0;
  virtual bool is_credit_under_way() const { return false; }

  // Ending.
  bool all_complete() const { return completed_ == sent_ && !is_credit_under_way(); }
  /// Both numbers only grow. credits_sent() equals credits_arrived() of the other side if no credit is under way.
  virtual std::uint64_t credits_sent() const { return credited_; }
  virtual std::uint64_t credits_arrived() const { return peer_consumed_; }
  /// Called when both sides have announced that nothing is under way any more.
  virtual void settle() {}

 protected:
  OneSidedTransport() = default;

  void wake() {
    if (sink_ != nullptr) sink_->on_ready();
  }
  /// Records a failure; only the first one counts. If there is no memory for the reason, it stays empty.
  void set_failure(int error, std::string_view reason) noexcept {
    if (error_ != 0) return;
    error_ = error;
    try {
      reason_ = reason;
    } catch (const std::bad_alloc&) {
      return;
    }
  }

  bool open_ = false;
  std::uint64_t peer_ring_bytes_ = 0;
  std::uint64_t sent_ = 0;
  std::uint64_t completed_ = 0;
  std::uint64_t peer_consumed_ = 0;
  std::uint64_t credited_ = 0;

 private:
  ReadySink* sink_ = nullptr;
  int error_ = 0;
  std::string reason_;
};

}  // namespace gpusock::proxy
