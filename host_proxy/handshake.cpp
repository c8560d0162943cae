#include "host_proxy/handshake.hpp"

#include "host_proxy/random.hpp"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>

namespace gpusock::proxy {

Handshake::State Handshake::fail(int error) {
  error_ = error;
  return state_ = State::failed;
}

bool Handshake::flush() {
  while (!outbox_.empty()) {
    const iovec vector{outbox_.data(), outbox_.size()};
    const auto result = stream_.write({&vector, 1});
    if (result == -EAGAIN) return false;
    if (result < 0) {
      fail(ECONNRESET);
      return false;
    }
    outbox_.erase(0, static_cast<std::size_t>(result));
  }
  return true;
}

bool Handshake::fill(void* message, std::size_t bytes) {
  while (inbox_.size() < bytes) {
    char buffer[256];
    const iovec vector{buffer, bytes - inbox_.size()};
    const auto result = stream_.read({&vector, 1});
    if (result == -EAGAIN) return false;
    if (result <= 0) {
      fail(result == 0 ? ECONNRESET : static_cast<int>(-result));  // nobody leaves in the middle of a handshake
      return false;
    }
    inbox_.append(buffer, static_cast<std::size_t>(result));
    if (std::memcmp(inbox_.data(), kMagic.data(), std::min(inbox_.size(), kMagic.size())) != 0) {
      fail(EPROTO);
      return false;
    }
  }
  std::memcpy(message, inbox_.data(), bytes);
  inbox_.clear();
  return true;
}

Proof Handshake::prove(const char* who) const {
  const std::string text = who + transcript_;
  Proof proof{};
  unsigned bytes = 0;
  if (HMAC(EVP_sha256(), resources_.secret.data(), static_cast<int>(resources_.secret.size()),
           reinterpret_cast<const unsigned char*>(text.data()), text.size(), proof.data(), &bytes) == nullptr) {
    return random_bytes<32>();  // what cannot be computed equals nobody's proof
  }
  return proof;
}

namespace {

bool equal(const Proof& a, const Proof& b) { return CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0; }

constexpr const char* kConnector = "gpusock connector";
constexpr const char* kAcceptor = "gpusock acceptor";

/// A peer's errno as the caller may get it: only those that a peer has reason to give.
int peers_reason(int error) {
  for (const int known : {EACCES, EPROTONOSUPPORT, EPROTOTYPE, ENOBUFS, EHOSTUNREACH}) {
    if (error == known) return error;
  }
  return EPROTO;
}

/// The links that a side may take, given what its endpoint names.
std::uint16_t allowed_links(LinkKind wanted, bool has_p2p) {
  std::uint16_t links = 0;
  if (wanted != LinkKind::p2p) links |= kLinkTcp;
  if (wanted != LinkKind::tcp && has_p2p) links |= kLinkP2p;
  return links;
}

class ConnectorHandshake final : public Handshake {
 public:
  ConnectorHandshake(ByteStream& stream, const LinkResources& resources, const Endpoint& asked, ReadySink& sink)
      : Handshake(stream, resources, asked), sink_(sink) {
    hello_.links = allowed_links(asked.link, resources.host != nullptr);
    hello_.type = has_records() ? 1 : 0;
    hello_.record_ring_bytes = has_records() ? own_record_ring_bytes() : 0;
    hello_.nonce = random_bytes<32>();
    note(hello_);
    send(hello_);
  }

  State advance() override {
    if (state_ == State::waiting) flush();
    if (state_ == State::waiting && step_ == Step::reply) await_reply();
    if (state_ == State::waiting && step_ == Step::memory) await_memory();
    if (state_ == State::waiting && step_ == Step::ready) await_ready();
    return state_;
  }

 private:
  enum class Step { reply, memory, ready };

  void await_reply() {
    const auto reply = receive<Reply>();
    if (!reply) return;
    note_unproven(*reply);
    if (reply->error != 0) {
      fail(peers_reason(reply->error));
    } else if (!equal(prove(kAcceptor), reply->proof)) {
      refuse(EACCES);
    } else if ((reply->links & ~hello_.links) != 0 || (has_records() && !can_make(reply->record_ring_bytes))) {
      refuse(EPROTO);
    } else {
      offered_ = reply->links;
      record_ring_bytes_ = reply->record_ring_bytes;
      if ((offered_ & kLinkP2p) != 0) {
        fetch_ = std::make_unique<SegmentFetch>(*resources_.host, *resources_.segments,
                                                std::string(reply->shared_name.begin(), reply->shared_name.end()),
                                                reply->ticket, reply->ring_bytes, sink_);
      }
      step_ = Step::memory;
    }
  }

  void await_memory() {
    if (fetch_ != nullptr) {
      const auto fetched = fetch_->advance();
      if (fetched == SegmentFetch::State::waiting) return;
      segment_ = fetch_->take();
      if (fetched == SegmentFetch::State::failed) segment_ = nullptr;
      fetch_.reset();
    }
    Confirm confirm;
    if (segment_ != nullptr) {
      confirm.link = kLinkP2p;
    } else if ((offered_ & kLinkTcp) != 0) {
      confirm.link = kLinkTcp;
    } else {
      return refuse(EHOSTUNREACH);  // p2p only, and the peer is not on this host
    }
    link_ = static_cast<LinkBits>(confirm.link);
    note_unproven(confirm);
    confirm.proof = prove(kConnector);
    send(confirm);
    step_ = Step::ready;
  }

