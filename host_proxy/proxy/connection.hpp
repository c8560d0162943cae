#pragma once
/// @file One connection from its first packet to the return of its slot.

#include "host_proxy/links/link.hpp"
#include "host_proxy/negotiation/handshake.hpp"
#include "host_proxy/net/connect_attempts.hpp"
#include "host_proxy/net/network.hpp"
#include "host_proxy/table/proxy_slots.hpp"

#include <algorithm>
#include <cstdint>
#include <list>
#include <memory>
#include <string>
#include <vector>

namespace gpusock::proxy {

class Proxy;

class Connection final : public LinkEvents, public ReadySink {
 public:
  /// An outgoing connection to `to`, of the caller that opened `slot`. `stream` belongs to the attempt that `attempts`
  /// began.
  Connection(Proxy& proxy, std::uint32_t slot, std::unique_ptr<ByteStream> stream, const Endpoint& to,
             const ConnectAttempts& attempts, std::uint64_t deadline_ns);
  /// An incoming connection, which gets a slot after it has agreed on a link.
  Connection(Proxy& proxy, Listener& listener, std::unique_ptr<ByteStream> stream, const Endpoint& asked,
             const table::SocketOptions& options, std::uint64_t deadline_ns);
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  /// Does what can be done now; true if anything moved.
  bool step(std::uint64_t now_ns);

  /// Moves bytes past the ring; returns how many.
  std::uint64_t move_past_ring(const detail::PastRing& wanted) {
    return phase_ == Phase::established && !closing_ ? link_->move_past_ring(wanted) : 0;
  }

  /// Makes the close a reset, as an orderly end would be wrong: no caller has accepted the connection.
  void abandon() { options_.linger_s = 0; }

  /// Does what the caller asked for. `bits`: request bits of its slot.
  void request(std::uint64_t bits, std::uint64_t now_ns);

  /// Applies the options that the caller chose.
  void set_options(const table::SocketOptions& options);

  /// When step() must be called even if nothing happens; ~0 for never.
  std::uint64_t deadline_ns() const { return std::min({deadline_ns_, link_due_ns_, idle_due_ns_, next_attempt_ns_}); }
  /// True if it is over: it can be destroyed, and its slot, if any, released.
  bool over() const { return phase_ == Phase::over; }
  /// True if its rings carry records.
  bool carries_records() const { return asked_.type == SocketType::seqpacket; }
  /// True if its caller has closed it.
  bool closed() const { return closing_; }
  /// Since when it has been closed and still delivers what was sent; ~0 if it does not.
  std::uint64_t closing_since_ns() const { return phase_ == Phase::established ? closing_since_ns_ : detail::kNever; }
  /// Resets a connection whose closing_since_ns() is not ~0: the peer gets no more of what was sent.
  void cut_closing_short();
  /// True if it is incoming, has agreed on a link, and waits for a slot.
  bool wants_slot() const { return phase_ == Phase::agreed && !has_slot_; }
  /// True if it has no rings, and gets none before another connection has ended. Only incoming connections of plain TCP
  /// wait so; others get their rings in the handshake.
  bool waits_for_rings() const;
  void give_slot(std::uint32_t slot);
  void take_slot_back() { has_slot_ = false; }
  /// True if it is incoming and its peer has not proved yet that it knows the secret.
  bool is_unauthenticated() const {
    const bool on_the_way = phase_ == Phase::connecting || phase_ == Phase::shaking;
    return listener_ != nullptr && !asked_.is_plain_tcp() && on_the_way &&
           (handshake_ == nullptr || !handshake_->peer_is_known());
  }
  /// Ends it at once with this errno, also after an exception, which may have left its work half done. Destroys its
  /// link, resets the connection to the peer, and tells the caller.
  void give_up(int error);
  /// Ends the handshake to make room for other clients.
  void evict();
  /// The listener is gone. A connection that no call has accepted ends.
  void orphan(bool accepted);

  bool has_slot() const { return has_slot_; }
  std::uint32_t slot() const { return slot_; }
  Listener* listener() const { return listener_; }
  /// True if it has a link, and kernels that have sockets of their own use it.
  bool is_kernels() const { return is_kernels_; }
  LinkKind link_kind() const { return link_kind_; }
  /// Why no better link is used; empty if this is the best one.
  const std::string& link_reason() const { return link_reason_; }
  /// While it agrees on a link: why the peer may not speak gpusock; empty if nothing suggests that.
  std::string opening_reason() const;
  const Endpoint& local() const { return local_; }
  const Endpoint& peer() const { return peer_; }
  const Link* link() const { return link_.get(); }
  /// Where the bytes of its rings lie; automatic while it has none.
  RingPlacement ring_placement() const {
    return segment_ == nullptr ? RingPlacement::automatic : segment_->placement();
  }
  /// What the operating system knows of a connection on the tcp link. A system call.
  TcpInfo tcp_info() const {
    const bool has_stream = link_ != nullptr && link_kind_ == LinkKind::tcp && stream_hint_ != nullptr;
    return has_stream ? stream_hint_->tcp_info() : TcpInfo();
  }
  /// Call it before a step. `guess`: true lets the step try to read although the network has not reported anything.
  void before_read(bool guess) {
    if (stream_hint_ == nullptr) return;
    stream_hint_->drained = false;
    if (guess) stream_hint_->readable = true;
  }
  /// Call it after a step: if that has read all there was, the next one waits for an event.
  void after_read() {
    if (stream_hint_ != nullptr && stream_hint_->drained) stream_hint_->readable = false;
  }
  /// True if a read now would be a guess: the last one found nothing, and there was no event since.
  bool nothing_to_read() const { return stream_hint_ != nullptr && !stream_hint_->readable; }
  bool waits_for_credit() const { return link_ != nullptr && link_->waits_for_credit(); }
  /// True if the peer's answer to a message of the handshake may be there within microseconds.
  bool awaits_answer(std::uint64_t now_ns) const { return phase_ == Phase::shaking && now_ns < answers_until_ns_; }
  bool watches_memory() const { return link_ != nullptr && link_->watches_memory(); }
  std::shared_ptr<Segment> take_segment() { return std::move(segment_); }

