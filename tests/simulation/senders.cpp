// What senders do in a run.
#include "tests/simulation/calls.hpp"

#include <vector>

namespace gpusock::sim {

void Run::send_stream(const End& end) {
  const PlannedWay& planned = end.planned_out();
  Flow& flow = end.out().flows[0];
  const std::uint64_t total = planned.bytes + (end.side == 0 ? kHeaderBytes : 0);
  Patience patience(*this);
  Random& random = schedule_.random();
  while (flow.sent < total && problem_.empty()) {
    const std::uint64_t bytes = std::min(total - flow.sent, 1 + random.below(planned.piece_bytes));
    const Manner manner = random.percent(80) ? planned.sending : static_cast<Manner>(random.below(4));
    const std::int64_t result = send_piece(end, manner, flow.sent, bytes, flow.sent + bytes == total);
    if (result > static_cast<std::int64_t>(bytes)) return fail("send gave more than it was asked");
    if (result > 0) {
      flow.sent += static_cast<std::uint64_t>(result);
      patience.use();
      if (random.one_in(8))
        schedule_.sleep(random.magnitude(1'000, 1'000'000'000));  // what the proxy was not told of it does not hear of
                                                                  // soon
    } else if ((result == -ETIMEDOUT && manner != Manner::whole) || result == -EAGAIN) {
      if (result == -ETIMEDOUT) check_not_over(end, "send");
      if (patience.over() && !must_be_told_of_loss(end)) return;
      patience.pause();
    } else {
      may_end(end, "send", result);
      return;
    }
  }
  end.out().all_sent = flow.sent == total;
}

std::int64_t Run::send_piece(const End& end, Manner manner, std::uint64_t offset, std::uint64_t bytes, bool last) {
  const Net& net = end.node.net();
  const std::uint64_t attempt = end.attempt.number;
  Flow& flow = end.out().flows[0];
  const std::uint64_t deadline_ns = end.planned.deadline_ns;
  if (manner == Manner::zero_copy) {
    Span span;
    timed(end.node, "reserve", deadline_ns,
          [&](Deadline deadline) { return (span = net.reserve(this_thread(), end.socket, bytes, deadline)).size; });
    if (span.size <= 0) return span.size;
    const std::uint64_t part = std::min<std::uint64_t>(bytes, static_cast<std::uint64_t>(span.size));
    flow.given = offset + part;
    fill_stream(static_cast<std::byte*>(span.data), end.out(), attempt, end.side == 0, offset, part);
    schedule_.may_turn();
    const int result = net.commit(this_thread(), end.socket, part);
    return result == 0 ? static_cast<std::int64_t>(part) : result;
  }
  std::vector<std::byte> data(bytes);
  fill_stream(data.data(), end.out(), attempt, end.side == 0, offset, bytes);
  int flags = !last && plan_.holds_back && schedule_.random().one_in(4) ? kMore : 0;
  if (manner == Manner::polled) {
    PollEntry entry{end.socket, kPollOut, 0};
    const auto count = timed(end.node, "poll", deadline_ns,
                             [&](Deadline deadline) { return net.poll(this_thread(), &entry, 1, deadline); });
    if (count <= 0) return count == 0 ? -ETIMEDOUT : count;
    flags |= kDontWait;
  }
  if (manner == Manner::whole) flags |= kWaitAll;
  flow.given = offset + bytes;
  const std::uint64_t duration_ns = manner == Manner::whole && !plan_.faulty() ? kLongNs : deadline_ns;
  return timed(end.node, "send", duration_ns, [&](Deadline deadline) {
    return net.send(this_thread(), end.socket, data.data(), bytes, flags, deadline);
  });
}

void Run::send_records(const End& end, int sender) {
  const PlannedWay& planned = end.planned_out();
  Flow& flow = end.out().flows[sender];
  std::uint64_t left = planned.bytes / static_cast<std::uint64_t>(planned.senders);
  Patience patience(*this);
  Random& random = schedule_.random();
  bool first = end.side == 0 && sender == 0;
  while ((left != 0 || first) && problem_.empty()) {
    if (end.side == 0 && sender != 0 && end.out().flows[0].received == 0 && end.out().flows[0].sent == 0) {  // the
                                                                                                             // first
                                                                                                             // one says
                                                                                                             // who we
                                                                                                             // are
      if (end.attempt.failed || patience.over() || end.node.canceled()) return;
      schedule_.sleep(10'000);
      continue;
    }
    const std::uint64_t bytes = kHeaderBytes + (left == 0 ? 0 : std::min(left, random.below(planned.piece_bytes)));
    const std::int64_t result = send_record(end, sender, bytes);
    if (result > 0) {
      ++flow.sent;
      left -= std::min(left, bytes);
      first = false;
      patience.use();
    } else if (result == -ETIMEDOUT || result == -EAGAIN || (result == -EBUSY && planned.senders > 1)) {
      if (result == -ETIMEDOUT) check_not_over(end, "send of a record");
      if (patience.over()) return;
      patience.pause();
    } else if (result != 0) {
      may_end(end, "send of a record", result);
      return;
    }
  }
  if (planned.senders == 1) end.out().all_sent = true;
}

/// 0: it was thought better of.
std::int64_t Run::send_record(const End& end, int sender, std::uint64_t bytes) {
  const Net& net = end.node.net();
  Flow& flow = end.out().flows[sender];
  const RecordName name{static_cast<std::uint32_t>(end.attempt.number), static_cast<std::uint32_t>(sender),
                        static_cast<std::uint32_t>(flow.sent), static_cast<std::uint32_t>(bytes)};
  const std::uint64_t deadline_ns = end.planned.deadline_ns;
  if (schedule_.random().one_in(3)) {
    Span span;
    timed(end.node, "reserve", deadline_ns,
          [&](Deadline deadline) { return (span = net.reserve(this_thread(), end.socket, bytes + 8, deadline)).size; });
    if (span.size <= 0) return span.size;
    if (schedule_.random().one_in(5)) {
      std::memset(span.data, 0xee, bytes);
      schedule_.may_turn();
      const int result = net.abort(this_thread(), end.socket);
      if (result != 0) fail("abort gave " + std::to_string(result));
      return 0;
    }
    flow.given = flow.sent + 1;
    fill_record(static_cast<std::byte*>(span.data), end.out(), name);
    schedule_.may_turn();
    const int result = net.commit(this_thread(), end.socket, bytes);
    return result == 0 ? 1 : result;
  }
  std::vector<std::byte> data(bytes);
  fill_record(data.data(), end.out(), name);
  flow.given = flow.sent + 1;
  return timed(end.node, "send", deadline_ns,
               [&](Deadline deadline) { return net.send(this_thread(), end.socket, data.data(), bytes, 0, deadline); });
}

}  // namespace gpusock::sim