  void await_ready() {
    const auto ready = receive<Ready>();
    if (!ready) return;
    if (ready->error != 0) {
      fail(peers_reason(ready->error));
    } else {
      state_ = State::done;
    }
  }

  /// Tells the peer why, and fails.
  void refuse(int error) {
    Confirm confirm;
    confirm.error = static_cast<std::uint16_t>(error);
    send(confirm);
    fail(error);
  }

  bool can_make(std::uint32_t ring_bytes) const {
    return std::has_single_bit(ring_bytes) && ring_bytes >= kRingBytesMin && ring_bytes <= hello_.record_ring_bytes;
  }

  ReadySink& sink_;
  Hello hello_;
  Step step_ = Step::reply;
  std::uint16_t offered_ = 0;
  std::unique_ptr<SegmentFetch> fetch_;
};

class AcceptorHandshake final : public Handshake {
 public:
  AcceptorHandshake(ByteStream& stream, const LinkResources& resources, const Endpoint& asked) : Handshake(stream, resources, asked) {}
  ~AcceptorHandshake() override { withdraw(); }

  State advance() override {
    if (state_ == State::waiting) flush();
    if (state_ == State::waiting && !replied_) await_hello();
    if (state_ == State::waiting && replied_) await_confirm();
    return state_;
  }

 private:
  void await_hello() {
    const auto hello = receive<Hello>();
    if (!hello) return;
    note(*hello);
    Reply reply;
    reply.nonce = random_bytes<32>();
    reply.links = hello->links & allowed_links(asked_.link, resources_.offers != nullptr);
    if ((hello->type != 0) != has_records()) {
      reply.links = 0;
      reply.error = EPROTOTYPE;
    }
    if ((reply.links & kLinkP2p) != 0) offer_memory(reply);
    if (reply.links == 0 && reply.error == 0) reply.error = EPROTONOSUPPORT;
    if (has_records()) agree_on_rings(*hello, reply);
    offered_ = reply.links;
    note_unproven(reply);
    reply.proof = prove(kAcceptor);
    send(reply);
    if (reply.error != 0) fail(reply.error);
    replied_ = true;
  }

  /// A record lies in one piece in both sides' rings, so these have the same size.
  void agree_on_rings(const Hello& hello, Reply& reply) {
    const std::uint32_t theirs = hello.record_ring_bytes;
    record_ring_bytes_ = std::min(own_record_ring_bytes(), theirs);
    reply.record_ring_bytes = record_ring_bytes_;
    if (reply.error == 0 && (!std::has_single_bit(theirs) || theirs < kRingBytesMin)) reply.error = EPROTO;
  }

  void offer_memory(Reply& reply) {
    SegmentPool& pool = *resources_.segments;
    constexpr auto kShared = SegmentPool::Use::shared;
    segment_ = pool.take(kShared, pool.ring_bytes(kShared, asked_.ring_bytes));
    if (segment_ == nullptr) {
      reply.links &= static_cast<std::uint16_t>(~kLinkP2p);
      return;
    }
    ticket_ = resources_.offers->offer(segment_);
    reply.ticket = *ticket_;
    reply.ring_bytes = segment_->ring_bytes();
    const std::string& name = resources_.offers->name();
    std::memcpy(reply.shared_name.data(), name.data(), std::min(name.size(), reply.shared_name.size()));
  }

  void await_confirm() {
    const auto confirm = receive<Confirm>();
    if (!confirm) return;
    if (confirm->error != 0) {
      fail(peers_reason(confirm->error));
      return;
    }
    note_unproven(*confirm);
    Ready ready;
    if (!equal(prove(kConnector), confirm->proof)) {
      ready.error = EACCES;
    } else if ((confirm->link != kLinkTcp && confirm->link != kLinkP2p) || (confirm->link & offered_) == 0) {
      ready.error = EPROTO;
    }
    send(ready);
    withdraw();
    if (ready.error != 0) {
      fail(ready.error);
      return;
    }
    link_ = static_cast<LinkBits>(confirm->link);
    if (link_ != kLinkP2p) segment_ = nullptr;
    if (segment_ != nullptr) resources_.segments->settle(*segment_);
    state_ = State::done;  // Ready is 16 bytes on a connection that carried less than a segment: it is sent
  }

  void withdraw() {
    if (ticket_) resources_.offers->withdraw(*ticket_);
    ticket_.reset();
  }

  bool replied_ = false;
  std::uint16_t offered_ = 0;
  std::optional<Ticket> ticket_;
};

}  // namespace

std::unique_ptr<Handshake> make_connector_handshake(ByteStream& stream, const LinkResources& resources, const Endpoint& asked,
                                                    ReadySink& sink) {
  return std::make_unique<ConnectorHandshake>(stream, resources, asked, sink);
}

std::unique_ptr<Handshake> make_acceptor_handshake(ByteStream& stream, const LinkResources& resources,
                                                   const Endpoint& asked) {
  return std::make_unique<AcceptorHandshake>(stream, resources, asked);
}

}  // namespace gpusock::proxy
