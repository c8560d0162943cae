#pragma once
/// @file One established connection of a node, whose peer is the fuzzer. Callers do what they may; the peer does what
/// it can. Promises: every call returns what it may return; spans lie in the ring; a socket that is closed is gone
/// after its linger time; nobody else is disturbed (neighbour.hpp); and other connections can be made.

#include "tests/fuzz/neighbour.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <string>

namespace gpusock::fuzz {

class Session {
 public:
  Session(Node& node, Socket socket) : node_(node), socket_(socket) {}

  /// Both ends of a connection agree on a link, honestly. `node_accepts`: who listens. `peer` has the peer's kinds of
  /// links. Returns the node's socket; `wire` is their stream, `setup` what the peer has for the link.
  static Socket establish(Node& node, proxy::LinkResources& peer, const Endpoint& asked, bool node_accepts,
                          std::shared_ptr<Wire>& wire, std::unique_ptr<proxy::LinkSetup>& setup) {
    const auto thread = this_thread();
    std::unique_ptr<proxy::ByteStream> stream;
    std::unique_ptr<proxy::Handshake> handshake;
    const auto shake = [&] {
      for (int turns = 0; turns < 32; ++turns) {
        if (wire == nullptr && node.network.last() != nullptr) wire = node.network.last();
        if (wire != nullptr && handshake == nullptr) {
          stream = std::make_unique<WireStream>(wire, true);
          handshake = node_accepts ? make_connector_handshake(*stream, peer, asked, no_sink())
                                   : make_acceptor_handshake(*stream, peer, asked, no_sink());
        }
        for (proxy::LinkMaker* maker : peer.makers) maker->poll(0);
        if (handshake != nullptr && setup == nullptr && handshake->advance() == proxy::Handshake::State::done)
          setup = handshake->take_setup();
        node.now_ns += 1'000'000;
        node.proxy->step(node.now_ns, proxy::Proxy::Pass::full);
      }
    };
    if (!node_accepts) {
      node.beside = [&, nested = false]() mutable {
        if (nested) return;
        nested = true;
        shake();
      };
      const Socket socket = node.net.connect(thread, asked, Deadline::now());
      node.beside = nullptr;
      return setup == nullptr ? -1 : socket;
    }
    const Socket listener = node.net.listen(thread, asked, 4, Deadline::now());
    FUZZ_CHECK(listener >= 0);
    wire = node.network.arrive();
    shake();
    const Socket socket = node.net.accept(thread, listener, Deadline::now());
    node.net.close(thread, listener);
    node.turn(2);
    return setup == nullptr ? -1 : socket;
  }

  /// One thing that a caller does.
  void act(Input& input) {
    const auto thread = this_thread();
    const Net& net = node_.net;
    switch (input.below(13)) {
      case 0:
      case 1: {
        const std::size_t bytes = input.below(6000);
        note_tx(net.send(thread, socket_, data_, bytes, flags(input), Deadline::now()), bytes);
        break;
      }
      case 2:
      case 3: {
        const std::size_t bytes = input.below(6000);
        const auto got = net.recv(thread, socket_, data_, bytes, flags(input) | (input.byte() % 4 == 0 ? kPeek : 0),
                                  Deadline::now());
        check(got, table::carries_records(socket_) ? Node::kRingBytes : bytes);
        break;
      }
      case 4: {
        const Span span = net.reserve(thread, socket_, input.below(6000), Deadline::now());
        check_span(span, node_.setup_of(socket_).rings.tx.memory, true);
        break;
      }
      case 5:
        check(net.commit(thread, socket_, input.below(6000)), 0);
        break;
      case 6:
        check(net.abort(thread, socket_), 0);
        break;
      case 7: {
        const Span span = net.peek(thread, socket_, input.below(6000), Deadline::now());
        check_span(span, node_.setup_of(socket_).rings.rx.memory, false);
        break;
      }
      case 8:
        check(net.release(thread, socket_, input.below(6000)), 0);
        break;
      case 9: {
        PollEntry entry{socket_, static_cast<std::int16_t>(input.byte()), 0};
        check(net.poll(thread, &entry, 1, Deadline::now()), 1);
        break;
      }
      case 10:
        check(net.shutdown(thread, socket_, static_cast<Shutdown>(1 + input.below(3))), 0);
        break;
      case 11: {
        std::int64_t value = 0;
        check(net.setsockopt(thread, socket_, SocketOption::linger, static_cast<std::int64_t>(input.below(3)) - 1), 0);
        check(net.getsockopt(thread, socket_, SocketOption::error, value), 0);
        SocketStats stats;
        check(net.stats(socket_, stats), 0);
        Endpoint peer;
        check(net.getpeername(socket_, peer), 0);
        break;
      }
      default:
        node_.proxy->sockets(node_.now_ns);
        break;
    }
    node_.turn(static_cast<int>(input.below(3)));
  }

