#pragma once
/// @file Agreeing on a link with a gpusock peer, over a TCP connection that was just made. See handshake_messages.hpp.

#include "host_proxy/handshake_messages.hpp"
#include "host_proxy/network.hpp"
#include "host_proxy/segment_exchange.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

namespace gpusock::proxy {

/// What this side has for its connections.
struct LinkResources {
  SegmentPool* segments = nullptr;
  SegmentOffers* offers = nullptr;       ///< nullptr: no p2p from here
  PosixNetwork* host = nullptr;          ///< where Unix sockets are; nullptr: no p2p from here
  std::string secret;
};

/// A handshake in progress. advance() reads and writes what it can, and is called until it is done or has failed.
class Handshake {
 public:
  virtual ~Handshake() = default;

  enum class State { waiting, done, failed };
  virtual State advance() = 0;

  int error() const { return error_; }                    ///< failed: an errno
  LinkBits link() const { return link_; }                 ///< done: what was agreed on
  std::shared_ptr<Segment> segment() { return segment_; }  ///< done with p2p: the shared memory
  std::uint32_t record_ring_bytes() const { return record_ring_bytes_; }  ///< done, for records: of both sides' rings on tcp

 protected:
  Handshake(ByteStream& stream, const LinkResources& resources, const Endpoint& asked)
      : stream_(stream), resources_(resources), asked_(asked) {}

  bool has_records() const { return asked_.type == SocketType::seqpacket; }
  /// The rings that this side would make for records on tcp.
  std::uint32_t own_record_ring_bytes() const {
    return static_cast<std::uint32_t>(resources_.segments->ring_bytes(SegmentPool::Use::own, asked_.ring_bytes));
  }

  State fail(int error);
  /// Queues a message and sends what can be sent.
  template <class Message>
  void send(const Message& message) {
    outbox_.append(reinterpret_cast<const char*>(&message), sizeof message);
    flush();
  }
  bool flush();  ///< true when all is sent
  /// The next message, once it has arrived whole. Fails the handshake on anything that is not one.
  template <class Message>
  std::optional<Message> receive() {
    Message message;
    return fill(&message, sizeof message) ? std::optional<Message>(message) : std::nullopt;
  }
  Proof prove(const char* who) const;          ///< over the transcript
  template <class Message>
  void note(const Message& message) {          ///< adds to the transcript
    transcript_.append(reinterpret_cast<const char*>(&message), sizeof message);
  }
  /// Adds a message without its proof, which is last.
  template <class Message>
  void note_unproven(const Message& message) {
    transcript_.append(reinterpret_cast<const char*>(&message), sizeof message - sizeof(Proof));
  }

  ByteStream& stream_;
  const LinkResources& resources_;
  Endpoint asked_;
  std::uint32_t record_ring_bytes_ = 0;
  LinkBits link_ = kLinkTcp;
  std::shared_ptr<Segment> segment_;
  State state_ = State::waiting;
  int error_ = 0;

 private:
  bool fill(void* message, std::size_t bytes);

  std::string transcript_;
  std::string outbox_;
  std::string inbox_;
};

/// The side that connected; `asked` is what its caller connects to: its link, type and rings are what is wanted.
std::unique_ptr<Handshake> make_connector_handshake(ByteStream& stream, const LinkResources& resources, const Endpoint& asked,
                                                    ReadySink& sink);
/// The side that accepted; `asked` is what its caller listens at.
std::unique_ptr<Handshake> make_acceptor_handshake(ByteStream& stream, const LinkResources& resources,
                                                   const Endpoint& asked);

}  // namespace gpusock::proxy
