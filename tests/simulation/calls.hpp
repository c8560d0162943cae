#pragma once
/// @file What all callers of a run share: what they send, and how their calls are timed and tried again.

#include "tests/simulation/run.hpp"

#include <algorithm>
#include <cstring>
#include <exception>
#include <string>

namespace gpusock::sim {

/// How late a call may return: its last look may lie so long before.
inline constexpr std::uint64_t kLateNs = 3'000'000;
/// What a connection takes at most: over the slowest network and by the last of the links, when a full backlog has
/// twice not answered (TCP asks again after 1 s, and 2 s later).
inline constexpr std::uint64_t kConnectNs = 500'000'000 + 3'000'000'000;
/// Deadline of calls of which it is not known, where they fail, how far they came; only where nothing breaks.
inline constexpr std::uint64_t kLongNs = 900'000'000'000;
/// After the last fault: TCP gives up within 51 s, once the link has asked it to deliver something.
inline constexpr std::uint64_t kToldNs = 200'000'000'000;
inline constexpr std::uint64_t kHeaderBytes = 16;

inline std::uint64_t word_at(std::uint64_t salt, std::uint64_t index) {
  return Random(salt ^ index * 0xd6e8feb86659fd93u)();
}

inline void fill(std::byte* into, std::uint64_t salt, std::uint64_t offset, std::uint64_t bytes) {
  for (std::uint64_t i = 0; i < bytes;) {
    const std::uint64_t word = word_at(salt, (offset + i) / 8);
    for (std::uint64_t part = (offset + i) % 8; part < 8 && i < bytes; ++part)
      into[i++] = static_cast<std::byte>(word >> 8 * part);
  }
}

/// A stream's bytes: on the way from the client they begin with the attempt's number, twice.
inline void fill_stream(std::byte* into, const Way& way, std::uint64_t attempt, bool named, std::uint64_t offset,
                        std::uint64_t bytes) {
  fill(into, way.salt, offset, bytes);
  const std::uint64_t name[2] = {attempt, ~attempt};
  if (named && offset < kHeaderBytes) {
    std::memcpy(into, reinterpret_cast<const std::byte*>(name) + offset, std::min(bytes, kHeaderBytes - offset));
  }
}

struct RecordName {
  std::uint32_t attempt;
  std::uint32_t sender;
  std::uint32_t sequence;
  std::uint32_t bytes;
};
static_assert(sizeof(RecordName) == kHeaderBytes);

inline void fill_record(std::byte* into, const Way& way, const RecordName& name) {
  std::memcpy(into, &name, sizeof name);
  fill(into + kHeaderBytes, way.salt + name.sender, std::uint64_t{name.sequence} << 20, name.bytes - kHeaderBytes);
}

/// How long a caller tries again where something may be broken; where nothing is, for ever.
struct Run::Patience {
  explicit Patience(Run& the_run) : run(the_run), until_ns(the_run.schedule_.now_ns() + 3'000'000'000) {}
  bool over() const { return run.plan_.faulty() && run.schedule_.now_ns() > std::max(until_ns, run.last_fault_ns_); }
  void use() {  // it went on
    until_ns = run.schedule_.now_ns() + 3'000'000'000;
    pause_ns = 5'000;
  }
  /// Before it is tried again: the longer, the more often it was in vain.
  void pause() { run.schedule_.sleep(pause_ns = std::min<std::uint64_t>(2 * pause_ns, 20'000'000)); }
  Run& run;
  std::uint64_t until_ns;
  std::uint64_t pause_ns = 5'000;
};

/// A poll set with the socket of one receiver; some have none. By the attempt's number, and not at random: so other
/// callers do what they did before there were sets.
class Run::OwnSet {
 public:
  explicit OwnSet(const End& end) : end_(end), edge_(end.attempt.number % 2 == 0) {
    const Net& net = end.node.net();
    if ((end.attempt.number / 2 + static_cast<std::uint64_t>(end.side)) % 3 != 0) set_ = net.open_set(this_thread());
    if (set_ < 0) return;
    const int events = edge_ ? kPollIn | kPollEdge : int{kPollIn};
    watches_ = net.watch(this_thread(), set_, end.socket, events, end.attempt.number) == 0;
  }
  ~OwnSet() noexcept(false) {                     // its process may be killed just now
    if (std::uncaught_exceptions() != 0) return;  // its process was killed
    if (set_ >= 0 && end_.node.net().close_set(this_thread(), set_) != 0) end_.run.fail("closing a poll set failed");
  }
  OwnSet(const OwnSet&) = delete;
  OwnSet& operator=(const OwnSet&) = delete;

  bool watches() const { return watches_; }
  bool edge() const { return edge_; }
  std::int64_t wait(Deadline deadline) const {
    PollEvent event;
    const int count = end_.node.net().wait(this_thread(), set_, &event, 1, deadline);
    if (count == 1 && (event.socket != end_.socket || event.tag != end_.attempt.number))
      end_.run.fail("a poll set returned what it does not watch");
    return count;
  }

 private:
  End end_;
  bool edge_;
  PollSet set_ = -1;
  bool watches_ = false;
};

/// Makes a call that may take this long, and checks that it does not take longer.
template <class Call>
std::int64_t Run::timed(Node& node, const char* what, std::uint64_t duration_ns, Call call) {
  const std::uint64_t start_ns = schedule_.now_ns();
  const auto result = static_cast<std::int64_t>(call(Deadline::after_ns(duration_ns)));
  const std::uint64_t end_ns = schedule_.now_ns();
  if (verbose_) tell(std::string(what) + " = " + std::to_string(result));
  if (end_ns - start_ns > duration_ns + kLateNs) {
    fail(std::string(what) + " returned " + std::to_string(end_ns - start_ns - duration_ns) + " ns after its deadline");
  }
  if (node.canceled() && end_ns > std::max(start_ns, node.canceled_ns()) + kLateNs)
    fail(std::string(what) + " went on although its context had ended");
  if (result == -ETIMEDOUT && !plan_.faulty() && end_ns - start_ns < duration_ns && std::strcmp(what, "connect") != 0) {
    fail(std::string(what) + " timed out before its deadline");
  }
  return result;
}

}  // namespace gpusock::sim
