#include "host_proxy/negotiation/handshake.hpp"

#include "plain_types/error.hpp"
#include "host_proxy/links/link_order.hpp"

#include <openssl/crypto.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstring>

namespace gpusock::proxy {
namespace {

/// The most bytes that are kept of the reason against one link. A reason from the peer is also made printable.
constexpr std::size_t kReasonBytesMax = 160;

/// How many of the peer's bytes an error text shows.
constexpr std::size_t kShownBytesMax = 24;

/// The beginning of what a peer has sent, up to the end of its first line, made printable.
std::string shown(std::string_view sent) {
  std::string text(sent.substr(0, std::min({sent.size(), sent.find_first_of("\r\n"), kShownBytesMax})));
  for (char& letter : text) {
    if (std::isprint(static_cast<unsigned char>(letter)) == 0) letter = '?';
  }
  return "'" + text + "'";
}

/// The names of these links: "p2p tcp".
std::string names_of(std::uint16_t links) {
  std::string names;
  for (const LinkKind kind : kLinksBestFirst) {
    if ((links & link_bit(kind)) != 0) names += (names.empty() ? "" : " ") + std::string(to_string(kind));
  }
  return names.empty() ? "none that is known" : names;
}

}  // namespace

Handshake::Handshake(ByteStream& stream, const LinkResources& resources, const Endpoint& asked, ReadySink& sink,
                     bool acceptor, bool kernels)
    : resources_(resources),
      asked_(asked),
      request_{.acceptor = acceptor,
               .kernels = kernels,
               .type = asked.type,
               .ring_bytes = asked.ring_bytes,
               .local = stream.local(),
               .peer = stream.peer()},
      stream_(stream),
      sink_(sink) {}

std::uint32_t Handshake::own_record_ring_bytes() const {
  return static_cast<std::uint32_t>(asked_.ring_bytes != 0 ? asked_.ring_bytes : resources_.record_ring_bytes);
}

std::uint16_t Handshake::own_links() const {
  std::uint16_t links = 0;
  for (const LinkMaker* maker : resources_.makers) {
    if (asked_.link == LinkKind::automatic || asked_.link == maker->kind()) links |= link_bit(maker->kind());
  }
  return links;
}

LinkMaker* Handshake::maker_of(std::uint16_t link) const {
  for (LinkMaker* maker : resources_.makers) {
    if (link_bit(maker->kind()) == link) return maker;
  }
  return nullptr;
}

void Handshake::start_link(LinkMaker& maker, std::span<const std::byte> offer) {
  kind_ = maker.kind();
  link_ = link_bit(kind_);
  setup_ = maker.start(request_, offer, sink_);
}

int Handshake::refuse_link() {
  const LinkSetup::Failure failure = setup_->failure();
  setup_.reset();
  remember(link_, failure);
  send_message(
      {.kind = NegotiationMessage::kRefusal, .link = link_, .error = static_cast<std::uint16_t>(failure.error)},
      std::as_bytes(std::span(failure.reason)));
  return failure.error;
}

Handshake::State Handshake::fail(int error) {
  error_ = error;
  return state_ = State::failed;
}

Handshake::State Handshake::fail_without_link(std::uint16_t theirs) {
  unlinked_ = "the peers have no link in common (here: " + names_of(own_links()) +
              (theirs == 0 ? "" : "; the peer: " + names_of(theirs)) + ")";
  return fail(EPROTONOSUPPORT);
}

void Handshake::append(const void* bytes, std::size_t count) {
  outbox_.append(static_cast<const char*>(bytes), count);
  flush();
}

void Handshake::send(const Hello& hello) {
  note(&hello, sizeof hello);
  hello_.assign(reinterpret_cast<const char*>(&hello), sizeof hello);
  append(&hello, sizeof hello);
}

void Handshake::send_message(NegotiationMessage header, std::span<const std::byte> bytes) {
  header.bytes = static_cast<std::uint16_t>(std::min(bytes.size(), kLinkMessageBytesMax));
  std::string message(reinterpret_cast<const char*>(&header), sizeof header);
  message.append(reinterpret_cast<const char*>(bytes.data()), header.bytes);
  note(message.data(), message.size());
  const Proof proof = prove(request_.acceptor);
  message.append(reinterpret_cast<const char*>(proof.data()), proof.size());
  append(message.data(), message.size());
}

bool Handshake::flush() {
  while (!outbox_.empty()) {
    if (!stream_.writable) return false;
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

/// Reads until this many bytes of the current message are there, and no further. False if it must wait or has failed.
bool Handshake::fill(std::size_t bytes) {
  while (inbox_.size() < bytes) {
    char buffer[256];
    const iovec vector{buffer, std::min(sizeof buffer, bytes - inbox_.size())};
    const auto result = stream_.read({&vector, 1});
    if (result == -EAGAIN) return false;
    if (result <= 0) {
      hung_up_ = true;
      fail(result == 0 ? ECONNRESET : static_cast<int>(-result));  // the peer ended the handshake too early
      return false;
    }
    inbox_.append(buffer, static_cast<std::size_t>(result));
    if (!is_ours()) {
      fail(EPROTO);
      return false;
    }
  }
  return true;
}

/// Checks how the current message begins. False if the peer speaks another protocol or version; notes what shows that.
bool Handshake::is_ours() {
  constexpr std::size_t kDigitAt = kMagic.size() - 1;
  if (std::memcmp(inbox_.data(), kMagic.data(), std::min(inbox_.size(), kMagic.size())) != 0) {
    const bool other_version = inbox_.compare(0, kDigitAt, kMagic.data(), kDigitAt) == 0;
    if (!understood_) oddity_ = other_version ? "it is of another version" : "it sent " + shown(inbox_);
    return false;
  }
  // A reply never equals the hello: their nonces differ.
  if (!understood_ && !hello_.empty() && inbox_ == hello_) {
    oddity_ = "it sent back what it was sent";
    return false;
  }
  return true;
}

std::string Handshake::mismatch() const {
  const bool accepts = request_.acceptor;
  if (understood_ && !accepts && error_ == EACCES)
    return "the two sides have different secrets: set the same GPUSOCK_SECRET for both";
  if (understood_ && !accepts && error_ == EPROTOTYPE)
    return has_records() ? "that listener's connections are streams: leave out type=seqpacket"
                         : "that listener's connections carry records: add type=seqpacket";
  if (understood_) return unlinked_;
  if (oddity_ == "it is of another version") return "the peer speaks another version of gpusock: build both ends alike";
  if (!oddity_.empty()) {
    return "the peer does not speak gpusock: " +
           std::string(accepts ? "listen with link=tcp to serve plain TCP" : "add link=tcp") + " (" + oddity_ + ")";
  }
  const std::string what = hung_up_ ? "the peer hung up before it said anything" : "the peer has said nothing so far";
  return what + (accepts ? "; plain TCP clients need link=tcp on this listener"
                         : "; if it does not speak gpusock, add link=tcp");
}

bool Handshake::take(void* message, std::size_t bytes) {
  if (!fill(bytes)) return false;
  std::memcpy(message, inbox_.data(), bytes);
  inbox_.clear();
  understood_ = true;
  return true;
}

std::optional<Handshake::ReceivedMessage> Handshake::receive_message() {
  ReceivedMessage result;
  if (!fill(sizeof result.header)) return std::nullopt;
  std::memcpy(&result.header, inbox_.data(), sizeof result.header);
  if (result.header.bytes > kLinkMessageBytesMax) {
    fail(EPROTO);
    return std::nullopt;
  }
  const std::size_t unproven = sizeof result.header + result.header.bytes;
  Proof proof;
  if (!fill(unproven + proof.size())) return std::nullopt;
  note(inbox_.data(), unproven);
  std::memcpy(proof.data(), inbox_.data() + unproven, proof.size());
  const auto* bytes = reinterpret_cast<const std::byte*>(inbox_.data()) + sizeof result.header;
  payload_.assign(bytes, bytes + result.header.bytes);
  inbox_.clear();
  if (!equal(prove(!request_.acceptor), proof)) {
    fail(EACCES);
    return std::nullopt;
  }
  result.bytes = payload_;
  return result;
}

Proof Handshake::prove(bool acceptor) const {
  return resources_.secret.prove(acceptor ? "gpusock acceptor" : "gpusock connector", transcript_);
}

bool Handshake::equal(const Proof& a, const Proof& b) { return CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0; }

int Handshake::peers_reason(int error) {
  for (const int known : {EACCES, EPROTONOSUPPORT, EPROTOTYPE, ENOBUFS, EHOSTUNREACH, ENOMEM, ENODEV, EADDRNOTAVAIL}) {
    if (error == known) return error;
  }
  return EPROTO;
}

void Handshake::remember(std::uint16_t link, const LinkSetup::Failure& failure) {
  const LinkMaker* maker = maker_of(link);
  found_no_room_ |= failure.error == ENOBUFS;
  if (!reasons_.empty()) reasons_ += "; ";
  reasons_ += std::string(maker == nullptr ? "a link" : to_string(maker->kind())) + ": " +
              (failure.reason.empty() ? describe_errno(failure.error) : failure.reason.substr(0, kReasonBytesMax));
}

void Handshake::remember_peers(const ReceivedMessage& refusal) {
  std::string words(reinterpret_cast<const char*>(refusal.bytes.data()), refusal.bytes.size());
  for (char& letter : words) {
    if (std::isprint(static_cast<unsigned char>(letter)) == 0) letter = '?';
  }
  remember(refusal.header.link, {peers_reason(refusal.header.error), words.empty() ? words : "the peer: " + words});
}

}  // namespace gpusock::proxy
