#pragma once
/// @file How a connection gets its link: what one kind of link has to agree on with the peer, and what it makes of
/// that.
///
/// All kinds go through the same steps:
///   1. LinkMaker::prepare(), when a socket is opened: begins what takes long (libfabric's look around).
///   2. The acceptor: start() makes its half. Its message() is the offer.
///   3. The connector: start() with that offer. Its message() is the answer. Or it refuses, and is offered the next
///   kind.
///   4. The acceptor: take_answer(). Then advance() until the link is known to carry bytes.
///   5. Both: establish_link(), by make_link().
/// A connection of plain TCP has steps 2 and 5 alone. The handshake (handshake_messages.hpp) sees to it that messages
/// come whole and unaltered, from the peer that was authenticated. A link checks what they say: a peer that knows the
/// secret may lie.

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

/// What a link is wanted for.
struct LinkRequest {
  bool acceptor = false;  ///< true on the side that listened
  bool only = false;      ///< the acceptor's: true if both would take only this kind of link
  bool kernels = false;   ///< true if only kernels use this side's socket; else host threads may, too
  SocketType type = SocketType::stream;
  std::uint64_t ring_bytes = 0;         ///< capacity of each ring; 0: as the kind likes it
  std::uint64_t record_ring_bytes = 0;  ///< records: what both sides' rings have, of kinds where each side makes its
                                        ///< own
  Endpoint local;  ///< of the connection on which the two agree: it shows which network leads to the peer
  Endpoint peer;

  /// What rings of a kind where each side makes its own are to have; 0: as the kind likes it.
  std::uint64_t own_ring_bytes() const { return type == SocketType::seqpacket ? record_ring_bytes : ring_bytes; }
};

/// One connection's link in the making. Each side has one; the destructor gives back what it holds.
class LinkSetup {
 public:
  virtual ~LinkSetup() = default;

  enum class State { waiting, ready, failed };
  /// Goes on with what takes time; does not wait. The acceptor's again once it has the answer: a link that carries
  /// nothing fails.
  virtual State advance() { return failure_.error != 0 ? State::failed : State::ready; }

  /// What the peer must know: the acceptor's offer, or the connector's answer to it. Once ready.
  virtual std::span<const std::byte> message() const { return {}; }

  /// The acceptor's: takes the connector's answer; false where it is invalid (failure() says why).
  virtual bool take_answer(std::span<const std::byte> answer) {
    if (!answer.empty()) failure_ = {EPROTO, "the peer's answer has bytes that this link does not have"};
    return answer.empty();
  }

  /// Why there will be no such link: an errno, and words for people.
  struct Failure {
    int error = 0;
    std::string reason;
  };
  const Failure& failure() const { return failure_; }

  /// What is not as good as it might be of a link that is made, and why: "p2p in GPU memory: …". Empty: nothing. The
  /// acceptor's once it has the answer.
  const std::string& remark() const { return remark_; }

  /// The memory of the rings. Once ready.
  const ConnectionRings& rings() const { return rings_; }

  /// Replaces those addresses that are not the socket table's words.
  virtual void use_own_words(table::RingPair& /*rings*/) const {}

  /// Makes the link, on rings as the proxy reaches them. `stream` is the connection on which the two agreed; the link
  /// keeps it, and takes it over after all that can fail. Once, last. `events` outlives the link.
  virtual std::unique_ptr<Link> make_link(const table::RingPair& rings, std::unique_ptr<ByteStream>&& stream,
                                          LinkEvents& events) = 0;

 protected:
  /// Does a part of the set-up; false where that fails, and failure() says why.
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

/// Who uses a link's socket.
struct LinkCallers {
  std::uint32_t slot = 0;
  bool are_kernels = false;  ///< with sockets of their own
};

/// Makes the link that was agreed on and publishes the rings in the slot's SocketSetup: the one place that knows
/// whether callers' rings are copied (by `copies`), and whether callers poll words in device memory.
std::unique_ptr<Link> establish_link(LinkSetup& setup, ProxySlots& slots, LinkCallers callers, DeviceCopies* copies,
                                     std::unique_ptr<ByteStream> stream, LinkEvents& events);

/// One kind of link, as this context has it.
class LinkMaker {
 public:
  virtual ~LinkMaker() = default;

  virtual LinkKind kind() const = 0;

  /// False if it has no ring memory now and will have some when another connection has ended.
  virtual bool has_room(bool /*kernels*/) const { return true; }

  /// A socket is to be opened here whose connections may get this kind of link: false while that must wait, and this is
  /// asked again. Does not wait itself.
  virtual bool prepare(const Endpoint& /*asked*/) { return true; }

  /// Begins one side's half for one connection. `offer`: the connector's, what the acceptor has offered. `sink` is told
  /// when advance() may get further. Never nullptr: if the link cannot be made, advance() fails.
  virtual std::unique_ptr<LinkSetup> start(const LinkRequest& request, std::span<const std::byte> offer,
                                           ReadySink& sink) = 0;

  /// Takes the news that its links share (completion queues), at each step and at its time; true if there were any.
  /// Does not wait.
  virtual bool poll(std::uint64_t /*now_ns*/) { return false; }

  /// Does what is not urgent, whenever the proxy looks at the network's news. Does not wait.
  virtual void maintain(std::uint64_t /*now_ns*/) {}

  /// True if poll() must be called although no descriptor becomes readable: then the proxy's thread naps instead of
  /// sleeping.
  virtual bool wants_polling() const { return false; }
};

inline std::vector<LinkMaker*> pointers_to(const std::vector<std::unique_ptr<LinkMaker>>& makers) {
  std::vector<LinkMaker*> pointers;
  pointers.reserve(makers.size());
  for (const auto& maker : makers) pointers.push_back(maker.get());
  return pointers;
}

}  // namespace gpusock::proxy
