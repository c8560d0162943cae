#pragma once
/// @file The round trip: one side sends a message and waits until it has come back; the other sends back what it gets.

#include "gate.cuh"

namespace bench {

/// The measuring side. A sample is the time from the call of send to the return of recv; filling and checking are
/// outside.
template <class Group, class Wire>
GPUSOCK_FN void ping(const Group& group, Wire& wire, const Job& job, const Memory& memory) {
  const bool leads = group.thread_rank() == 0;
  std::uint64_t started_ns = 0;
  for (std::uint64_t number = 0;; ++number) {
    fill(group, memory.out, job.bytes, number);
    group.sync();
    if (number == job.warmup && !start_together(group, job, memory)) return;
    const std::uint64_t sent_ns = leads ? gpusock::clock_ns() : 0;
    if (number == job.warmup) started_ns = sent_ns;
    if (!all_moved(group, wire.send(group, memory.out, job.bytes), job.bytes, Step::send, memory)) return;
    if (!all_moved(group, wire.receive(group, memory.in, job.bytes), job.bytes, Step::receive, memory)) return;
    const std::uint64_t back_ns = leads ? gpusock::clock_ns() : 0;
    check(group, memory.in, job.bytes, number, *memory.account);
    bool more = true;
    if (leads && number >= job.warmup) more = note_sample(job, memory, started_ns, sent_ns, back_ns);
    if (!agree(group, memory, more)) return;
  }
}

/// The other side: until the end of the stream.
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