  /// Closes the socket, and looks at what must hold whatever the peer did.
  void end(Neighbour* neighbour = nullptr) {
    const auto thread = this_thread();
    check(node_.net.close(thread, socket_), 0);
    check(node_.net.abort(thread, socket_), 0);
    check(node_.net.release(thread, socket_, 0), 0);
    node_.turn(4);
    FUZZ_CHECK(node_.net.close(thread, socket_) == -EBADF);
    node_.pass(31);
    node_.pass(2);
    if (neighbour != nullptr) {
      neighbour->check();
      FUZZ_CHECK(node_.proxy->sockets(node_.now_ns).size() == 1);  // the neighbour
      neighbour->end();
      node_.turn(4);
    }
    FUZZ_CHECK(!node_.proxy->has_connections());
    others_can_be_made();
  }

 private:
  struct NoSink final : proxy::ReadySink {
    void on_ready() override {}
  };
  static proxy::ReadySink& no_sink() {
    static NoSink sink;
    return sink;
  }

  static int flags(Input& input) {
    const std::uint8_t bits = input.byte();
    return ((bits & 1) != 0 ? kWaitAll : 0) | ((bits & 2) != 0 ? kMore : 0) | ((bits & 4) != 0 ? kDontWait : 0);
  }

  static void check(std::int64_t result, std::size_t most) {
    if (result >= 0) {
      FUZZ_CHECK(result <= static_cast<std::int64_t>(most));
      return;
    }
    constexpr int kAllowed[] = {EAGAIN, EBADF, EBUSY, ECONNRESET, EINVAL, EMSGSIZE, ENOTCONN, EPIPE, EPROTO, ETIMEDOUT};
    FUZZ_CHECK(std::find(std::begin(kAllowed), std::end(kAllowed), -result) != std::end(kAllowed));
  }
  void note_tx(std::int64_t result, std::size_t bytes) { check(result, bytes); }

  void check_span(const Span& span, const ringbuf::RingMemory& ring, bool write) {
    check(span.size, Node::kRingBytes);
    if (span.size <= 0) return;
    auto* data = static_cast<std::byte*>(span.data);
    FUZZ_CHECK(data >= ring.data && data + span.size <= ring.data + ring.capacity);
    if (write) std::memset(data, 7, static_cast<std::size_t>(span.size));
  }

  /// An honest plain connection of the same node.
  void others_can_be_made() {
    const auto thread = this_thread();
    Endpoint to = WireStream::here();
    to.link = LinkKind::tcp;
    const Socket other = node_.net.connect(thread, to, Deadline::now());
    FUZZ_CHECK(other >= 0);
    const auto wire = node_.network.last();
    char byte = 'x';
    FUZZ_CHECK(node_.net.send(thread, other, &byte, 1, 0, Deadline::now()) == 1);
    node_.turn(4);  // with rings in device memory a copy each way
    FUZZ_CHECK(wire->from_node == "x");
    wire->to_node = "y";
    node_.turn(4);
    FUZZ_CHECK(node_.net.recv(thread, other, &byte, 1, 0, Deadline::now()) == 1 && byte == 'y');
    FUZZ_CHECK(node_.net.close(thread, other) == 0);
    node_.turn(4);
    FUZZ_CHECK(!node_.proxy->has_connections());
  }

  Node& node_;
  Socket socket_;
  std::byte data_[6000] = {};
};

/// Callers, peer and neighbour in turns, as the input says; `peer(input)` is one thing that the peer does.
template <class Peer>
void run_session(Node& node, Socket socket, Neighbour& neighbour, Input& input, Peer peer) {
  Session session(node, socket);
  for (int acts = 0; acts < 400 && !input.empty(); ++acts) {
    const std::uint8_t who = input.byte();
    if (who >= 0xc0) neighbour.act(who / 2 % 32);
    if ((who & 1) != 0) {
      session.act(input);
    } else {
      peer(input);
      node.turn(static_cast<int>(input.below(3)));
    }
    neighbour.check();
  }
  session.end(&neighbour);
}

}  // namespace gpusock::fuzz
