#pragma once
/// @file Round trips of one group that has many sockets, by turns on some or all of them. The other side is also one
/// group: it waits for all of its sockets with a poll set. The sockets stay from round to round.
///
/// The loops are latency's, over a wire that is another socket in each turn.

#include "connections.cuh"
#include "latency.cuh"

#include <cerrno>

namespace bench {

/// The first word of the message that ends a round: no message that is measured begins with it.
inline constexpr std::uint64_t kStopWord = ~std::uint64_t{0};
static_assert(sizeof kStopWord <= kCrowdBytesMin);

/// Writes the greeting of socket `index` into memory.out.
template <class Group>
GPUSOCK_FN void write_greeting(const Group& group, const Job& job, std::uint32_t index, const Memory& memory) {
  if (group.thread_rank() == 0) {
    memory.out[0] = job.token;
    memory.out[1] = index;
    for (std::uint64_t word = 2; word < kGreetingBytes / sizeof *memory.out; ++word) memory.out[word] = 0;
  }
  group.sync();
}

/// Accepts the next connection that greets with this round's token, and closes the others. Returns it, with its
/// greeting in memory.in, or a negated errno. If none greets, the account says why it closed the latest one.
template <class Group, class Network>
GPUSOCK_FN std::int32_t accept_greeted(const Group& group, Network& network, const Job& job, const Memory& memory) {
  for (;;) {
    const auto socket = network.accept(group);
    if (socket < 0) {
      if (group.thread_rank() == 0 && memory.account->failed_step == Step::none)
        give_up(*memory.account, Step::accept, socket);
      return socket;
    }
    auto unknown = network.wire(socket, kSilenceNs);
    const std::int64_t got = unknown.receive(group, memory.in, kGreetingBytes);
    const bool whole = got == static_cast<std::int64_t>(kGreetingBytes);
    const bool greeted = whole && memory.in[0] == job.token && memory.in[1] < job.connections();
    group.sync();
    if (group.thread_rank() == 0) {
      if (!greeted) give_up(*memory.account, Step::greet, whole ? -EPROTO : got);
      if (greeted) memory.account->failed_step = Step::none;
    }
    if (greeted) return socket;
    unknown.close(group);
  }
}

/// The asking side's wire: a message goes out on the next of the first Job::turns sockets, and comes back on it.
template <class Network>
class TurnWire {
 public:
  GPUSOCK_FN TurnWire(Network& network, const Crowd& crowd, std::uint32_t turns)
      : network_(network), crowd_(crowd), turns_(turns) {}

  template <class Group>
  GPUSOCK_FN std::int64_t send(const Group& group, const void* data, std::uint64_t bytes) {
    return network_.wire(crowd_.sockets[turn_]).send(group, data, bytes);
  }
  template <class Group>
  GPUSOCK_FN std::int64_t receive(const Group& group, void* data, std::uint64_t bytes) {
    const std::int64_t got = network_.wire(crowd_.sockets[turn_]).receive(group, data, bytes);
    turn_ = turn_ + 1 == turns_ ? 0 : turn_ + 1;
    return got;
  }

 private:
  Network& network_;
  Crowd crowd_;
  std::uint32_t turns_, turn_ = 0;
};

/// The answering side's wire: a message comes from any socket that has one, and its answer goes out on the same socket.
/// The message that ends a round is the end of the stream.
template <class Network>
class ReadyWire {
 public:
  GPUSOCK_FN ReadyWire(Network& network, const Crowd& crowd) : network_(network), crowd_(crowd) {}

  template <class Group>
  GPUSOCK_FN std::int64_t receive(const Group& group, std::uint64_t* data, std::uint64_t bytes) {
    for (;;) {
      const std::int64_t got = next_ < ready_ ? take(group, data, bytes) : wait(group);
      if (got == -EAGAIN) continue;
      if (got == static_cast<std::int64_t>(bytes) && data[0] == kStopWord) return 0;
      return got == 0 ? -ECONNRESET : got;  // a socket that ends is not the end of the round
    }
  }
  template <class Group>
  GPUSOCK_FN std::int64_t send(const Group& group, const void* data, std::uint64_t bytes) {
    return network_.wire(socket_).send(group, data, bytes);
  }

