// Falling asleep (host_proxy/sleeper.hpp): whoever commits while the engine's thread falls asleep is seen by it, or rings.
#include "cases.hpp"

#include "host_proxy/board_shadow.hpp"
#include "host_proxy/sleeper.hpp"

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
  return {"sleep.commits_of_" + std::to_string(callers),
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
              const auto all_seen = [&] { return office.board.seen(0) + office.board.seen(1) == static_cast<std::uint64_t>(callers); };
              while (!all_seen()) {
                office.sleeper.fall_asleep(proxy::Sleeper::kWantsCommits);
                if (!look(office)) {
                  std::uint64_t rings = heard;
                  while ((rings = ringbuf::SystemAtomics::Ref<std::uint64_t>(office.bell).load(ringbuf::kAcquire)) == heard) give_way();
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
  return {commits_while_falling_asleep(1), commits_while_falling_asleep(2), credit_does_not_wake()};
}

}  // namespace gpusock::model
