// Falling asleep (host_proxy/proxy/sleeper.hpp): whoever commits while the engine's thread falls asleep is seen by it,
// or rings.
#include "cases.hpp"

#include "host_proxy/proxy/sleeper.hpp"
#include "host_proxy/table/word_shadow.hpp"
#include "ringbuf/byte_ring.hpp"

#include <string>

namespace gpusock::model {
namespace {

struct Office {
  std::uint64_t committed[2] = {};
  std::uint64_t bell = 0;  ///< stands for the descriptor that wakes the thread
  proxy::Sleeper sleeper;
  proxy::WordShadow board{committed, 2};
  bool rung = false;
};

/// The thread's scan, as the proxy's: true if something has changed.
bool look(Office& office) {
  if (!office.board.any_changed(0, 2)) return false;
  for (std::uint32_t i = 0; i < 2; ++i) office.board.note(i);
  return true;
}

/// `callers` commit once each; the thread sleeps until it has seen them all.
Case commits_while_falling_asleep(int callers) {
  return {
      "sleep.commits_of_" + std::to_string(callers),
      [callers](Run& run) {
        auto& office = run.make<Office>();
        for (int i = 0; i < callers; ++i) {
          run.thread([&office, i] {
            ringbuf::SystemAtomics::Ref<std::uint64_t>(office.committed[i]).store(1, ringbuf::kRelease);
            if (office.sleeper.must_be_rung(proxy::Sleeper::kWantsCommits)) {
              ringbuf::SystemAtomics::Ref<std::uint64_t>(office.bell).fetch_add(1, ringbuf::kRelease);
            }
          });
        }
        run.thread([&office, callers] {
          std::uint64_t heard = 0;
          const auto all_seen = [&] {
            return office.board.seen(0) + office.board.seen(1) == static_cast<std::uint64_t>(callers);
          };
          while (!all_seen()) {
            office.sleeper.fall_asleep(proxy::Sleeper::kWantsCommits);
            if (!look(office)) {
              std::uint64_t rings = heard;
              while ((rings = ringbuf::SystemAtomics::Ref<std::uint64_t>(office.bell).load(ringbuf::kAcquire)) == heard)
                give_way();
              heard = rings;
              office.rung = true;
            }
            office.sleeper.wake_up();
          }
        });
        run.at_end([&] { return std::string(office.rung ? "rung" : "seen"); });
      },
      {"rung", "seen"}};
}

/// A ring, whose one half is a caller's and whose other half is the engine's thread's.
struct RingOffice : Office {
  std::byte bytes[2] = {};
  std::uint64_t committed = 0, consumed = 0;
  ringbuf::ByteProducer<> producer{{bytes, 2, 0}, &committed, &consumed};
  ringbuf::ByteConsumer<> consumer{{bytes, 2, 0}, &committed, &consumed};

  /// The thread's: sleeps unless a look around finds something; false: it was rung.
  template <class WaitsForCredit, class Look>
  bool rest(WaitsForCredit waits_for_credit, Look finds) {
    const bool may_sleep = sleeper.may_sleep(waits_for_credit, finds);
    while (may_sleep && ringbuf::SystemAtomics::Ref<std::uint64_t>(bell).load(ringbuf::kAcquire) == 0) give_way();
    sleeper.wake_up();
    return !may_sleep;
  }

  /// A caller's, behind what it did.
  void ring_doorbell(proxy::Sleeper::Asleep least) {
    if (sleeper.must_be_rung(least)) ringbuf::SystemAtomics::Ref<std::uint64_t>(bell).store(1, ringbuf::kRelease);
  }
};

/// Bytes are committed while the thread falls asleep; or space is given back, for which it waits.
Case ring_while_falling_asleep(bool credit) {
  return {std::string("sleep.") + (credit ? "credit" : "bytes") + "_of_a_ring",
          [credit](Run& run) {
            auto& office = run.make<RingOffice>();
            if (credit) office.producer.commit(2);
            run.thread([&office, credit] {
              if (credit) {
                require(office.consumer.readable() == 2, "the ring is full");
                office.consumer.release(2);
              } else {
                office.producer.commit(2);
              }
              office.ring_doorbell(credit ? proxy::Sleeper::kWantsCredit : proxy::Sleeper::kWantsCommits);
            });
            run.thread([&office, credit] {
              office.rung = !office.rest(
                  [credit] { return credit; },
                  [&] { return credit ? office.producer.writable() != 0 : office.consumer.readable() != 0; });
              require(!office.rung || (credit ? office.producer.writable() : office.consumer.readable()) == 2,
                      "who is rung finds it");
            });
            run.at_end([&] { return std::string(office.rung ? "rung" : "seen"); });
          },
          {"rung", "seen"}};
}

/// The thread finds out that a ring is full only by its last look, as where a caller's step has filled it just before;
/// then space is given back, and nothing else happens.
Case full_at_the_last_look() {
  return {"sleep.a_ring_is_found_full_at_the_last_look",
          [](Run& run) {
            auto& office = run.make<RingOffice>();
            office.producer.commit(2);
            run.thread([&office] {
              require(office.consumer.readable() == 2, "the ring is full");
              office.consumer.release(2);
              office.ring_doorbell(proxy::Sleeper::kWantsCredit);
            });
            run.thread([&office] {
              bool full = false;
              const auto finds_room = [&] {
                full = office.producer.writable() == 0;
                return !full;
              };
              int rests = 0;
              while (office.producer.writable() == 0) {
                office.rest([&full] { return full; }, finds_room);
                require(++rests <= 2, "a second rest ends with room");
              }
            });
          },
          {""}};
}

/// Who knows that the thread has woken up does not ring.
Case awake_is_not_rung() {
  return {"sleep.who_is_awake_is_not_rung",
          [](Run& run) {
            auto& office = run.make<Office>();
            run.thread([&] {
              office.sleeper.fall_asleep(proxy::Sleeper::kWantsCredit);
              office.sleeper.wake_up();
              ringbuf::SystemAtomics::Ref<std::uint64_t>(office.bell).store(1, ringbuf::kRelease);
            });
            run.thread([&] {
              const bool woke = ringbuf::SystemAtomics::Ref<std::uint64_t>(office.bell).load(ringbuf::kAcquire) != 0;
              office.rung = office.sleeper.must_be_rung(proxy::Sleeper::kWantsCommits);
              require(!woke || !office.rung, "who is awake is not rung");
            });
            run.at_end([&] { return std::string(office.rung ? "rung" : "awake"); });
          },
          {"rung", "awake"}};
}

/// A thread that only waits for commits is not rung for credit.
Case credit_does_not_wake() {
  return {"sleep.credit_does_not_wake",
          [](Run& run) {
            auto& office = run.make<Office>();
            run.thread([&] { office.sleeper.fall_asleep(proxy::Sleeper::kWantsCommits); });
            run.thread([&] { office.rung = office.sleeper.must_be_rung(proxy::Sleeper::kWantsCredit); });
            run.at_end([&] { return std::string(office.rung ? "rung" : "asleep"); });
          },
          {"asleep"}};
}

}  // namespace

std::vector<Case> sleep_cases() {
  return {commits_while_falling_asleep(1), commits_while_falling_asleep(2), ring_while_falling_asleep(false),
          ring_while_falling_asleep(true), full_at_the_last_look(),         awake_is_not_rung(),
          credit_does_not_wake()};
}

}  // namespace gpusock::model
