#pragma once
/// @file Round trips a second: the measuring side has several messages on their way at a time. The other side is
/// latency's echo().

#include "gate.cuh"

namespace bench {

/// Sends messages and receives their echoes, Job::window of them on their way at a time, until as many as wanted are
/// sent or the time is over, and then until all have come back. False if that failed; then the account says why.
///
/// `timed`: false in the warm-up, which checks all words. True: only the first and the last word are new in each
/// message and are checked, as for bandwidth, and the account and the samples are written. A sample is the time from
/// the call of send to the return of the recv that gets the message back.
template <class Group, class Wire>
GPUSOCK_FN bool keep_window(const Group& group, Wire& wire, const Job& job, const Memory& memory, bool timed) {
  const bool leads = group.thread_rank() == 0;
  const std::uint64_t messages_max = timed ? job.messages_max : job.warmup;
  const std::uint64_t duration_ns = timed ? job.duration_ns : job.warmup_ns;
  const std::uint64_t started_ns = leads ? gpusock::clock_ns() : 0;
  bool more = messages_max != 0;
  for (std::uint64_t sent = 0, got = 0; more || got < sent;) {
    if (more && sent - got < job.window) {
      if (!timed) fill(group, memory.out, job.bytes, sent);
      if (timed && leads) {
        stamp(memory.out, job.bytes, sent);
        memory.samples_ns[sent] = gpusock::clock_ns();
      }
      group.sync();
      if (!all_moved(group, wire.send(group, memory.out, job.bytes), job.bytes, Step::send, memory)) return false;
      group.sync();
      more = ++sent < messages_max;
      continue;
    }
    if (!all_moved(group, wire.receive(group, memory.in, job.bytes), job.bytes, Step::receive, memory)) return false;
    const std::uint64_t now_ns = leads ? gpusock::clock_ns() : 0;
    if (!timed) check(group, memory.in, job.bytes, got, *memory.account);
    if (timed && leads) {
      check_stamp(memory.in, job.bytes, got, *memory.account);
      memory.samples_ns[got] = now_ns - memory.samples_ns[got];
      memory.account->messages = got + 1;
      memory.account->started_ns = started_ns;
      memory.account->elapsed_ns = now_ns - started_ns;
    }
    ++got;
    more = agree(group, memory, more && (!leads || now_ns - started_ns < duration_ns));
  }
  return true;
}

/// The measuring side.
template <class Group, class Wire>
GPUSOCK_FN void keep_busy(const Group& group, Wire& wire, const Job& job, const Memory& memory) {
  fill(group, memory.out, job.bytes, 0);
  if (!keep_window(group, wire, job, memory, false) || !start_together(group, job, memory)) return;
  keep_window(group, wire, job, memory, true);
}

}  // namespace bench
