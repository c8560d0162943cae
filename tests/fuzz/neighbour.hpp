#pragma once
/// @file A second connection of the node under test, honest at both ends: production's code in another node is its
/// peer. Bytes go both ways while the first connection's peer lies. Promises: each byte arrives once, in order and
/// unchanged, within a bounded number of turns; and of what the node has for it nothing is changed but by it: its
/// status, its rings' bytes, positions and credit.

#include "tests/fuzz/node.hpp"

#include <array>
#include <cerrno>
#include <cstring>
#include <functional>
#include <utility>

namespace gpusock::fuzz {

class Neighbour {
 public:
  /// Connects `other`, the honest peer's node, to the node under test. Both are started, and have the kind of link that
  /// `asked` names. `meanwhile`: what else has to go on for bytes to arrive.
  Neighbour(
      Node& node, Node& other, const Endpoint& asked, std::function<void()> meanwhile = [] {})
      : here_{node}, there_{other}, meanwhile_(std::move(meanwhile)) {
    const auto thread = this_thread();
    const Socket listener = node.net.listen(thread, asked, 4, Deadline::now());
    FUZZ_CHECK(listener >= 0);
    other.network.reach(node.network);
    other.beside = [&, nested = false]() mutable {
      if (std::exchange(nested, true)) return;
      for (int turns = 0; turns < kTurnsMax && other.proxy->stats().connections == 0; ++turns) progress();
    };
    there_.socket = other.net.connect(thread, asked, Deadline::now());
    other.beside = nullptr;
    FUZZ_CHECK(there_.socket >= 0);
    for (int turns = 0; turns < kTurnsMax && here_.socket < 0; ++turns) {
      progress();
      here_.socket = node.net.accept(thread, listener, Deadline::now());
    }
    FUZZ_CHECK(here_.socket >= 0);
    FUZZ_CHECK(node.net.close(thread, listener) == 0);
    node.turn(2);
    std::memcpy(static_cast<void*>(&setup_), &node.setup_of(here_.socket), sizeof setup_);  // its padding, too
    status_ = status();
    note();
    settle();
  }

  /// One thing that it does, of 32.
  void act(unsigned which) {
    static constexpr std::size_t kBytes[] = {1, 700, 2047, Node::kRingBytes};
    const std::size_t bytes = kBytes[which / 8 % 4];
    check();
    settled_ = false;
    switch (which % 8) {
      case 0:
      case 1:
        send(here_, bytes);
        break;
      case 2:
        send(there_, bytes);
        break;
      case 3:
        receive(here_, there_, bytes);
        break;
      case 4:
        receive(there_, here_, bytes);
        break;
      case 5:
      case 6:
        progress();
        break;
      default:
        settle();
        break;
    }
    note();
  }

  /// After whatever somebody else did.
  void check() {
    FUZZ_CHECK(status() == status_);
    const table::SocketSetup& setup = here_.node.setup_of(here_.socket);
    FUZZ_CHECK(std::memcmp(&setup, &setup_, sizeof setup) == 0);
    FUZZ_CHECK(word(setup_.rings.tx.committed) == seen_.tx_committed &&
               word(setup_.rings.rx.consumed) == seen_.rx_consumed);  // its callers' own
    const std::uint64_t freed = word(setup_.rings.tx.consumed), arrived = arrived_of(setup_.rings.rx);
    FUZZ_CHECK(freed >= seen_.tx_consumed && freed <= seen_.tx_committed);
    FUZZ_CHECK(arrived >= seen_.rx_committed && arrived - seen_.rx_consumed <= setup_.rings.rx.memory.capacity);
    if (!settled_) return;
    FUZZ_CHECK(arrived == seen_.rx_committed);
    for (int ring = 0; ring < 2; ++ring)
      FUZZ_CHECK(std::memcmp(memory(ring).data, rings_[ring], Node::kRingBytes) == 0);
  }

  /// All that was sent arrives, and then the ends, in order.
  void end() {
    const auto thread = this_thread();
    check();
    send(here_, Node::kRingBytes);
    send(there_, Node::kRingBytes);
    settle();
    FUZZ_CHECK(here_.sent != 0 && there_.sent != 0);
    FUZZ_CHECK(status() == status_);
    FUZZ_CHECK(there_.node.net.shutdown(thread, there_.socket, Shutdown::write) == 0);
    expect_end(here_);
    FUZZ_CHECK(here_.node.net.close(thread, here_.socket) == 0);
    expect_end(there_);
    FUZZ_CHECK(there_.node.net.close(thread, there_.socket) == 0);
    for (int turns = 0; turns < kTurnsMax && there_.node.proxy->has_connections(); ++turns) progress();
    FUZZ_CHECK(!there_.node.proxy->has_connections());
  }