 private:
  /// Waits for sockets that have a message. Returns -EAGAIN once there are some, or another negated errno.
  template <class Group>
  GPUSOCK_FN std::int64_t wait(const Group& group) {
    next_ = ready_ = 0;
    const int ready = network_.wait(group, crowd_.state->set, crowd_.state->events, CrowdState::kEventsMax);
    if (ready > 0) ready_ = ready;
    return ready > 0 ? -EAGAIN : ready == 0 ? -ETIMEDOUT : ready;
  }

  /// Receives a message from the next socket that has one. -EAGAIN: it has none, which an event does not rule out.
  template <class Group>
  GPUSOCK_FN std::int64_t take(const Group& group, std::uint64_t* data, std::uint64_t bytes) {
    socket_ = crowd_.sockets[crowd_.state->events[next_++].tag];
    auto wire = network_.wire(socket_);
    const std::int64_t got = wire.receive_now(group, data, bytes);
    if (got <= 0 || got == static_cast<std::int64_t>(bytes)) return got;
    const auto part = static_cast<std::uint64_t>(got);
    const std::int64_t rest = wire.receive(group, reinterpret_cast<char*>(data) + part, bytes - part);
    return rest < 0 ? rest : got + rest;
  }

  Network& network_;
  Crowd crowd_;
  std::int32_t socket_ = -1;
  int next_ = 0, ready_ = 0;
};

/// Connects all sockets, unless they are. Each is greeted and greets back, so that both sides have them in the same
/// order. False if it failed; then the account says why.
template <class Group, class Network>
GPUSOCK_FN bool connect_crowd(const Group& group, Network& network, const Job& job, const Memory& memory) {
  const Crowd& crowd = memory.crowd;
  const bool connected = crowd.state->open == job.crowd;
  group.sync();
  for (std::uint32_t index = 0; !connected && index < job.crowd; ++index) {
    const auto socket = network.connect(group);
    if (socket < 0) {
      if (group.thread_rank() == 0) give_up(*memory.account, Step::connect, socket);
      return false;
    }
    if (group.thread_rank() == 0) {
      crowd.sockets[index] = socket;
      crowd.state->open = index + 1;
    }
    write_greeting(group, job, index, memory);
    auto wire = network.wire(socket);
    if (!all_moved(group, wire.send(group, memory.out, kGreetingBytes), kGreetingBytes, Step::send, memory) ||
        !all_moved(group, wire.receive(group, memory.in, kGreetingBytes), kGreetingBytes, Step::receive, memory)) {
      return false;
    }
  }
  return true;
}

/// The other side of connect_crowd(). It also makes the poll set.
template <class Group, class Network>
GPUSOCK_FN bool accept_crowd(const Group& group, Network& network, const Job& job, const Memory& memory) {
  const Crowd& crowd = memory.crowd;
  const bool connected = crowd.state->open == job.crowd;
  group.sync();
  if (connected) return true;
  const auto set = network.open_set(group);
  if (group.thread_rank() == 0) crowd.state->set = set;
  if (!all_moved(group, set < 0 ? set : 0, 0, Step::accept, memory)) return false;
  for (std::uint32_t index = 0; index < job.crowd; ++index) {
    const auto socket = accept_greeted(group, network, job, memory);
    if (socket < 0) return false;
    if (group.thread_rank() == 0) {
      crowd.sockets[index] = socket;
      crowd.state->open = index + 1;
    }
    group.sync();
    if (!all_moved(group, network.watch(group, set, socket, index), 0, Step::accept, memory)) return false;
    auto wire = network.wire(socket);
    if (!all_moved(group, wire.send(group, memory.in, kGreetingBytes), kGreetingBytes, Step::send, memory))
      return false;
  }
  return true;
}

/// The measuring side.
template <class Group, class Network>
GPUSOCK_FN void ask_by_turns(const Group& group, Network& network, const Job& job, const Memory& memory) {
  if (!connect_crowd(group, network, job, memory)) return;
  TurnWire<Network> wire(network, memory.crowd, job.turns);
  ping(group, wire, job, memory);
  group.sync();
  if (memory.account->failed_step != Step::none) return;
  if (group.thread_rank() == 0) memory.out[0] = kStopWord;
  group.sync();
  all_moved(group, wire.send(group, memory.out, job.bytes), job.bytes, Step::finish, memory);
}

/// The other side.
template <class Group, class Network>
GPUSOCK_FN void answer_ready(const Group& group, Network& network, const Job& job, const Memory& memory) {
  if (!accept_crowd(group, network, job, memory)) return;
  ReadyWire<Network> wire(network, memory.crowd);
  echo(group, wire, job, memory);
}

}  // namespace bench
