// What goes wrong while the other direction stands still: its ring is full, it has ended, or nobody reads. Such a
// connection gives the proxy no reason to read or write, and still each caller hears what the network or the peer has
// done. All cells of one fault on one link are asked at the same time. docs/semantics.md has the same table.
#include "full_ring.hpp"
#include "network.hpp"
#include "peer.hpp"

#include "tests/support/device_kind.hpp"
#include "tests/support/patience.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <tuple>
#include <vector>

namespace gpusock::fault::other_direction {
namespace {

enum class State { nothing, ring_full, peer_ended, own_read_shut, resting };
enum class Fault { reset, ended, killed, stopped, lost };
enum class Caller { send, recv, poll_out, poll_in, asks_error };

constexpr const char* kStates[] = {"nothing", "ring_full", "peer_ended", "own_read_shut", "resting"};
constexpr const char* kFaults[] = {"reset", "ended", "killed", "stopped", "lost"};
constexpr const char* kCallers[] = {"send", "recv", "poll_out", "poll_in", "asks_error"};
constexpr int kStateCount = std::size(kStates), kCallerCount = std::size(kCallers);

void PrintTo(Fault fault, std::ostream* out) { *out << kFaults[static_cast<int>(fault)]; }

constexpr std::uint64_t kDeadlineNs = 30'000'000;  ///< of a call that nothing ends before
constexpr std::uint64_t kQuietNs = 100'000'000;    ///< a tcp connection is full once nothing more went for so long
constexpr std::uint64_t kTooManyBytes = 16 << 20;  ///< more than rings and the operating system's buffers hold
/// Steps of the proxy after which it looks at an idle connection only when something happens.
constexpr std::uint64_t kIdleSteps = 600;

struct Cell {
  State state = State::nothing;
  Caller caller = Caller::send;
  Socket socket = -1;
};

/// What the call returns (asks_error: the option, negated; a poll: 1 for an event), and whether it is told before its
/// deadline.
struct Expected {
  std::int64_t result;
  bool told;
};

GPUSOCK_FN bool blocks_sending(Caller caller) { return caller == Caller::send || caller == Caller::poll_out; }
/// Has the reader something to hear, whatever happens.
bool reading_is_over(State state) { return state == State::peer_ended || state == State::own_read_shut; }

/// Nothing is heard of the peer; or it ends its direction, which says nothing to senders.
Expected without_news(const Cell& cell, bool ends) {
  const bool reader_hears = reading_is_over(cell.state) || ends;
  switch (cell.caller) {
    case Caller::recv:
      return reader_hears ? Expected{0, true} : Expected{-ETIMEDOUT, false};
    case Caller::poll_in:
      return reader_hears || cell.state == State::ring_full ? Expected{1, true} : Expected{0, false};
    case Caller::send:
      return {-ETIMEDOUT, false};
    case Caller::poll_out:
    case Caller::asks_error:
      return {0, false};
  }
  return {};
}

/// The connection is gone: senders hear why, and readers do after what came before it, their stream's end included.
Expected broken(const Cell& cell, int error) {
  switch (cell.caller) {
    case Caller::recv:
      return {reading_is_over(cell.state) ? 0 : -error, true};
    case Caller::poll_out:
    case Caller::poll_in:
      return {1, true};
    case Caller::send:
    case Caller::asks_error:
      return {-error, true};
  }
  return {};
}

Expected expected(const Cell& cell, Fault fault, const std::string& link) {
  const bool tcp = link == "tcp";
  // Linux says EPIPE of a connection that is reset after the peer's end.
  const int reset = tcp && cell.state == State::peer_ended ? EPIPE : ECONNRESET;
  switch (fault) {
    case Fault::reset:
      return broken(cell, reset);
    case Fault::ended:
      return without_news(cell, true);
    case Fault::stopped:
      return without_news(cell, false);
    case Fault::killed:
      // The system resets a dead process's connection where it had not read all, and else ends it as if the process
      // had.
      return tcp && !blocks_sending(cell.caller) ? without_news(cell, true) : broken(cell, reset);
    case Fault::lost:
      return link == "p2p" ? without_news(cell, false) : broken(cell, ECONNRESET);
  }
  return {};
}

struct Answer {
  std::uint64_t waiting = 0;
  std::int64_t result = 0;
  std::uint64_t bytes = 0;  ///< received before
  int revents = 0;
};

__global__ void open_listener(Net net, Endpoint at, Socket* listener, Endpoint* local) {
  *listener = net.listen(this_thread(), at, 64, patience());
  if (*listener >= 0) net.getsockname(*listener, *local);
}

/// Accepts as many connections as there are cells; each says which one it is for.
__global__ void accept_all(Net net, Socket listener, Cell* cells, int count) {
  for (int i = 0; i < count; ++i) {
    const Socket socket = net.accept(this_thread(), listener, patience());
    char which = 0;
    if (socket < 0 || net.recv(this_thread(), socket, &which, 1, kWaitAll, patience()) != 1) return;
    cells[which - 'a'].socket = socket;
  }
}

__global__ void get_ready(Net net, Cell* cells, const std::uint8_t* data, std::uint64_t capacity, int* ready) {
  const Cell& cell = cells[blockIdx.x];
  const auto self = this_thread();
  bool ok = cell.socket >= 0;
  SocketStats stats;
  const std::uint64_t until_ns = clock_ns() + kPatienceNs;
  while (ok && cell.state == State::ring_full && stats.bytes_unread != kRingBytes) {
    net.poll(self, nullptr, 0, Deadline::after_ns(100'000));
    ok = net.stats(cell.socket, stats) == 0 && clock_ns() < until_ns;
  }
  char byte = 0;
  if (ok && cell.state == State::peer_ended) ok = net.recv(self, cell.socket, &byte, 1, 0, patience()) == 0;
  if (ok && cell.state == State::own_read_shut) ok = net.shutdown(self, cell.socket, Shutdown::read) == 0;
  if (ok && blocks_sending(cell.caller)) ok = fill(net, cell.socket, data, capacity, kQuietNs) == 0;
  ready[blockIdx.x] = ok ? 1 : 0;
}

/// `pings`: a network that is lost is noticed by who has sent something.
__global__ void ask(Net net, const Cell* cells, const std::uint64_t* durations_ns, bool pings, std::uint8_t* data,
                    Answer* answers) {
  const Cell& cell = cells[blockIdx.x];
  const Deadline deadline = Deadline::after_ns(durations_ns[blockIdx.x]);
  Answer& answer = answers[blockIdx.x];
  const auto self = this_thread();
  if (pings && !blocks_sending(cell.caller)) net.send(self, cell.socket, data, 1, 0, deadline);
  detail::SystemRef(answer.waiting).store(1, ringbuf::kRelease);
  PollEntry entry{cell.socket, 0, 0};
  switch (cell.caller) {
    case Caller::send:
      answer.result = net.send(self, cell.socket, data, kTooManyBytes, kWaitAll, deadline);
      break;
    case Caller::recv:
      while ((answer.result = net.recv(self, cell.socket, data + blockIdx.x * kRingBytes, kRingBytes, 0, deadline)) >
             0) {
        answer.bytes += static_cast<std::uint64_t>(answer.result);
      }
      break;
    case Caller::poll_out:
    case Caller::poll_in:
      entry.events = cell.caller == Caller::poll_out ? kPollOut : kPollIn;
      answer.result = net.poll(self, &entry, 1, deadline);
      break;
    case Caller::asks_error: {
      std::int64_t error = -1;
      net.poll(self, &entry, 1, deadline);  // for nothing but that the connection failed
      net.getsockopt(self, cell.socket, SocketOption::error, error);
      answer.result = -error;
    }
  }
  answer.revents = entry.revents;
}

std::string link_option(const std::string& link) { return ",link=" + link; }

/// A context and the cells that are asked in it.
class Group {
 public:
  Group(std::vector<Cell> cells, const std::string& link, const std::string& host) : link_(link) {
    for (std::size_t i = 0; i < cells.size(); ++i) cells_[i] = cells[i];
    listener_.emplace(context_, 1);
    Mapped<Endpoint> local(context_, 1);
    const Endpoint any_port = Endpoint::parse(host + ":0" + link_option(link));
    launch(context_, {}, open_listener, context_.net(), any_port, listener_->data(), local.data());
    context_.synchronize();
    at_ = local[0];
    count_ = static_cast<int>(cells.size());
  }

  /// Lets the peer connect for each cell, and brings the connections into their states.
  void meet(const Peer& peer) {
    const std::string to = at_.host_port() + link_option(link_) + ring_option();
    for (int i = 0; i < count_; ++i) peer.say("connect " + name(i) + " " + to);
    launch(context_, {}, accept_all, context_.net(), (*listener_)[0], cells_.data(), count_);
    context_.synchronize();
    for (int i = 0; i < count_; ++i) {
      if (cells_[i].state == State::ring_full) peer.say("fill " + name(i) + " " + std::to_string(kRingBytes));
      if (cells_[i].state == State::peer_ended) peer.say("end " + name(i) + " -");
    }
    launch(context_, {.grid = static_cast<unsigned>(count_)}, get_ready, context_.net(), cells_.data(),
           static_cast<const std::uint8_t*>(data_.data()), capacity_of(link_), ready_.data());
  }

  void await_readiness() {
    context_.synchronize();
    for (int i = 0; i < count_; ++i) ASSERT_EQ(ready_[i], 1) << describe(i);
    const std::uint64_t rested = context_.stats().proxy_steps + kIdleSteps;
    while (count_ > 1 && context_.stats().proxy_steps < rested) {
      context_.net().poll(this_thread(), nullptr, 0, Deadline::after_ns(10'000));
    }
  }

  void ask_all(Fault fault) {
    for (int i = 0; i < count_; ++i) {
      durations_ns_[i] = expected(cells_[i], fault, link_).told ? kPatienceNs : kDeadlineNs;
    }
    launch(context_, {.grid = static_cast<unsigned>(count_)}, ask, context_.net(),
           static_cast<const Cell*>(cells_.data()), static_cast<const std::uint64_t*>(durations_ns_.data()),
           fault == Fault::lost, data_.data(), answers_.data());
    for (int i = 0; i < count_; ++i) {
      while (detail::SystemRef(answers_[i].waiting).load(ringbuf::kAcquire) == 0) sched_yield();
    }
  }

  void check(Fault fault) {
    context_.synchronize();
    for (int i = 0; i < count_; ++i) {
      const Cell& cell = cells_[i];
      const Expected told = expected(cell, fault, link_);
      EXPECT_EQ(answers_[i].result, told.result) << describe(i);
      if (cell.caller == Caller::recv && cell.state == State::ring_full) {
        EXPECT_GE(answers_[i].bytes, kRingBytes) << describe(i);
      }
      const bool is_broken = expected({cell.state, Caller::asks_error}, fault, link_).result != 0;
      if (cell.caller == Caller::poll_out && is_broken) {
        EXPECT_EQ(answers_[i].revents, kPollOut | kPollErr | kPollHup) << describe(i);
      }
    }
  }

 private:
  static std::string name(int cell) { return std::string(1, static_cast<char>('a' + cell)); }
  std::string describe(int i) const {
    return std::string(kCallers[static_cast<int>(cells_[i].caller)]) +
           ", the other direction: " + kStates[static_cast<int>(cells_[i].state)];
  }
  static Options options() {
    Options options = Options::from_env();
    options.sockets_max = kStateCount * kCallerCount + 1;
    options.connections_max = kStateCount * kCallerCount;
    options.ring_bytes = kRingBytes;
    options.handshake_timeout_ns = kPatienceNs;
    options.assist = true;
    return options;
  }

  std::string link_;
  Context context_{options()};
  std::optional<Mapped<Socket>> listener_;
  Endpoint at_;
  Mapped<Cell> cells_{context_, kStateCount* kCallerCount};
  Mapped<std::uint64_t> durations_ns_{context_, kStateCount* kCallerCount};
  Mapped<Answer> answers_{context_, kStateCount* kCallerCount};
  Mapped<int> ready_{context_, kStateCount* kCallerCount};
  DeviceBuffer<std::uint8_t> data_{context_, kTooManyBytes};
  int count_ = 0;
};

class OtherDirection : public testing::TestWithParam<std::tuple<Fault, std::string>> {
 protected:
  void TearDown() override {
    if (can_cut_network()) set_network_up(true);
  }
};

TEST_P(OtherDirection, HidesNothingFromAnyCaller) {
  const auto [fault, link] = GetParam();
  if (fault == Fault::lost && !can_lose_network()) GTEST_SKIP() << "this process may not have a network of its own";
  if (link == "p2p" && !test::shares_between_processes()) GTEST_SKIP() << "kernels reach no other process's memory";
  const char* named = std::getenv("GPUSOCK_TEST_HOST");
  const std::string host = named == nullptr ? "127.0.0.1" : named;
  std::vector<std::unique_ptr<Group>> groups;
  std::vector<Cell> all;
  for (int state = 0; state < kStateCount; ++state) {
    for (int caller = 0; caller < kCallerCount; ++caller) {
      const Cell cell{State(state), Caller(caller)};
      if (link == "tcp" && cell.state == State::nothing && blocks_sending(cell.caller)) {
        // Alone: a proxy with few connections reads without asking the network first.
        groups.push_back(std::make_unique<Group>(std::vector{cell}, link, host));
      } else {
        all.push_back(cell);
      }
    }
  }
  groups.push_back(std::make_unique<Group>(all, link, host));
  std::vector<std::unique_ptr<Peer>> peers;  // each with connections of one name each
  for (auto& group : groups) {
    peers.push_back(std::make_unique<Peer>(link == "tcp" ? "plain" : "gpusock", "-"));
    group->meet(*peers.back());
  }
  for (auto& group : groups) ASSERT_NO_FATAL_FAILURE(group->await_readiness());
  if (fault == Fault::lost) set_network_up(false);  // before: who waits there must have sent into it
  for (auto& group : groups) group->ask_all(fault);
  for (auto& peer : peers) {
    switch (fault) {
      case Fault::reset:
        peer->say("reset - -");
        break;
      case Fault::ended:
        peer->say("end_all - -");
        break;
      case Fault::killed:
        peer->kill_and_wait();
        break;
      case Fault::stopped:
        peer->stop();
        break;
      case Fault::lost:
        break;
    }
  }
  for (auto& group : groups) group->check(fault);
}

std::vector<std::tuple<Fault, std::string>> batches() {
  const char* named = std::getenv("GPUSOCK_TEST_LINK");
  const std::vector<std::string> both{"tcp", "p2p"}, links = named == nullptr ? both : std::vector<std::string>{named};
  std::vector<std::tuple<Fault, std::string>> all;
  for (int fault = 0; fault < static_cast<int>(std::size(kFaults)); ++fault) {
    for (const std::string& link : links) {
      // FaultMatrix has what a NIC reports. It takes seconds, and TCP there takes a quarter of an hour.
      if (Fault(fault) == Fault::lost && has_nic(link)) continue;
      all.emplace_back(Fault(fault), link);
    }
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Batches, OtherDirection, testing::ValuesIn(batches()), [](const auto& batch) {
  return std::string(kFaults[static_cast<int>(std::get<0>(batch.param))]) + "_" + std::get<1>(batch.param);
});

}  // namespace
}  // namespace gpusock::fault::other_direction