 private:
  /// More than enough for two full rings, whatever the link.
  static constexpr int kTurnsMax = 2000;

  struct End {
    Node& node;
    Socket socket = -1;
    std::uint64_t sent = 0, received = 0;
  };
  struct Words {
    std::uint64_t tx_committed, tx_consumed, rx_committed, rx_consumed;
  };

  static std::uint64_t arrived_of(const table::RingSetup& rx) {
    return rx.memory.committed_of(word(rx.committed), word(rx.consumed));
  }
  static std::uint64_t word(std::uint64_t* at) {
    return ringbuf::SystemAtomics::Ref<std::uint64_t>(*at).load(ringbuf::kAcquire);
  }

  std::uint64_t status() { return here_.node.status_of(here_.socket); }

  const ringbuf::RingMemory& memory(int ring) const {
    return ring == 0 ? setup_.rings.tx.memory : setup_.rings.rx.memory;
  }

  void note() {
    seen_ = {word(setup_.rings.tx.committed), word(setup_.rings.tx.consumed), arrived_of(setup_.rings.rx),
             word(setup_.rings.rx.consumed)};
    if (!settled_) return;
    for (int ring = 0; ring < 2; ++ring) std::memcpy(rings_[ring], memory(ring).data, Node::kRingBytes);
  }

  /// What an end sends from its position on: as many bytes as a ring has. They come again after a while that is no
  /// ring's size.
  const std::byte* bytes_from(const End& from, std::uint64_t position) const {
    constexpr std::uint64_t kPeriod = 4093;
    static const auto pattern = [] {
      std::array<std::byte, kPeriod + Node::kRingBytes> made;
      for (std::size_t i = 0; i < made.size(); ++i)
        made[i] = static_cast<std::byte>((i % kPeriod + 1) * 0x9E3779B97F4A7C15u >> 56);
      return made;
    }();
    return pattern.data() + (position + (&from == &here_ ? 0 : 2000)) % kPeriod;
  }

  void send(End& from, std::size_t bytes) {
    const auto took = from.node.net.send(this_thread(), from.socket, bytes_from(from, from.sent), bytes, 0,
                                         Deadline::now());
    FUZZ_CHECK(took > 0 || took == -EAGAIN || took == -ETIMEDOUT);
    if (took > 0) from.sent += static_cast<std::uint64_t>(took);
  }

  void receive(End& to, const End& from, std::size_t bytes) {
    const auto got = to.node.net.recv(this_thread(), to.socket, buffer_, bytes, 0, Deadline::now());
    FUZZ_CHECK(got > 0 || got == -EAGAIN || got == -ETIMEDOUT);
    if (got <= 0) return;
    const auto count = static_cast<std::size_t>(got);
    FUZZ_CHECK(to.received + count <= from.sent);
    FUZZ_CHECK(std::memcmp(buffer_, bytes_from(from, to.received), count) == 0);
    to.received += count;
  }

  void progress() {
    meanwhile_();
    here_.node.turn();
    there_.node.turn();
  }

  /// Until everything has arrived: then nothing may change any more that is not freed space.
  void settle() {
    for (int turns = 0; here_.sent != there_.received || there_.sent != here_.received; ++turns) {
      FUZZ_CHECK(turns < kTurnsMax);
      progress();
      receive(there_, here_, sizeof buffer_);
      receive(here_, there_, sizeof buffer_);
    }
    settled_ = true;
    note();
  }

  void expect_end(End& at) {
    char byte = 0;
    std::int64_t got = -EAGAIN;
    for (int turns = 0; got != 0; ++turns) {
      FUZZ_CHECK(turns < kTurnsMax);
      progress();
      got = at.node.net.recv(this_thread(), at.socket, &byte, 1, 0, Deadline::now());
      FUZZ_CHECK(got == 0 || got == -EAGAIN || got == -ETIMEDOUT);
    }
  }

  End here_, there_;
  std::function<void()> meanwhile_;
  table::SocketSetup setup_;
  std::uint64_t status_ = 0;
  Words seen_{};
  std::byte rings_[2][Node::kRingBytes];  // as they were when all had arrived
  bool settled_ = false;
  std::byte buffer_[Node::kRingBytes];
};

}  // namespace gpusock::fuzz
