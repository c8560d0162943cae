#pragma once
/// @file How a process on the same host gets a connection's memory: over a Unix socket with an abstract name, for a
/// ticket that it got in the handshake. Inside one process the ticket leads to the segment itself.
///
/// An abstract name belongs to a network namespace: processes in different namespaces count as different hosts, and use
/// the network. Only processes of the same user are served (SO_PEERCRED).

#include "host_proxy/memory/segment.hpp"
#include "host_proxy/net/posix_network.hpp"

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace gpusock::proxy {

/// Names one offered segment; cannot be guessed.
using Ticket = std::array<std::uint8_t, 16>;

/// The segment of this ticket, if a context of this process offers it; else nullptr.
std::shared_ptr<Segment> find_local_offer(const Ticket& ticket);

/// The rings in device memory that the kernels of two contexts of this process use.
struct DeviceRings {
  std::shared_ptr<Segment> acceptors;   ///< the offered segment; nullptr: the two use other memory
  std::shared_ptr<Segment> connectors;  ///< the same segment on one GPU; else one of the connector's GPU
  std::string remark;                   ///< why not device memory, although both have some: "p2p in GPU memory: …"
};

/// Takes the segment in device memory that a context of this process offers with this ticket, for kernels of the
/// context that has `pool`. Between two GPUs that reach each other's memory, also takes a segment from `pool`. The
/// offering context finds the same result by SegmentOffers::device_rings().
DeviceRings take_local_device_offer(const Ticket& ticket, SegmentPool& pool);

/// For tests: contexts of one process then connect as those of different processes do.
void hide_local_offers() noexcept;

/// The half that offers segments.
class SegmentOffers final : public ReadySink {
 public:
  /// Throws Error if no Unix socket can be made.
  explicit SegmentOffers(PosixNetwork& network);
  ~SegmentOffers();

  /// The abstract Unix socket's name (without the leading zero byte): 32 hexadecimal digits.
  const std::string& name() const { return name_; }

  /// Offers the segment until it is fetched, once, or withdrawn. `on_device`: a segment that contexts of this process
  /// may take instead, or nullptr.
  Ticket offer(const std::shared_ptr<Segment>& segment, const std::shared_ptr<Segment>& on_device = nullptr);
  /// What the peer has taken in device memory. Valid once the peer has answered.
  DeviceRings device_rings(const Ticket& ticket) const;
  void withdraw(const Ticket& ticket);
  /// Called when a visitor sends the lasting ticket, another ticket (`says`), and a descriptor with them. The
  /// connection is for an answer.
  using OnGift = std::function<void(const Ticket& says, Descriptor gift, Descriptor connection)>;
  /// Sends this descriptor, which the caller keeps open, to all visitors that have this ticket, and takes their gifts.
  void offer_for_good(const Ticket& ticket, int descriptor, OnGift on_gift) {
    lasting_ticket_ = ticket;
    lasting_descriptor_ = descriptor;
    on_gift_ = std::move(on_gift);
  }

  /// Serves visitors that have come. Call it after on_ready(), or at intervals. Does not wait.
  void serve();

  void on_ready() override { ready_ = true; }

 private:
  struct Visitor {
    Descriptor connection;
    std::uint64_t turns_left;  // a visitor that sends nothing is evicted
  };
  void heed_visitors(bool heeds);
  bool accept_visitor();
  bool serve(const Visitor& visitor);
  void serve(const Visitor& visitor, const Ticket& ticket);

  PosixNetwork& network_;
  std::string name_;
  Descriptor listener_;
  std::vector<Visitor> visitors_;
  std::map<Ticket, std::weak_ptr<Segment>> offers_;
  Ticket lasting_ticket_{};
  int lasting_descriptor_ = -1;
  OnGift on_gift_;
  bool ready_ = true;
  bool heeds_ = false;
};

/// Fetches that wait because the peer's backlog was full. No event reports when there is room: each step tries them
/// again.
class FullBacklogs {
 public:
  void add(ReadySink& sink) { sinks_.push_back(&sink); }
  void remove(ReadySink& sink) { std::erase(sinks_, &sink); }
  bool empty() const { return sinks_.empty(); }
  void tell() {
    for (ReadySink* sink : sinks_) sink->on_ready();
  }

 private:
  std::vector<ReadySink*> sinks_;
};

/// The half that fetches one segment.
class SegmentFetch {
 public:
  /// All references must outlive this object. `sink` is notified when advance() may get further.
  SegmentFetch(PosixNetwork& network, SegmentPool& pool, FullBacklogs& backlogs, const std::string& name,
               const Ticket& ticket, std::uint64_t ring_bytes, ReadySink& sink);
  ~SegmentFetch();
  SegmentFetch(const SegmentFetch&) = delete;
  SegmentFetch& operator=(const SegmentFetch&) = delete;

  enum class State { waiting, done, failed };
  State advance();
  std::shared_ptr<Segment> take() { return std::move(segment_); }

 private:
  State connect();
  State send_ticket();
  State receive();

  PosixNetwork& network_;
  SegmentPool& pool_;
  FullBacklogs& backlogs_;
  ReadySink& sink_;
  std::string name_;
  Ticket ticket_;
  std::uint64_t ring_bytes_;
  Descriptor connection_;
  bool backlog_is_full_ = false;
  std::shared_ptr<Segment> segment_;
  State state_ = State::waiting;
};

}  // namespace gpusock::proxy
