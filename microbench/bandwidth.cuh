#pragma once
/// @file One-way bandwidth: one side sends messages one after the other; at the end, the other says how many it got.
///
/// The receiver checks all words of the warm-up's messages, and then tells the sender to start. In the timed messages,
/// it checks only the first and the last word, which are different in each message, so the cost does not grow with the
/// size. The sender's clock stops when the receiver's count of the messages has come back, so that bytes that are still
/// on the way do not count. The receiver's clock runs from its start signal to the end of the stream. So either side
/// can be the one that measures.

#include "gate.cuh"

namespace bench {

/// How many bytes are sent between two looks at the clock.
inline constexpr std::uint64_t kBytesPerLook = 64 << 10;

/// Receives one whole message, in the parts in which it arrives. Returns its bytes, fewer at the end of the stream (0
/// if there is no message), or a negated errno.
template <class Group, class Wire>
GPUSOCK_FN std::int64_t receive_message(const Group& group, Wire& wire, const Job& job, const Memory& memory) {
  std::uint64_t done = 0;
  while (done < job.bytes) {
    const std::int64_t got = wire.receive_some(group, reinterpret_cast<char*>(memory.in) + done, job.bytes - done);
    if (got < 0) return got;
    if (got == 0) break;
    done += static_cast<std::uint64_t>(got);
  }
  return static_cast<std::int64_t>(done);
}

template <class Group, class Wire>
GPUSOCK_FN bool warm_up_source(const Group& group, Wire& wire, const Job& job, const Memory& memory) {
  for (std::uint64_t number = 0; number < job.warmup; ++number) {
    fill(group, memory.out, job.bytes, number);
    group.sync();
    if (!all_moved(group, wire.send(group, memory.out, job.bytes), job.bytes, Step::send, memory)) return false;
    group.sync();
  }
  fill(group, memory.out, job.bytes, job.warmup);
  return all_moved(group, wire.receive(group, memory.in, 8), 8, Step::receive, memory) &&
         start_together(group, job, memory);
}

/// The side that sends.
template <class Group, class Wire>
GPUSOCK_FN void source(const Group& group, Wire& wire, const Job& job, const Memory& memory) {
  if (!warm_up_source(group, wire, job, memory)) return;
  const bool leads = group.thread_rank() == 0;
  const std::uint64_t messages_per_look = job.bytes < kBytesPerLook ? kBytesPerLook / job.bytes : 1;
  const std::uint64_t started_ns = leads ? gpusock::clock_ns() : 0;
  std::uint64_t sent = 0;
  for (bool more = true; more && sent < job.messages_max;) {
    if (leads) stamp(memory.out, job.bytes, sent);
    group.sync();
    if (!all_moved(group, wire.send(group, memory.out, job.bytes), job.bytes, Step::send, memory)) return;
    group.sync();
    if (++sent % messages_per_look == 0) {
      more = agree(group, memory, leads && gpusock::clock_ns() - started_ns < job.duration_ns);
    }
  }
  wire.end_sending(group);
  if (!all_moved(group, wire.receive(group, memory.in, 8), 8, Step::finish, memory)) return;
  if (!leads) return;
  memory.account->started_ns = started_ns;
  memory.account->elapsed_ns = gpusock::clock_ns() - started_ns;
  memory.account->messages = sent;
  if (memory.in[0] != sent) give_up(*memory.account, Step::finish, static_cast<std::int64_t>(memory.in[0]));
}

template <class Group, class Wire>
GPUSOCK_FN bool warm_up_sink(const Group& group, Wire& wire, const Job& job, const Memory& memory) {
  for (std::uint64_t number = 0; number < job.warmup; ++number) {
    if (!all_moved(group, receive_message(group, wire, job, memory), job.bytes, Step::receive, memory)) return false;
    check(group, memory.in, job.bytes, number, *memory.account);
    group.sync();
  }
  return start_together(group, job, memory);
}

/// The side that receives. Its acknowledgement is the number of timed messages.
template <class Group, class Wire>
GPUSOCK_FN void sink(const Group& group, Wire& wire, const Job& job, const Memory& memory) {
  if (!warm_up_sink(group, wire, job, memory)) return;
  const std::uint64_t started_ns = group.thread_rank() == 0 ? gpusock::clock_ns() : 0;
  if (!all_moved(group, wire.send(group, memory.out, 8), 8, Step::send, memory)) return;
  std::uint64_t got = 0;
  for (;;) {
    const std::int64_t bytes = receive_message(group, wire, job, memory);
    if (bytes == 0) break;
    if (!all_moved(group, bytes, job.bytes, Step::receive, memory)) return;
    if (group.thread_rank() == 0) check_stamp(memory.in, job.bytes, got, *memory.account);
    group.sync();
    ++got;
  }
  if (group.thread_rank() == 0) {
    memory.account->started_ns = started_ns;
    memory.account->elapsed_ns = gpusock::clock_ns() - started_ns;
    memory.out[0] = got;
    memory.account->messages = got;
  }
  group.sync();
  all_moved(group, wire.send(group, memory.out, 8), 8, Step::finish, memory);
}

}  // namespace bench
