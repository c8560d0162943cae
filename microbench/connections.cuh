#pragma once
/// @file Connections: one side connects, sends a byte, gets it back, and sees the other side end the stream. Then it
/// makes the next connection.
///
/// The answering side ends each connection first. So the TCP port that waits for late packets (TIME_WAIT) is the
/// listener's own port, and the asking side does not run out of ports.

#include "gate.cuh"

namespace bench {

/// The byte of a connection after which the group makes another one, and the byte of the group's last connection.
inline constexpr unsigned char kAnotherFollows = 0x5a, kLastConnection = 0xa5;

/// A connection on which nothing arrives for so long does not belong to the run, or its peer is gone.
inline constexpr std::uint64_t kSilenceNs = 10'000'000'000;

template <class Group>
GPUSOCK_FN void set_byte(const Group& group, const Memory& memory, unsigned char byte) {
  group.sync();
  if (group.thread_rank() == 0) *memory.out = byte;
  group.sync();
}

GPUSOCK_FN inline unsigned char byte_of(const std::uint64_t* word) {
  return *reinterpret_cast<const unsigned char*>(word);
}

/// Makes one connection that carries `byte` there and back. False if it failed; then the account says why.
template <class Group, class Network>
GPUSOCK_FN bool call_once(const Group& group, Network& network, const Memory& memory, unsigned char byte) {
  set_byte(group, memory, byte);
  const auto socket = network.connect(group);
  if (socket < 0) {
    if (group.thread_rank() == 0) give_up(*memory.account, Step::connect, socket);
    return false;
  }
  auto wire = network.wire(socket);
  const bool done = all_moved(group, wire.send(group, memory.out, 1), 1, Step::send, memory) &&
                    all_moved(group, wire.receive(group, memory.in, 1), 1, Step::receive, memory);
  if (done && byte_of(memory.in) != byte && group.thread_rank() == 0) ++memory.account->wrong_words;
  const bool ended = done && all_moved(group, wire.receive(group, memory.in, 1), 0, Step::finish, memory);
  wire.close(group);
  return ended;
}

/// The measuring side. A sample is the time from the call of connect to the return of close.
template <class Group, class Network>
GPUSOCK_FN void dial(const Group& group, Network& network, const Job& job, const Memory& memory) {
  const bool leads = group.thread_rank() == 0;
  std::uint64_t started_ns = 0;
  bool more = true;
  for (std::uint64_t number = 0; more; ++number) {
    if (number == job.warmup && !start_together(group, job, memory)) return;
    const std::uint64_t called_ns = leads ? gpusock::clock_ns() : 0;
    if (number == job.warmup) started_ns = called_ns;
    if (!call_once(group, network, memory, kAnotherFollows)) return;
    const std::uint64_t closed_ns = leads ? gpusock::clock_ns() : 0;
    if (leads && number >= job.warmup) more = note_sample(job, memory, started_ns, called_ns, closed_ns);
    more = agree(group, memory, more);
  }
  call_once(group, network, memory, kLastConnection);
}

/// The other side: it answers until it gets the byte of a last connection. Each group of the asking side sends one such
/// byte. A connection that brings neither byte does not belong to the run.
template <class Group, class Network>
GPUSOCK_FN void answer_calls(const Group& group, Network& network, const Memory& memory) {
  for (std::uint64_t answered = 0;;) {
    const auto socket = network.accept(group);
    if (socket < 0) {
      if (group.thread_rank() == 0) give_up(*memory.account, Step::accept, socket);
      return;
    }
    auto wire = network.wire(socket, kSilenceNs);
    const bool got = wire.receive(group, memory.in, 1) == 1;
    const unsigned char byte = got ? byte_of(memory.in) : 0;
    if (byte == kAnotherFollows || byte == kLastConnection) {
      wire.send(group, memory.in, 1);  // if it fails, the asking side reports it
      if (group.thread_rank() == 0) memory.account->messages = ++answered;
    }
    wire.close(group);
    group.sync();
    if (byte == kLastConnection) return;
  }
}

}  // namespace bench
