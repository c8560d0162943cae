#pragma once
/// @file The handshake: two gpusock peers agree on a link, over a new TCP connection. See handshake_messages.hpp.

#include "host_proxy/links/link_setup.hpp"
#include "host_proxy/negotiation/handshake_messages.hpp"
#include "host_proxy/negotiation/secret.hpp"
#include "host_proxy/net/network.hpp"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace gpusock::proxy {

class DeviceCopies;

/// What this side can use for its connections.
struct LinkResources {
  std::vector<LinkMaker*> makers;       ///< the kinds of links, best first
  DeviceCopies* copies = nullptr;       ///< nullptr if no rings are in device memory
  std::uint64_t record_ring_bytes = 0;  ///< records: capacity of rings that each side makes itself, unless the
                                        ///< endpoint gives one
  Secret secret;
  std::uint64_t ring_bytes_max = ~std::uint64_t{0};  ///< the largest rings that a connection can have here

  /// The maker of this link; nullptr if there is no such link here.
  LinkMaker* maker_of(LinkKind kind) const {
    const auto found = std::find_if(makers.begin(), makers.end(),
                                    [kind](const LinkMaker* maker) { return maker->kind() == kind; });
    return found == makers.end() ? nullptr : *found;
  }
  /// True if connections can use this link here.
  bool has(LinkKind kind) const { return kind == LinkKind::automatic || maker_of(kind) != nullptr; }
};

/// A handshake in progress. advance() reads and writes what it can, and is called until it is done or has failed.
class Handshake {
 public:
  virtual ~Handshake() = default;

  enum class State { waiting, done, failed };
  virtual State advance() = 0;

  /// True if the peer has proved that it knows the secret.
  virtual bool peer_is_known() const = 0;

  int error() const { return error_; }                                   ///< failed: an errno
  LinkKind kind() const { return kind_; }                                ///< done: what was agreed on
  std::unique_ptr<LinkSetup> take_setup() { return std::move(setup_); }  ///< done: ready to be established
  /// Why no better link was chosen: "verbs: no RDMA device has this address; …". Empty if the best one was.
  const std::string& reasons() const { return reasons_; }
  /// True if one of the reasons is that all memory for a link is in use.
  bool found_no_room() const { return found_no_room_; }
  /// What the peer does that a gpusock peer would not, and what to do about it: "the peer does not speak gpusock: …".
  /// Once the peer has shown that it speaks gpusock: why the two do not fit (on the connector: their secrets or types
  /// differ; on both: they have no link in common), or empty.
  std::string mismatch() const;
  /// True if the peer has sent what no gpusock peer sends; false if it is just silent.
  bool is_foreign() const { return !oddity_.empty(); }

 protected:
  Handshake(ByteStream& stream, const LinkResources& resources, const Endpoint& asked, ReadySink& sink, bool acceptor,
            bool kernels);

  bool has_records() const { return asked_.type == SocketType::seqpacket; }
  /// The size of the rings that this side would make for records.
  std::uint32_t own_record_ring_bytes() const;
  /// The links that this side may take.
  std::uint16_t own_links() const;
  LinkMaker* maker_of(std::uint16_t link) const;

  /// Begins this side's half of a link. `offer`: on the connector, the acceptor's offer.
  void start_link(LinkMaker& maker, std::span<const std::byte> offer);
  /// Gives up the link that this side began and cannot make. Tells the peer why, and returns the errno.
  int refuse_link();

  State fail(int error);
  /// Fails because the two have no link in common. `theirs`: the peer's links; 0 if it did not say.
  State fail_without_link(std::uint16_t theirs);
  bool flush();  ///< true when all is sent

  /// Sends a message without a proof.
  void send(const Hello& hello);
  /// Sends a message whose last member is the proof, which is computed here.
  template <class Message>
  void send_proven(Message message) {
    note(&message, sizeof message - sizeof(Proof));
    message.proof = prove(request_.acceptor);
    append(&message, sizeof message);
  }
  void send_message(NegotiationMessage header, std::span<const std::byte> bytes = {});

  /// The next message, once all of it has arrived. Invalid bytes fail the handshake.
  template <class Message>
  std::optional<Message> receive() {
    Message message;
    return take(&message, sizeof message) ? std::optional<Message>(message) : std::nullopt;
  }
  struct ReceivedMessage {
    NegotiationMessage header;
    std::span<const std::byte> bytes;  ///< valid until the next message is received
  };
  /// The next negotiation message, once all of it has arrived. A wrong proof fails the handshake, too.
  std::optional<ReceivedMessage> receive_message();

  /// Adds bytes to the transcript, which proofs cover.
  void note(const void* bytes, std::size_t count) { transcript_.append(static_cast<const char*>(bytes), count); }
  /// The proof of one side, the acceptor or the connector, for the transcript so far.
  Proof prove(bool acceptor) const;
  /// Adds a message to the transcript. True if its proof is the peer's.
  template <class Message>
  bool is_proven(const Message& message) {
    note(&message, sizeof message - sizeof(Proof));
    return equal(prove(!request_.acceptor), message.proof);
  }
  static bool equal(const Proof& a, const Proof& b);
  /// The errno for the caller: the peer's error if a peer may name it, else EPROTO.
  static int peers_reason(int error);

  void remember(std::uint16_t link, const LinkSetup::Failure& failure);
  void remember_peers(const ReceivedMessage& refusal);

  const LinkResources& resources_;
  Endpoint asked_;
  LinkRequest request_;
  LinkKind kind_ = LinkKind::tcp;
  std::unique_ptr<LinkSetup> setup_;
  std::uint16_t left_ = 0;  // links that may still be offered
  std::uint16_t link_ = 0;  // the one that setup_ is for
  State state_ = State::waiting;
  int error_ = 0;

 private:
  bool take(void* message, std::size_t bytes);
  bool fill(std::size_t bytes);
  bool is_ours();
  void append(const void* bytes, std::size_t count);

  ByteStream& stream_;
  ReadySink& sink_;
  std::string transcript_;
  std::string outbox_;
  std::string inbox_;
  std::vector<std::byte> payload_;
  std::string reasons_;
  bool found_no_room_ = false;
  std::string hello_;        // this side's first message, sent before anything was received
  std::string oddity_;       // what shows that the peer does not speak gpusock: "it sent …"
  std::string unlinked_;     // "the peers have no link in common (…)", if that is so
  bool hung_up_ = false;     // the peer ended the stream, or the connection broke
  bool understood_ = false;  // the peer has sent a message of gpusock
};

/// Makes the half of the side that connected. `asked`: what its caller connects to, with the wanted link, type and
/// rings. `sink` is notified when advance() may get further though nothing was received. `kernels`: as in LinkRequest.
std::unique_ptr<Handshake> make_connector_handshake(ByteStream& stream, const LinkResources& resources,
                                                    const Endpoint& asked, ReadySink& sink, bool kernels = false);
/// Makes the half of the side that accepted. `asked`: what its caller listens at.
std::unique_ptr<Handshake> make_acceptor_handshake(ByteStream& stream, const LinkResources& resources,
                                                   const Endpoint& asked, ReadySink& sink, bool kernels = false);

}  // namespace gpusock::proxy
