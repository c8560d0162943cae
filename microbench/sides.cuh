#pragma once
/// @file The two sides of a round, for any group and network.
///
/// A network (SocketNetwork, TcpNetwork) has these functions. The threads of a group call them together:
///   connect(group), accept(group)   a socket, or a negated errno
///   wire(socket), wire(socket, silence_ns)   a wire (wire.cuh) over it; with `silence_ns`, its calls end after it

#include "bandwidth.cuh"
#include "connections.cuh"
#include "latency.cuh"
#include "rate.cuh"

namespace bench {

/// The side that asks and measures. `sends`: true if it sends bandwidth's messages.
template <class Group, class Wire>
GPUSOCK_FN void play_asker(const Group& group, Wire& wire, const Job& job, bool sends, const Memory& memory) {
  if (job.question == Question::latency) {
    ping(group, wire, job, memory);
  } else if (job.question == Question::rate) {
    keep_busy(group, wire, job, memory);
  } else if (sends) {
    source(group, wire, job, memory);
  } else {
    sink(group, wire, job, memory);
  }
  wire.close(group);
}

/// The side that answers.
template <class Group, class Wire>
GPUSOCK_FN void play_answerer(const Group& group, Wire& wire, const Job& job, bool sends, const Memory& memory) {
  if (job.question == Question::latency || job.question == Question::rate) {
    echo(group, wire, job, memory);
  } else if (sends) {
    source(group, wire, job, memory);
  } else {
    sink(group, wire, job, memory);
  }
  wire.close(group);
}

/// Connects, says which of the round's sockets this is, and measures.
template <class Group, class Network>
GPUSOCK_FN void connect_and_measure(const Group& group, Network& network, const Job& job, std::uint32_t index,
                                    const Memory& memory) {
  const auto socket = network.connect(group);
  if (socket < 0) {
    if (group.thread_rank() == 0) give_up(*memory.account, Step::connect, socket);
    return;
  }
  auto wire = network.wire(socket);
  if (group.thread_rank() == 0) {
    memory.out[0] = job.token;
    memory.out[1] = index;
    for (std::uint64_t word = 2; word < kGreetingBytes / sizeof *memory.out; ++word) memory.out[word] = 0;
  }
  group.sync();
  if (!all_moved(group, wire.send(group, memory.out, kGreetingBytes), kGreetingBytes, Step::send, memory)) {
    wire.close(group);
    return;
  }
  group.sync();
  play_asker(group, wire, job, index < job.sockets_out, memory);
}

/// The asking side of socket `index`.
template <class Group, class Network>
GPUSOCK_FN void play_connector(const Group& group, Network& network, const Job& job, std::uint32_t index,
                               const Memory& memory) {
  if (job.question == Question::connections) {
    dial(group, network, job, memory);
  } else {
    connect_and_measure(group, network, job, index, memory);
  }
  if (group.thread_rank() == 0 && memory.account->failed_step != Step::none) break_gate(memory.gate);
}

/// The answering side of one socket: it answers the first connection that greets it with this round's token. It closes
/// the others. If none greets it, the account says why it closed the latest one.
template <class Group, class Network>
GPUSOCK_FN void play_acceptor(const Group& group, Network& network, const Job& job, const Memory& memory) {
  if (job.question == Question::connections) return answer_calls(group, network, memory);
  for (;;) {
    const auto socket = network.accept(group);
    if (socket < 0) {
      if (group.thread_rank() == 0 && memory.account->failed_step == Step::none)
        give_up(*memory.account, Step::accept, socket);
      return;
    }
    auto unknown = network.wire(socket, kSilenceNs);
    const std::int64_t got = unknown.receive(group, memory.in, kGreetingBytes);
    const bool whole = got == static_cast<std::int64_t>(kGreetingBytes);
    const bool greeted = whole && memory.in[0] == job.token && memory.in[1] < job.sockets();
    const bool sends = greeted && memory.in[1] >= job.sockets_out;
    group.sync();
    if (group.thread_rank() == 0) {
      if (!greeted) give_up(*memory.account, Step::greet, whole ? -EPROTO : got);
      if (greeted) memory.account->failed_step = Step::none;
    }
    if (greeted) {
      auto wire = network.wire(socket);
      return play_answerer(group, wire, job, sends, memory);
    }
    unknown.close(group);
  }
}

}  // namespace bench
