#pragma once
/// @file How a connection gets its link: the interfaces by which each kind of link agrees with the peer, and is made.
///
/// All kinds of links take the same steps:
///   1. When a socket is opened, LinkMaker::prepare() begins what takes long (libfabric's search for providers).
///   2. The acceptor's start() makes its half of the link. The half's message() is the offer.
///   3. The connector's start() takes that offer. Its half's message() is the answer. If the connector refuses the
///      offer, the acceptor offers the next kind.
///   4. The acceptor calls take_answer(), and then advance() until the link is known to carry bytes.
///   5. Both sides call establish_link(), which calls make_link().
/// A plain TCP connection takes only steps 2 and 5. The handshake (handshake_messages.hpp) ensures that messages arrive
/// complete and unaltered, from the authenticated peer. Each link checks their contents: a peer that knows the secret
/// may lie.

#include "plain_types/endpoint.hpp"
#include "host_proxy/links/link.hpp"
#include "host_proxy/memory/segment.hpp"
#include "host_proxy/net/network.hpp"
#include "host_proxy/table/proxy_slots.hpp"
#include "socket_table/socket_table.hpp"

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <system_error>
#include <vector>

namespace gpusock::proxy {

class DeviceCopies;

/// The longest offer or answer, bytes.
inline constexpr std::size_t kLinkMessageBytesMax = 512;

/// The connection for which a link is wanted.
struct LinkRequest {
  bool acceptor = false;  ///< true on the side that listened
  bool only = false;      ///< acceptor: true if no other kind of link suits both sides
  bool kernels = false;   ///< true if only kernels use this side's socket; else host threads may, too
  SocketType type = SocketType::stream;
  std::uint64_t ring_bytes = 0;         ///< capacity of each ring; 0: the default of the kind of link
  std::uint64_t record_ring_bytes = 0;  ///< records: capacity of both sides' rings, for kinds of links where each side
                                        ///< makes its own
  Endpoint local;  ///< this end of the TCP connection of the handshake: it shows which network leads to the peer
  Endpoint peer;

  /// The capacity of the rings, for kinds of links where each side makes its own; 0: the default of the kind.
  std::uint64_t own_ring_bytes() const { return type == SocketType::seqpacket ? record_ring_bytes : ring_bytes; }
};

/// One side's half of a link while it is set up. The destructor gives back what the half holds.
class LinkSetup {
 public:
  virtual ~LinkSetup() = default;

  enum class State { waiting, ready, failed };
  /// Continues the work that takes time; does not wait. The acceptor calls it again after take_answer(): it fails if
  /// the link carries nothing.
  virtual State advance() { return failure_.error != 0 ? State::failed : State::ready; }

  /// What the peer must know: the acceptor's offer, or the connector's answer to it. Valid once ready.
  virtual std::span<const std::byte> message() const { return {}; }

  /// Takes the connector's answer, on the acceptor. False if the answer cannot be used; failure() says why.
  virtual bool take_answer(std::span<const std::byte> answer) {
    if (!answer.empty()) failure_ = {EPROTO, "the peer's answer has bytes that this link does not have"};
    return answer.empty();
  }

  /// Why the link cannot be made: an errno, and a text for users.
  struct Failure {
    int error = 0;
    std::string reason;
  };
  const Failure& failure() const { return failure_; }

  /// Which better form of this link is not used, and why: "p2p in GPU memory: …". Empty if there is none. On the
  /// acceptor: valid after take_answer().
  const std::string& remark() const { return remark_; }

  /// The memory of the rings. Valid once ready.
  const ConnectionRings& rings() const { return rings_; }

  /// Replaces the addresses of those words that this link keeps outside the socket table.
  virtual void use_own_words(table::RingPair& /*rings*/) const {}

  /// Makes the link; call it once, as the last function. `rings`: as the proxy reaches them. `stream`: the handshake's
  /// connection; the link takes it over, after everything that can fail. `events` must outlive the link.
  virtual std::unique_ptr<Link> make_link(const table::RingPair& rings, std::unique_ptr<ByteStream>&& stream,
                                          LinkEvents& events) = 0;

 protected:
  /// Does a part of the set-up. False if it throws std::system_error; failure() then says why.
  template <class Part>
  bool attempt(Part part) {
    try {
      part();
      return true;
    } catch (const std::system_error& error) {
      failure_ = {error.code().value(), error.what()};
      return false;
    }
  }

  Failure failure_;
  std::string remark_;
  ConnectionRings rings_;
};

/// The callers that use a link's socket.
struct LinkCallers {
  std::uint32_t slot = 0;
  bool are_kernels = false;  ///< true if they are kernels with sockets of their own
};

/// Makes the link that was agreed on, and writes the rings into the slot's SocketSetup. Only this function knows
/// whether callers' rings are copied (by `copies`), and whether callers poll words in device memory.
std::unique_ptr<Link> establish_link(LinkSetup& setup, ProxySlots& slots, LinkCallers callers, DeviceCopies* copies,
                                     std::unique_ptr<ByteStream> stream, LinkEvents& events);

/// Makes the links of one kind for this context.
class LinkMaker {
 public:
  virtual ~LinkMaker() = default;

  virtual LinkKind kind() const = 0;

  /// False if it has no ring memory now, and will have some only when another connection has ended.
  virtual bool has_room(bool /*kernels*/) const { return true; }

  /// Called before a socket is opened whose connections may get this kind of link. Returns false if the opening must
  /// wait; it is then called again. Does not wait itself.
  virtual bool prepare(const Endpoint& /*asked*/) { return true; }

  /// Begins one side's half of a connection's link. `offer`: on the connector, the acceptor's offer. `sink` is notified
  /// when advance() may get further. Never returns nullptr: if the link cannot be made, advance() fails.
  virtual std::unique_ptr<LinkSetup> start(const LinkRequest& request, std::span<const std::byte> offer,
                                           ReadySink& sink) = 0;

  /// Takes the events that its links share (completion queues); true if there were any. Called in each step, with the
  /// step's time. Does not wait.
  virtual bool poll(std::uint64_t /*now_ns*/) { return false; }

  /// Does work that is not urgent. Called whenever the proxy looks for events of the network. Does not wait.
  virtual void maintain(std::uint64_t /*now_ns*/) {}

  /// True if poll() must be called although no descriptor becomes readable. The proxy's thread then takes short naps
  /// instead of sleeping.
  virtual bool wants_polling() const { return false; }
};

inline std::vector<LinkMaker*> pointers_to(const std::vector<std::unique_ptr<LinkMaker>>& makers) {
  std::vector<LinkMaker*> pointers;
  pointers.reserve(makers.size());
  for (const auto& maker : makers) pointers.push_back(maker.get());
  return pointers;
}

}  // namespace gpusock::proxy
