// What receivers do in a run, and how they check what has arrived.
#include "tests/simulation/calls.hpp"

#include <vector>

namespace gpusock::sim {

void Run::receive_all(const End& end, const bool& all_is_sent) {
  const PlannedWay& planned = end.planned_in();
  for (std::uint64_t pause_ns = 5'000; planned.read_late && !all_is_sent;) {
    schedule_.sleep(pause_ns);
    pause_ns = std::min<std::uint64_t>(2 * pause_ns, 2'000'000);
  }
  const OwnSet set(end);
  std::vector<std::byte> buffer(end.planned.records ? plan_.ring_bytes
                                                    : std::max(planned.piece_bytes, std::uint64_t{20'000}));
  Patience patience(*this);
  Random& random = schedule_.random();
  while (problem_.empty()) {
    if (planned.pause_ns != 0) schedule_.sleep(random.below(planned.pause_ns));
    const Manner manner = random.percent(80) ? planned.receiving : static_cast<Manner>(random.below(4));
    const std::uint64_t bytes = end.planned.records ? buffer.size() : 1 + random.below(planned.piece_bytes);
    const std::int64_t result = receive_piece(end, set, manner, buffer.data(), bytes);
    if (result > 0) {
      patience.use();
    } else if (result == 0) {
      end.in().end_seen = true;
      return;
    } else if (result == -ETIMEDOUT || result == -EAGAIN) {
      const bool copies = plan_.processes[end.process_index].device_rings;  // which may take long
      if (result == -ETIMEDOUT && !copies) check_not_over(end, "recv");
      if (patience.over()) return;
      patience.pause();
    } else {
      may_end(end, "recv", result);
      return;
    }
  }
}

bool Run::is_readable(const End& end) const {
  PollEntry entry{end.socket, kPollIn, 0};
  return end.node.net().poll(this_thread(), &entry, 1, Deadline::now()) == 1 && (entry.revents & kPollNval) == 0;
}

/// Waits until receiving would not wait, by poll or on the receiver's set.
std::int64_t Run::wait_readable(const End& end, const OwnSet& set) {
  constexpr std::uint64_t kSoonNs = 50'000'000;
  if (!set.watches()) {
    PollEntry entry{end.socket, kPollIn, 0};
    return timed(end.node, "poll", end.planned.deadline_ns,
                 [&](Deadline deadline) { return end.node.net().poll(this_thread(), &entry, 1, deadline); });
  }
  if (set.edge() && is_readable(end)) return 1;  // what is left of an event is not an event again
  std::int64_t count = timed(end.node, "wait", end.planned.deadline_ns,
                             [&](Deadline deadline) { return set.wait(deadline); });
  if (count != 0 || plan_.faulty() || !is_readable(end)) return count;
  count = timed(end.node, "wait", kSoonNs, [&](Deadline deadline) { return set.wait(deadline); });
  if (count == 0 && is_readable(end)) fail("a poll set does not return a socket that has an event");
  return count;
}

std::int64_t Run::receive_piece(const End& end, const OwnSet& set, Manner manner, std::byte* buffer,
                                std::uint64_t bytes) {
  const Net& net = end.node.net();
  const std::uint64_t deadline_ns = end.planned.deadline_ns;
  if (manner == Manner::zero_copy) {
    Span span;
    timed(end.node, "peek", deadline_ns,
          [&](Deadline deadline) { return (span = net.peek(this_thread(), end.socket, bytes, deadline)).size; });
    if (span.size <= 0) return span.size;
    const auto there = static_cast<std::uint64_t>(span.size);
    const std::uint64_t part = end.planned.records ? there : 1 + schedule_.random().below(there);
    schedule_.may_turn();
    Flow* flow = check(end, static_cast<const std::byte*>(span.data), part);  // also where it is closed meanwhile
    if (flow == nullptr) return -ECANCELED;
    const int result = net.release(this_thread(), end.socket, part);
    if (result == 0) consume(end, *flow, part);
    return result == 0 ? static_cast<std::int64_t>(part) : result;
  }
  int flags = 0;
  if (manner == Manner::polled) {
    const std::int64_t count = wait_readable(end, set);
    if (count <= 0) return count == 0 ? -ETIMEDOUT : count;
    flags = kDontWait;
  }
  if (manner == Manner::whole && !end.planned.records) {
    flags |= kWaitAll;
    bytes = std::min(bytes, plan_.ring_bytes);
  }
  if (schedule_.random().one_in(16)) {
    const auto seen = timed(end.node, "recv (peek)", deadline_ns, [&](Deadline deadline) {
      return net.recv(this_thread(), end.socket, buffer, bytes, flags | kPeek, deadline);
    });
    if (seen > 0 && check(end, buffer, static_cast<std::uint64_t>(seen)) == nullptr) return -ECANCELED;
  }
  const auto count = timed(end.node, "recv", deadline_ns, [&](Deadline deadline) {
    return net.recv(this_thread(), end.socket, buffer, bytes, flags, deadline);
  });
  if (count > static_cast<std::int64_t>(bytes)) {
    fail("recv gave more than it was asked");
    return -ECANCELED;
  }
  if (count <= 0) return count;
  Flow* flow = check(end, buffer, static_cast<std::uint64_t>(count));
  if (flow == nullptr) return -ECANCELED;
  consume(end, *flow, static_cast<std::uint64_t>(count));
  return count;
}

/// Checks what has arrived: the flow that it belongs to, or nullptr where it is wrong.
Flow* Run::check(const End& end, const std::byte* data, std::uint64_t bytes) {
  static std::vector<std::byte> expected;
  expected.resize(std::max<std::size_t>(expected.size(), bytes));
  Way& way = end.in();
  Flow* flow = &way.flows[0];
  if (end.planned.records) {
    RecordName name{};
    std::memcpy(&name, data, std::min(bytes, kHeaderBytes));
    if (bytes < kHeaderBytes || name.attempt != end.attempt.number || name.sender >= kSendersMax ||
        name.bytes != bytes) {
      fail("a record that nobody sent");
      return nullptr;
    }
    flow = &way.flows[name.sender];
    if (name.sequence != flow->received) {
      fail("record " + std::to_string(name.sequence) + " of sender " + std::to_string(name.sender) + " where " +
           std::to_string(flow->received) + " was due");
      return nullptr;
    }
    fill_record(expected.data(), way, name);
  } else {
    fill_stream(expected.data(), way, end.attempt.number, end.side == 1, flow->received, bytes);
  }
  if (flow->received + (end.planned.records ? 1 : bytes) > flow->given) {
    fail("more arrived than was sent");
    return nullptr;
  }
  if (std::memcmp(data, expected.data(), bytes) != 0) {
    fail("other bytes arrived than were sent, behind " + std::to_string(flow->received));
    return nullptr;
  }
  return flow;
}

void Run::consume(const End& end, Flow& flow, std::uint64_t bytes) {
  flow.received += end.planned.records ? 1 : bytes;
  bytes_ += bytes;
}

}  // namespace gpusock::sim
