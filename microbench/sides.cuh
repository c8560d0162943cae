#pragma once
/// @file The two sides of a round, for any group and network.
///
/// A network (SocketNetwork, TcpNetwork) has these functions. The threads of a group call them together:
///   connect(group), accept(group)   a socket, or a negated errno
///   wire(socket), wire(socket, silence_ns)   a wire (wire.cuh) over it; with `silence_ns`, its calls end after it
///   open_set(group)                 a poll set, or a negated errno
///   watch(group, set, socket, tag)  watches whether the socket can be read: 0, or a negated errno
///   wait(group, set, events, max)   the number of its sockets that can be read, with their tags in `events`, or a
///                                   negated errno; 0 at the job's limit

#include "bandwidth.cuh"
#include "rate.cuh"
#include "scale.cuh"

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
  write_greeting(group, job, index, memory);
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
  } else if (job.question == Question::scale) {
    ask_by_turns(group, network, job, memory);
  } else {
    connect_and_measure(group, network, job, index, memory);
  }
  if (group.thread_rank() == 0 && memory.account->failed_step != Step::none) break_gate(memory.gate);
}

/// The answering side of one socket: it answers the first connection that greets it with this round's token.
template <class Group, class Network>
GPUSOCK_FN void play_acceptor(const Group& group, Network& network, const Job& job, const Memory& memory) {
  if (job.question == Question::connections) return answer_calls(group, network, memory);
  if (job.question == Question::scale) return answer_ready(group, network, job, memory);
  const auto socket = accept_greeted(group, network, job, memory);
  if (socket < 0) return;
  const bool sends = memory.in[1] >= job.sockets_out;
  group.sync();
  auto wire = network.wire(socket);
  play_answerer(group, wire, job, sends, memory);
}

}  // namespace bench
