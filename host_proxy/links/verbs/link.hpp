#pragma once
/// @file The verbs link: this side's card writes committed bytes into the peer's ring, and behind them the position
/// that the peer's callers poll. The peer's processor does nothing for a message; how each side ends is said on the
/// control channel.
///
/// What may be overwritten when. A byte of the tx ring is given back to its callers when the write that carries it is
/// complete: until then the card may have to send it again. A byte of the peer's rx ring is overwritten only once the
/// peer's credit has passed it. Writes of one queue pair are executed in order, and never twice, so positions and
/// credits only grow.
///
/// Rings may lie in device memory that the cards reach (device_rings.hpp). This side's proxy touches no byte of them;
/// it gives its card their addresses, and passes on what has arrived (arrivals.hpp).

#include "host_proxy/links/control_channel.hpp"
#include "host_proxy/links/link.hpp"
#include "host_proxy/links/network_probe.hpp"
#include "host_proxy/links/verbs/arrivals.hpp"
#include "host_proxy/links/verbs/message.hpp"
#include "host_proxy/memory/segment.hpp"
#include "host_proxy/table/socket_table.hpp"
#include "rdma/queue_pair.hpp"
#include "rdma/registration.hpp"
#include "ringbuf/byte_ring.hpp"

#include <array>
#include <cstdint>
#include <memory>
#include <string>

namespace gpusock::proxy::verbs {

/// What a maker's links share: how many of them have writes under way.
struct Activity {
  std::size_t busy = 0;
};

/// What a link works with. In this order, so that the queue pair goes first, then the keys, then the memory.
struct Parts {
  std::shared_ptr<Segment> segment;
  rdma::Registration words;  ///< remote
  rdma::Registration rx;     ///< remote
  rdma::Registration tx;
  std::unique_ptr<rdma::QueuePair> pair;
  PeerMemory peer;
};

class VerbsLink final : public Link, private LinkEvents, private rdma::QueuePairEvents {
 public:
  /// `rings`: of `parts`. Where rx.committed is not the word that the peer's card writes, the link passes on what has
  /// arrived. `events` outlives the link.
  VerbsLink(Parts parts, std::shared_ptr<Activity> activity, std::unique_ptr<ByteStream> stream,
            const table::RingPair& rings, LinkEvents& events);
  ~VerbsLink();

  bool pump() override;
  std::uint64_t tend(std::uint64_t now_ns) override;
  void end_sending() override { end_wanted_ = true; }
  void end_receiving() override;
  void close() override { close_wanted_ = true; }
  bool finished() const override;
  bool may_go() const override { return finished() && control_.peer_left(); }
  bool waits_for_credit() const override;
  bool watches_memory() const override { return !failed_ && (unsent_ != 0 || uncredited_ != 0 || arrivals_.watches()); }
  Traffic traffic() const override;

 private:
  /// A batch of writes that is not known to be complete.
  struct Flight {
    std::uint32_t request = 0;  ///< the last of its requests, as QueuePair counts
    std::uint64_t end = 0;      ///< of its bytes, from the connection's first
  };

  /// How the rx ring stands, from the connection's first byte.
  struct Received {
    std::uint64_t consumed;
    std::uint64_t arrived;
  };

  bool greet();
  Received look_at_rx() const;
  bool is_possible(const Received& received) const;
  bool receive();
  bool give_credit(const Received& received);
  void take_credit();
  bool transmit();
  bool drop_committed();
  bool post_bytes(std::uint64_t bytes);
  bool end_if_all_is_sent();
  bool sending_is_over() const { return peer_deaf_ || control_.peer_closed(); }
  void take_off(std::uint64_t end);
  void land();
  void forget_flights();
  void take_breakage();
  void fail(int error, const std::string& why);

  void on_progress() override;
  void on_ended(std::uint64_t final_position) override;
  void on_peer_deaf() override;
  void on_failed(int error) override;

  Parts parts_;
  SegmentHeader& words_;
  std::shared_ptr<Activity> activity_;
  ByteStream& stream_;  // control_ has it
  ringbuf::ByteConsumer<> tx_;
  std::uint64_t tx_start_;
  std::uint64_t* rx_consumed_;
  std::uint64_t rx_start_;
  std::uint64_t rx_bytes_;
  LinkEvents& events_;
  Arrivals arrivals_;
  std::uint32_t inline_bytes_;  // of ring bytes: the processor copies them
  ControlChannel control_;
  NetworkProbe probe_;

  // Positions from the connection's first byte.
  std::uint64_t sent_ = 0;        // posted
  std::uint64_t freed_ = 0;       // given back to this side's callers; beyond sent_ where the peer reads no more
  std::uint64_t credit_ = 0;      // consumed by the peer's
  std::uint64_t credited_ = 0;    // consumed by this side's, as the peer was told
  std::uint64_t unsent_ = 0;      // committed and waiting, when last looked
  std::uint64_t uncredited_ = 0;  // consumed and not told, when last looked
  std::uint64_t peer_start_ = 0;
  int looks_ = 0;  // at the same credit
  std::array<Flight, rdma::QueuePair::kDepth> flights_;
  std::size_t first_flight_ = 0;
  std::size_t flying_ = 0;
  bool greeted_ = false;
  bool open_ = false;
  bool peer_deaf_ = false;
  bool deaf_ = false;
  bool broken_ = false;  // the queue pair is, and nobody minds
  bool end_wanted_ = false;
  bool close_wanted_ = false;
  bool closed_said_ = false;
  bool failed_ = false;
};

}  // namespace gpusock::proxy::verbs
