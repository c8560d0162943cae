#pragma once
/// @file The two sides of a round, for any group and wire, and over gpusock's own sockets.

#include "bandwidth.cuh"
#include "latency.cuh"

namespace bench {

/// The side that asks and measures.
template <class Group, class Wire>
GPUSOCK_FN void play_asker(const Group& group, Wire& wire, const Job& job, const Memory& memory) {
  if (job.question == Question::latency) {
    ping(group, wire, job, memory);
  } else {
    source(group, wire, job, memory);
  }
  wire.close(group);
}

/// The side that answers.
template <class Group, class Wire>
GPUSOCK_FN void play_answerer(const Group& group, Wire& wire, const Job& job, const Memory& memory) {
  if (job.question == Question::latency) {
    echo(group, wire, job, memory);
  } else {
    sink(group, wire, job, memory);
  }
  wire.close(group);
}

template <class Group>
GPUSOCK_FN void play_connector(const Group& group, const gpusock::Net& net, const gpusock::Endpoint& to, const Job& job,
                               const Memory& memory) {
  const auto deadline = gpusock::Deadline::after_ns(job.limit_ns);
  const gpusock::Socket socket = net.connect(group, to, deadline);
  if (socket < 0) {
    if (group.thread_rank() == 0) give_up(*memory.account, Step::connect, socket);
    return;
  }
  SocketWire wire(net, socket, deadline);
  play_asker(group, wire, job, memory);
}

template <class Group>
GPUSOCK_FN void play_acceptor(const Group& group, const gpusock::Net& net, gpusock::Socket listener, const Job& job,
                              const Memory& memory) {
  const auto deadline = gpusock::Deadline::after_ns(job.limit_ns);
  const gpusock::Socket socket = net.accept(group, listener, deadline);
  if (socket < 0) {
    if (group.thread_rank() == 0) give_up(*memory.account, Step::accept, socket);
    return;
  }
  SocketWire wire(net, socket, deadline);
  play_answerer(group, wire, job, memory);
}

}  // namespace bench