  void on_ready() override;

  /// The members from here to `list_entry` are the proxy's. True if it is in the proxy's list of active connections.
  bool active = false;
  bool resting = false;               ///< it is counted among its page's resting connections
  bool waits_for_slot = false;        ///< it is in the proxy's list of connections that wait for a slot
  std::uint64_t waits_since_ns = 0;   ///< when there was first no slot, or no ring memory, for it
  bool wait_was_told = false;         ///< the log has said that it waits
  std::uint64_t order = 0;            ///< of two connections the one with the smaller number came first
  std::uint64_t came_ns = 0;          ///< when it came, or was asked for
  std::uint64_t came_watched_ns = 0;  ///< how long its proxy had watched the network then
  std::uint64_t idle_steps = 0;
  std::list<std::unique_ptr<Connection>>::iterator list_entry;

 private:
  /// broken: it was established, give_up() has destroyed its link, and it waits for its caller to close it.
  enum class Phase { connecting, shaking, agreed, established, broken, over };

  void step_connecting(std::uint64_t now_ns);
  int check_connected();
  bool try_next_address(int error);
  void try_next_beside(std::uint64_t now_ns);
  void take_older_answer();
  void use(std::unique_ptr<ByteStream> stream, const Endpoint& at);
  void start_handshake(std::uint64_t now_ns);
  bool callers_are_kernels() const;
  void step_handshake();
  bool tell_mismatch();
  void establish();
  void close(std::uint64_t now_ns);
  std::uint64_t linger_ns() const;
  void expire();
  void fail_opening(int error);
  void publish();
  void note_error(int error);
  void finish_closing();
  void maintain_link(std::uint64_t now_ns);
  std::uint64_t bytes_moved() const;
  void watch_idleness(std::uint64_t now_ns);

  void on_ended(std::uint64_t final_position) override;
  void on_peer_read_shut_down() override;
  void on_sending_failed(int error) override;
  void on_failed(int error) override;

  Proxy& proxy_;
  Listener* listener_ = nullptr;
  bool is_kernels_ = false;      // kept, as the listener may be closed before its connections
  const bool incoming_ = false;  // it came to a listener, which may have closed since
  bool has_slot_ = false;
  std::uint32_t slot_ = 0;
  Phase phase_;
  Endpoint asked_;            // what the caller connects to, or the listener was opened with
  ConnectAttempts attempts_;  // an incoming one has no other address
  struct Attempt {
    std::unique_ptr<ByteStream> stream;
    Endpoint at;
  };
  std::vector<Attempt> older_;  // addresses that have not answered yet, tried before that of stream_
  std::uint64_t next_attempt_ns_ = detail::kNever;  // when the next address is tried beside them
  table::SocketOptions options_;
  Endpoint local_;
  Endpoint peer_;
  std::unique_ptr<ByteStream> stream_;  // until a link takes it
  ByteStream* stream_hint_ = nullptr;   // the same, also when a link has it
  std::unique_ptr<Handshake> handshake_;
  std::unique_ptr<LinkSetup> setup_;  // agreed on, and to be established
  std::unique_ptr<Link> link_;
  std::shared_ptr<Segment> segment_;  // until callers have closed it: a call may still use it although the link is gone
  std::shared_ptr<Segment> peers_segment_;  // the same for ConnectionRings::peers
  LinkKind link_kind_ = LinkKind::tcp;
  std::string link_reason_;
  std::uint64_t deadline_ns_;
  std::uint64_t answers_until_ns_ = 0;          // a near peer has shaken hands by then
  std::uint64_t link_due_ns_ = detail::kNever;  // when the link is to be maintained again
  std::uint64_t idle_due_ns_ = detail::kNever;  // when to look again whether anything has moved; idle_timeout_ns
  std::uint64_t moved_before_ = 0;              // bytes_moved() at the last look
  std::uint32_t quiet_looks_ = 0;               // consecutive looks that found nothing moved
  bool closing_ = false;
  std::uint64_t closing_since_ns_ = detail::kNever;
  int error_ = 0;        // why nothing can be sent any more
  bool failed_ = false;  // nothing arrives any more, either
  std::uint8_t flags_ = 0;
};

}  // namespace gpusock::proxy
