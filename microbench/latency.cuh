#pragma once
/// @file The round trip: one side sends a message and waits until it has come back; the other sends back what it gets.

#include "gate.cuh"

namespace bench {

/// The measuring side. A sample is the time from the call of send to the return of recv, without filling and checking
/// the message. The warm-up ends after Job::warmup messages or Job::warmup_ns, whichever comes first: if two processes
/// take turns on one GPU, each round trip takes as long as their turns.
template <class Group, class Wire>
GPUSOCK_FN void ping(const Group& group, Wire& wire, const Job& job, const Memory& memory) {
  const bool leads = group.thread_rank() == 0;
  const std::uint64_t began_ns = leads ? gpusock::clock_ns() : 0;
  std::uint64_t started_ns = 0;
  bool warming = job.warmup != 0, started = false;
  for (std::uint64_t number = 0;; ++number) {
    fill(group, memory.out, job.bytes, number);
    group.sync();
    const bool starts = !warming && !started;
    if (starts && !start_together(group, job, memory)) return;
    const std::uint64_t sent_ns = leads ? gpusock::clock_ns() : 0;
    if (starts) started_ns = sent_ns;
    started = !warming;
    if (!all_moved(group, wire.send(group, memory.out, job.bytes), job.bytes, Step::send, memory)) return;
    if (!all_moved(group, wire.receive(group, memory.in, job.bytes), job.bytes, Step::receive, memory)) return;
    const std::uint64_t back_ns = leads ? gpusock::clock_ns() : 0;
    check(group, memory.in, job.bytes, number, *memory.account);
    bool more = true;
    if (leads && warming) more = number + 1 < job.warmup && back_ns - began_ns < job.warmup_ns;
    if (leads && started) more = note_sample(job, memory, started_ns, sent_ns, back_ns);
    more = agree(group, memory, more);
    if (started && !more) return;
    warming = warming && more;
  }
}

/// The other side: it sends messages back until the end of the stream.
template <class Group, class Wire>
GPUSOCK_FN void echo(const Group& group, Wire& wire, const Job& job, const Memory& memory) {
  for (;;) {
    const std::int64_t got = wire.receive(group, memory.in, job.bytes);
    if (got == 0) return;
    if (!all_moved(group, got, job.bytes, Step::receive, memory)) return;
    if (!all_moved(group, wire.send(group, memory.in, job.bytes), job.bytes, Step::send, memory)) return;
  }
}

}  // namespace bench
