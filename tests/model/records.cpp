// Several senders of records on one socket (gpusock/detail/records.inl), and reservations (zero_copy.inl), over a ring
// that its receiver reads directly, as on the p2p link.
#include "cases.hpp"
#include "pair.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

namespace gpusock::model {
namespace {

/// Two callers ask for something of one socket at the same time: what the proxy finds at last is both.
Case requests_of_two() {
  return {
      "records.requests_of_two_callers",
      [](Run& run) {
        auto& pair = run.make<Pair>(64u);
        run.thread(
            [&] { require(pair.net().shutdown(kMe, pair.sender(), Shutdown::read) == 0, "a direction is ended"); });
        run.thread([&] { require(pair.net().shutdown(kMe, pair.sender(), Shutdown::write) == 0, "the other one is"); });
        run.at_end([&] { return std::to_string(pair.asked() & 0xff); });
      },
      {std::to_string(table::kRequestShutdownRead | table::kRequestShutdownWrite)},
      3'000};
}

/// As above, with options: both are set, and the changes counted, of which the proxy takes the last.
Case options_of_two() {
  return {"records.options_of_two_callers",
          [](Run& run) {
            auto& pair = run.make<Pair>(64u);
            run.thread([&] {
              require(pair.net().setsockopt(kMe, pair.sender(), SocketOption::linger, 7) == 0, "an option is set");
            });
            run.thread([&] {
              require(pair.net().setsockopt(kMe, pair.sender(), SocketOption::keep_alive, 1) == 0, "another one is");
            });
            run.at_end([&] {
              const auto options = table::SocketOptions::unpack(pair.options());
              return std::to_string(pair.asked() >> table::kChangeShift) + " changes, linger " +
                     std::to_string(options.linger_s) + (options.keep_alive ? ", keep alive" : "");
            });
          },
          {"2 changes, linger 7, keep alive"},
          3'000};
}

/// One sends and closes, another uses the socket and is the last one out, and behind the close the slot is claimed
/// anew: no byte is committed behind the close, what was committed is known with it, and what is asked of the next
/// socket is its own.
Case late_call() {
  return {"records.a_late_call",
          [](Run& run) {
            auto& pair = run.make<Pair>(64u);
            run.thread([&] {
              require(pair.net().send(kMe, pair.sender(), "abcd", 4) == 4, "a record is sent");
              require(pair.net().close(kMe, pair.sender()) == 0, "and the socket is closed");
            });
            run.thread([&] {
              Endpoint peer;
              pair.got = pair.net().getpeername(pair.sender(), peer) == 0 ? "in time" : "late";
            });
            run.thread([&] {  // the proxy, and who is granted the slot next
              while ((pair.load_requests() & table::kRequestClose) == 0) give_way();
              require(pair.load_committed() == 16, "what was sent is known with the close");
              pair.open_again(3);
            });
            run.at_end([&] {
              require(pair.asked() == table::make_request(3, table::kRequestOpen),
                      "the next socket is only asked to open");
              return pair.got;
            });
          },
          {"in time", "late"},
          3'000};
}

/// An owner's calls are not counted one by one. Another closes meanwhile: no byte is committed after the close is told,
/// and what was committed is known with it. (OwnedSocket itself ends in a destructor, which no abandoned run may leave
/// by an exception.)
Case owned_and_closed() {
  return {"records.owned_and_closed",
          [](Run& run) {
            auto& pair = run.make<Pair>(64u);
            run.thread([&] {
              if (detail::begin_owning(kMe, pair.side(), pair.sender()) != 0) return;
              Net net = pair.net();
              unsigned holds;
              detail::NetAccess::own(net, pair.sender(), holds);
              for (int i = 0; i < 2; ++i) {
                const auto sent = net.send(kMe, pair.sender(), "abcd", 4);
                require(sent == 4 || sent == -EBADF, "a record is sent, or the socket is closed");
                if (sent == 4) pair.got += 'a';
              }
              detail::end_owning(kMe, detail::NetAccess::side(net));
            });
            run.thread([&] { pair.net().close(kMe, pair.sender()); });
            run.thread([&] {  // the proxy, and who is granted the slot next
              while ((pair.load_requests() & table::kRequestClose) == 0) give_way();
              require(pair.load_committed() == 16 * pair.got.size(), "what was sent is known with the close");
              pair.open_again(3);
            });
            run.at_end([&] {
              require(pair.asked() == table::make_request(3, table::kRequestOpen),
                      "the next socket is only asked to open");
              return pair.got;
            });
          },
          {"", "a", "aa"},
          3'000};
}

/// A call on a handle that was closed is counted in and out of the slot's next sockets: where it is the last one out,
/// it tells the proxy of a close that is not its own, behind all that was done there; no close is lost.
Case late_call_in_the_next_socket() {
  return {"records.a_late_call_in_the_next_socket",
          [](Run& run) {
            auto& pair = run.make<Pair>(64u);
            run.thread([&] {
              require(pair.net().close(kMe, pair.sender()) == 0, "the first socket is closed");
              require(pair.net().close(kMe, pair.open_again(3)) == 0, "and the second one");
            });
            run.thread([&] {
              Endpoint peer;
              pair.got = pair.net().getpeername(pair.sender(), peer) == 0 ? "in time" : "late";
            });
            run.thread([&] { pair.open_again(5); });
            run.at_end([&] {
              require(pair.asked() == table::make_request(5, table::kRequestOpen), "the third is open");
              return pair.got;
            });
          },
          {"in time", "late"},
          3'000};
}

/// Each record arrives whole, and one sender's in their order.
Case two_senders() {
  return {"records.two_senders",
          [](Run& run) {
            auto& pair = run.make<Pair>(64u);
            run.thread([&] { pair.send('a', 4); });
            run.thread([&] { pair.send('b', 4); });
            run.thread([&] {
              for (int i = 0; i < 2; ++i) pair.receive(4);
            });
            run.at_end([&] { return pair.got; });
          },
          {"ab", "ba"},
          2'000};
}

/// The third record does not fit before the ring's end, nor before the first has been received.
Case around_the_end() {
  return {"records.around_the_rings_end",
          [](Run& run) {
            auto& pair = run.make<Pair>(64u);
            run.thread([&] {
              pair.send('a', 16);
              pair.send('b', 16);
            });
            run.thread([&] { pair.send('c', 16); });
            run.thread([&] {
              for (int i = 0; i < 3; ++i) pair.receive(16);
            });
            run.at_end([&] { return pair.got; });
          },
          {"abc", "acb", "cab"},
          2'000};
}

/// Two reserve at the same time, write in place, and one of them thinks better of it; a poll looks on.
Case reservations() {
  return {"records.reservations",
          [](Run& run) {
            auto& pair = run.make<Pair>(64u);
            for (const char letter : {'a', 'b'}) {
              run.thread([&pair, letter] {
                Span span;
                while ((span = pair.net().reserve(kMe, pair.sender(), 4, Deadline::never())).size == -EBUSY) give_way();
                require(span.size == 4, "there is room for what was asked for");
                if (span.size != 4) return;
                std::memset(span.data, letter, 4);
                require(pair.net().commit(kMe, pair.sender(), 4) == 0, "what was reserved is sent");
              });
            }
            run.thread([&] {
              for (int i = 0; i < 2; ++i) {
                PollEntry entry{pair.receiver(), kPollIn, 0};
                require(pair.net().poll(kMe, &entry, 1, Deadline::never()) == 1, "poll sees the record");
                const Span span = pair.net().peek(kMe, pair.receiver(), 64, Deadline::now());
                require(span.size == 4, "what poll has seen is there");
                if (span.size != 4) return;
                pair.got += *static_cast<const char*>(span.data);
                require(pair.net().release(kMe, pair.receiver(), 4) == 0, "and is given back");
              }
            });
            run.at_end([&] { return pair.got; });
          },
          {"ab", "ba"},
          2'000};
}

/// One thinks better of a reservation, and then sends what would not fit behind it; the receiver waits with poll alone.
Case given_up_beside_a_poll() {
  return {"records.given_up_beside_a_poll",
          [](Run& run) {
            auto& pair = run.make<Pair>(64u);
            run.thread([&] {
              pair.send('a', 8);
              require(pair.net().reserve(kMe, pair.sender(), 24, Deadline::never()).size == 24, "there is room");
              require(pair.net().abort(kMe, pair.sender()) == 0, "what was reserved is given up");
              pair.send('b', 24);
            });
            run.thread([&] {
              for (const std::size_t bytes : {8u, 24u}) {
                PollEntry entry{pair.receiver(), kPollIn, 0};
                require(pair.net().poll(kMe, &entry, 1, Deadline::never()) == 1, "poll sees the record");
                pair.receive(bytes);
              }
            });
            run.at_end([&] { return pair.got; });
          },
          {"ab"},
          2'000};
}

/// One ends sending while others send: the proxy hears of the end behind every record that was sent. `on_device`: from
/// the host's copy of the position.
Case end_beside_senders(const std::string& name, bool on_device) {
  return {
      "records." + name,
      [on_device](Run& run) {
        auto& pair = run.make<Pair>(64u);
        if (on_device) pair.words_are_on_device();
        for (int i = 0; i < 2; ++i) {
          run.thread([&pair, i] {
            const std::int64_t result = pair.net().send(kMe, pair.sender(), "abcd", 4);
            require(result == 4 || result == -EPIPE, "it is sent, or too late");
            pair.results[i] = result;
          });
        }
        run.thread([&] { require(pair.net().shutdown(kMe, pair.sender(), Shutdown::write) == 0, "sending is ended"); });
        run.thread([&] {  // the proxy
          while ((pair.load_requests() & table::kRequestShutdownWrite) == 0) give_way();
          pair.ended_at = pair.load_host_committed();
        });
        run.at_end([&] {
          const int sent = (pair.results[0] == 4) + (pair.results[1] == 4);
          require(pair.ended_at == 16u * static_cast<unsigned>(sent), "the end is behind all that was sent");
          return std::to_string(sent);
        });
      },
      {"0", "1", "2"},
      3'000};
}

/// Words on a GPU: with a close the proxy knows all that was received, of which it keeps account.
Case received_before_the_close() {
  return {"records.received_before_the_close_of_one_gpu",
          [](Run& run) {
            auto& pair = run.make<Pair>(64u);
            pair.words_are_on_device();
            run.thread([&] {
              pair.send('a', 8);
              pair.results[0] = pair.look();
            });
            run.thread([&] { require(pair.net().close(kMe, pair.receiver()) == 0, "it closes"); });
            run.thread([&] {  // the proxy
              while ((pair.load_requests(1) & table::kRequestClose) == 0) give_way();
              pair.results[1] = static_cast<std::int64_t>(pair.load_host_consumed());
            });
            run.at_end([&] {
              require(pair.results[1] == (pair.results[0] == 8 ? 16 : 0), "all that was received is known");
              return std::to_string(pair.results[0] == 8);
            });
          },
          {"0", "1"}};
}

/// One asks for too much, between two that reserve: what they keep is not theirs at the same time.
Case reservation_that_fails() {
  return {"records.a_reservation_that_fails",
          [](Run& run) {
            auto& pair = run.make<Pair>(64u);
            for (int i = 0; i < 2; ++i) {
              run.thread([&pair] {
                while (pair.net().reserve(kMe, pair.sender(), 4, Deadline::never()).size == -EBUSY)
                  pair.wait_until_free();
                require(pair.net().abort(kMe, pair.sender()) == 0, "what was reserved is given up");
              });
            }
            run.thread([&] {
              const std::int64_t size = pair.net().reserve(kMe, pair.sender(), 64, Deadline::never()).size;
              require(size == -EBUSY || size == -EMSGSIZE, "too much is refused");
              pair.got = size == -EBUSY ? "busy" : "too long";
            });
            run.at_end([&] { return pair.got; });
          },
          {"busy", "too long"},
          2'000};
}

/// What one thread reserves another one may send.
Case reservation_handed_over() {
  return {"records.a_reservation_that_is_handed_over",
          [](Run& run) {
            auto& pair = run.make<Pair>(64u);
            run.thread([&] {
              const Span span = pair.net().reserve(kMe, pair.sender(), 4, Deadline::never());
              require(span.size == 4, "there is room");
              pair.hand_over();
            });
            run.thread([&] {
              pair.take_over();
              require(pair.net().commit(kMe, pair.sender(), 4) == 0, "what was reserved is sent");
            });
          },
          {""}};
}

/// One caller, whose steps cannot be told from a plain program's.
Case alone(const std::string& name, std::uint64_t capacity, void (*steps)(Pair&)) {
  return {"records." + name,
          [capacity, steps](Run& run) {
            auto& pair = run.make<Pair>(capacity);
            pair.is_alone();
            run.thread([&pair, steps] { steps(pair); });
          },
          {""}};
}

/// Where a network brings bytes, a record may arrive in parts.
void part_of_a_record(Pair& pair) {
  pair.write_header(0, 8, 16);
  pair.arrive(8);
  require(pair.poll(pair.receiver(), kPollIn) == 0, "poll does not count a part");
  require(pair.look() == -EAGAIN, "and recv does not take it");
  pair.arrive(16);
  require(pair.poll(pair.receiver(), kPollIn) == kPollIn && pair.look() == 8, "but the whole");
}

/// A send that overlaps its own side's shutdown may commit after the end: that is not part of the stream for a receiver
/// that has seen the end.
void behind_the_end(Pair& pair) {
  for (const std::uint64_t at : {0, 16, 32}) pair.write_header(at, 8, 16);
  pair.arrive(32);
  require(pair.look() == 8, "a record before the end is known");
  pair.end_at(16);
  require(pair.poll(pair.receiver(), kPollIn) == kPollIn, "poll sees the end");
  require(pair.look() == 0, "nothing after it");
  pair.end_at(32);
  require(pair.look() == 8 && pair.look() == 0, "nothing but what comes before it");
  pair.arrive(48);
  require(pair.look() == 0, "nor what comes later");
  pair.end_at(16);
  require(pair.look() == 0, "who has read beyond the end hears of the end");
}

/// The peer may wait for the space of what recv leaves out; and for what a sender that finds no room held back by
/// kMore.
void what_is_announced(Pair& pair) {
  pair.needs_proxy(true);
  pair.write_header(0, ringbuf::RecordHeader::kFiller, 32);
  pair.arrive(32);
  require(pair.look() == -EAGAIN && pair.credits == 1 && pair.knows_credit(),
          "credit for a filler is rings though no record has come");
  const Net net = pair.net();
  pair.arrive(0);
  pair.take(0);
  const char bytes[24] = {};
  require(net.send(kMe, pair.sender(), bytes, 24, kMore | kDontWait) == 24, "a record");
  require(net.send(kMe, pair.sender(), bytes, 24, kMore | kDontWait) == 24 && pair.rings == 0,
          "and another are held back");
  require(net.send(kMe, pair.sender(), bytes, 24, kMore | kDontWait) == -EAGAIN && pair.rings == 1,
          "until there is no room");
  require(pair.poll(pair.sender(), kPollOut) == 0 && pair.rings == 2, "also for who polls");
}

/// The same of a stream, whatever call fills and empties its ring.
void what_is_announced_of_a_stream(Pair& pair) {
  pair.needs_proxy(false);
  const Net net = pair.net();
  char bytes[64] = {};
  require(net.send(kMe, pair.sender(), bytes, 64, kMore | kDontWait) == 64 && pair.rings == 0,
          "a whole ring is held back");
  require(net.send(kMe, pair.sender(), bytes, 1, kMore | kDontWait) == -EAGAIN && pair.rings == 1,
          "until there is no room");
  require(net.reserve(kMe, pair.sender(), 8, Deadline::now()).size == -EAGAIN && pair.rings == 2,
          "also for who reserves");
  require(pair.poll(pair.sender(), kPollOut) == 0 && pair.rings == 3, "or polls");
  require(net.recv(kMe, pair.receiver(), bytes, 8, kDontWait) == 8 && pair.credits == 1 && pair.knows_credit(),
          "credit of recv");
  require(net.peek(kMe, pair.receiver(), 8, Deadline::now()).size == 8 && pair.credits == 1, "peeking gives none");
  require(net.release(kMe, pair.receiver(), 8) == 0 && pair.credits == 2 && pair.knows_credit(), "credit of release");
  require(net.reserve(kMe, pair.sender(), 8, Deadline::now()).size == 8 && pair.rings == 3, "reserving says nothing");
  require(net.commit(kMe, pair.sender(), 8) == 0 && pair.rings == 4 && pair.knows_commits(), "committing does");
  require(net.send(kMe, pair.sender(), bytes, 8, kDontWait) == 8 && pair.rings == 5 && pair.knows_commits(),
          "and sending");
}

/// Requests are told at once; and a peer's word that cannot be is no room.
void what_else_is_told(Pair& pair) {
  pair.needs_proxy(true);
  const Net net = pair.net();
  require(net.setsockopt(kMe, pair.sender(), SocketOption::linger, 7) == 0 && pair.rings == 1, "an option");
  require(net.shutdown(kMe, pair.sender(), Shutdown::read) == 0 && pair.rings == 2, "the end of a direction");
  const char bytes[24] = {};
  for (int i = 0; i < 2; ++i) require(net.send(kMe, pair.sender(), bytes, 24, kDontWait) == 24, "the ring is filled");
  pair.take(65);
  require(net.send(kMe, pair.sender(), bytes, 24, kDontWait) == -EPROTO, "more was consumed than was sent");
}

/// Whoever waits when somebody else closes the socket hears of it, whatever it waits for.
void closed_while_waiting(Pair& pair) {
  pair.needs_proxy(false);
  const Net net = pair.net();
  char bytes[64] = {};
  pair.meanwhile = [](Pair& its) { require(its.net().close(kMe, its.receiver()) == 0, "it is closed"); };
  require(net.recv(kMe, pair.receiver(), bytes, 1) == -EBADF, "recv hears of it");
  require(net.send(kMe, pair.sender(), bytes, 64, kDontWait) == 64, "the ring is full");
  pair.meanwhile = [](Pair& its) { require(its.net().close(kMe, its.sender()) == 0, "it is closed"); };
  require(net.send(kMe, pair.sender(), bytes, 1) == -EBADF, "send hears of it");
}

/// As many records may be in the making as there are bits for them.
void claims_of_all(Pair& pair) {
  constexpr std::uint32_t kAll = table::RecordSender::kClaimsMax;
  std::vector<detail::Claim> claims;
  for (std::uint32_t i = 0; i < kAll; ++i)
    claims.push_back(detail::try_claim(pair.side(), pair.sending_slot(), 16, true));
  require(claims.back().error == 0, "all can be claimed");
  require(detail::try_claim(pair.side(), pair.sending_slot(), 16, true).error == -EAGAIN, "and no more");
  const auto complete = [&](std::uint32_t i) {
    detail::complete(pair.side(), pair.sender(), pair.sending_slot(), claims[i], 8, 0);
  };
  for (std::uint32_t i = kAll - 1; i > 0; --i) complete(i);
  require(pair.load_committed() == 0, "nothing is committed before the first is complete");
  complete(0);
  require(pair.load_committed() == 16 * kAll, "then all are");
}

/// The end waits for the record that is in the making, behind which another one was sent.
void end_behind_what_was_sent(Pair& pair) {
  const Net net = pair.net();
  require(net.reserve(kMe, pair.sender(), 4, Deadline::now()).size == 4, "a record is in the making");
  require(net.send(kMe, pair.sender(), "abcd", 4) == 4, "another one is sent");
  require(net.shutdown(kMe, pair.sender(), Shutdown::write) == 0, "sending is ended");
  require((pair.load_requests() & table::kRequestShutdownWrite) == 0, "the proxy is not told before all is committed");
  require(net.send(kMe, pair.sender(), "abcd", 4) == -EPIPE, "nothing more is sent");
  require(net.abort(kMe, pair.sender()) == 0, "the record in the making is given up");
  require((pair.load_requests() & table::kRequestShutdownWrite) != 0, "then the proxy is told");
  require(pair.load_committed() == 32, "the end is behind the record that was sent");
  require(pair.look() == 4 && pair.look() == -EAGAIN, "which arrives");
}

/// Claims that are given up: the last ones are undone, and those before a record become fillers.
void given_up(Pair& pair) {
  std::vector<detail::Claim> claims;
  for (int i = 0; i < 4; ++i) claims.push_back(detail::try_claim(pair.side(), pair.sending_slot(), 16, true));
  require(detail::try_claim(pair.side(), pair.sending_slot(), 16, true).error == -EAGAIN, "the ring is full");
  const auto complete = [&](int i, std::uint32_t bytes) {
    detail::complete(pair.side(), pair.sender(), pair.sending_slot(), claims[static_cast<std::size_t>(i)], bytes, 0);
  };
  constexpr std::uint32_t kGivenUp = ringbuf::RecordHeader::kFiller;
  complete(0, kGivenUp);
  require(pair.load_committed() == 0, "a filler is not committed by itself");
  complete(2, kGivenUp);
  complete(3, kGivenUp);
  require(pair.sending_slot().records.claimed == 32, "the last two are undone");
  complete(1, 8);
  require(pair.load_committed() == 32, "the first is committed with the record behind it");
  require(pair.look() == 8 && pair.look() == -EAGAIN, "which is all that arrives");
  const detail::Claim alone = detail::try_claim(pair.side(), pair.sending_slot(), 32, true);
  require(alone.position == 32, "the next is where the undone ones were");
  claims[0] = alone;
  complete(0, kGivenUp);
  require(pair.sending_slot().records.claimed == 32 && pair.load_committed() == 32, "the only one is undone as well");
}

/// What was reserved before the socket was closed is not sent any more; and a handle says whether its socket carries
/// records.
void closed_meanwhile(Pair& pair) {
  const Net net = pair.net();
  const Socket stripped = pair.sender() & ~table::kRecordBit;
  require(
      net.send(kMe, stripped, "abcdefgh", 8) == -EBADF && net.reserve(kMe, stripped, 8, Deadline::now()).size == -EBADF,
      "another handle");
  require(net.reserve(kMe, pair.sender(), 8, Deadline::now()).size == 8, "there is room");
  require(net.close(kMe, pair.sender()) == 0, "it is closed");
  require(net.commit(kMe, pair.sender(), 8) == -EBADF, "which is what the sender hears");
  require(pair.load_committed() == 0, "nothing is committed");
  require(pair.look() == -EAGAIN, "and no record");
}

}  // namespace

std::vector<Case> record_cases() {
  return {late_call(),
          owned_and_closed(),
          late_call_in_the_next_socket(),
          requests_of_two(),
          options_of_two(),
          two_senders(),
          around_the_end(),
          reservations(),
          given_up_beside_a_poll(),
          end_beside_senders("end_beside_senders", false),
          end_beside_senders("end_beside_senders_of_one_gpu", true),
          received_before_the_close(),
          reservation_that_fails(),
          reservation_handed_over(),
          alone("end_behind_what_was_sent", 64, end_behind_what_was_sent),
          alone("given_up", 64, given_up),
          alone("a_part_of_one", 64, part_of_a_record),
          alone("what_lies_behind_the_end", 64, behind_the_end),
          alone("what_is_announced", 64, what_is_announced),
          alone("what_is_announced_of_a_stream", 64, what_is_announced_of_a_stream),
          alone("what_else_is_told", 64, what_else_is_told),
          alone("closed_while_waiting", 64, closed_while_waiting),
          alone("all_that_may_be_in_the_making", 1024, claims_of_all),
          alone("closed_meanwhile", 64, closed_meanwhile)};
}

}  // namespace gpusock::model
