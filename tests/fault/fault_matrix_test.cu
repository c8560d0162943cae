// For each call that waits, and each thing that can go wrong meanwhile: what it returns, and that it returns in time.
// docs/semantics.md has the same table.
#include "network.hpp"
#include "peer.hpp"
#include "stall.hpp"

#include "tests/support/device_kind.hpp"
#include "tests/support/patience.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <optional>
#include <ostream>
#include <set>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

namespace gpusock::fault {
namespace {

enum class Call { connect, accept, send, reserve, recv, recv_all, peek, poll };
enum class Fault { peer_killed, peer_stopped, proxy_stalled, context_ended, link_cut, link_lost, ring_full, table_full };

constexpr const char* kCalls[] = {"connect", "accept", "send", "reserve", "recv", "recv_all", "peek", "poll"};
constexpr const char* kFaults[] = {"peer_killed", "peer_stopped", "proxy_stalled", "context_ended",
                                   "link_cut",    "link_lost",    "ring_full",     "table_full"};

void PrintTo(Call call, std::ostream* out) { *out << kCalls[static_cast<int>(call)]; }
void PrintTo(Fault fault, std::ostream* out) { *out << kFaults[static_cast<int>(fault)]; }

/// Deadline of a call that nothing ends before.
constexpr std::uint64_t kDeadlineNs = 30'000'000;
/// How late a call may be on a machine that is busy with something else.
constexpr std::uint64_t kLateNs = 5'000'000'000;
/// More than rings and the operating system's buffers hold.
constexpr std::uint64_t kTooManyBytes = 16 << 20;
constexpr std::uint64_t kRingBytes = 64 << 10;

/// What a call may return. Several where what the operating system says depends on what it was doing.
using Answers = std::set<std::int64_t>;
/// Stands for any handle.
constexpr std::int64_t kSocket = 1'000'000'000;

/// GPUSOCK_TEST_LINK names a link that is tested alone; GPUSOCK_TEST_HOST where.
std::string test_host() {
  const char* host = std::getenv("GPUSOCK_TEST_HOST");
  return host == nullptr ? "127.0.0.1" : host;
}
std::vector<std::string> test_links() {
  const char* link = std::getenv("GPUSOCK_TEST_LINK");
  return link == nullptr ? std::vector<std::string>{"tcp", "p2p"} : std::vector<std::string>{link};
}

/// Does this link have a network card's own transport.
bool has_card(const std::string& link) { return link == "verbs" || link == "fabric"; }

/// The table: empty where the two have nothing to do with each other.
Answers expected(Call call, Fault fault, const std::string& link) {
  const bool p2p = link != "tcp";  // what is said of p2p holds for all links between gpusock peers
  const bool opens = call == Call::connect;
  switch (fault) {
    case Fault::context_ended: return {-ECANCELED};
    case Fault::table_full:
      if (opens) return {-EMFILE};
      return call == Call::accept ? Answers{-ETIMEDOUT} : Answers{};
    case Fault::ring_full:
      if (opens || call == Call::accept) return {};
      return call == Call::poll ? Answers{0} : Answers{-ETIMEDOUT};
    case Fault::peer_killed:
      if (opens) return {-ECONNREFUSED};
      if (call == Call::accept) return {-ETIMEDOUT};
      if (call == Call::poll) return {1};
      if (p2p) return {-ECONNRESET};
      // The operating system ends a dead process's stream; what is sent into it is refused.
      if (call == Call::send || call == Call::reserve) return {-ECONNRESET, -EPIPE};
      return {0, -ECONNRESET};
    case Fault::link_lost:  // cut for longer than a card tries again; tcp does so for a quarter of an hour
      return call == Call::send && has_card(link) ? Answers{-ECONNRESET} : Answers{};
    case Fault::link_cut:
      if (call == Call::send && has_card(link)) return {-ETIMEDOUT, -ECONNRESET};  // the card may know at once
      return call == Call::poll ? Answers{0} : Answers{-ETIMEDOUT};
    case Fault::peer_stopped:
      if (opens && !p2p) return {kSocket};  // on plain TCP the operating system connects for it
      [[fallthrough]];
    case Fault::proxy_stalled: return call == Call::poll ? Answers{0} : Answers{-ETIMEDOUT};
  }
  return {};
}

/// Do we know only by the deadline.
bool costs_the_deadline(const Answers& answers) { return answers.contains(-ETIMEDOUT) || answers == Answers{0}; }

struct Question {
  Call call;
  Endpoint to;
  Socket socket;       ///< a listener for accept
  std::uint8_t* data;  ///< kTooManyBytes
  std::uint64_t deadline_ns;
};

struct Answer {
  std::uint64_t waiting = 0;
  std::int64_t result = 0;
  std::uint64_t elapsed_ns = 0;
};

__global__ void ask(Net net, Question question, Answer* answer) {
  detail::SystemRef(answer->waiting).store(1, ringbuf::kRelease);
  const auto self = this_thread();
  const std::uint64_t started_ns = clock_ns();
  const Deadline deadline = Deadline::after_ns(question.deadline_ns);
  PollEntry entry{question.socket, kPollIn, 0};
  switch (question.call) {
    case Call::connect: answer->result = net.connect(self, question.to, deadline); break;
    case Call::accept: answer->result = net.accept(self, question.socket, deadline); break;
    case Call::send:
      answer->result = net.send(self, question.socket, question.data, kTooManyBytes, kWaitAll, deadline);
      break;
    case Call::reserve: answer->result = net.reserve(self, question.socket, 100, deadline).size; break;
    case Call::peek: answer->result = net.peek(self, question.socket, 100, deadline).size; break;
    case Call::recv: answer->result = net.recv(self, question.socket, question.data, 100, 0, deadline); break;
    case Call::recv_all: answer->result = net.recv(self, question.socket, question.data, 100, kWaitAll, deadline); break;
    case Call::poll: answer->result = net.poll(self, &entry, 1, deadline); break;
  }
  answer->elapsed_ns = clock_ns() - started_ns;
}

__global__ void open_listener(Net net, Endpoint at, Socket* listener, Endpoint* local) {
  *listener = net.listen(this_thread(), at, 16, patience());
  if (*listener >= 0) net.getsockname(*listener, *local);
}

/// Accepts a connection and takes its first byte.
__global__ void take_connection(Net net, Socket listener, Socket* socket) {
  *socket = net.accept(this_thread(), listener, patience());
  char hello = 0;
  if (*socket >= 0 && net.recv(this_thread(), *socket, &hello, 1, kWaitAll, patience()) != 1) *socket = -EPROTO;
}

/// Sends until nothing more goes for a while.
__global__ void fill_ring(Net net, Socket socket, std::uint8_t* data, std::uint64_t while_ns, std::int64_t* result) {
  do {
    *result = net.send(this_thread(), socket, data, kTooManyBytes, 0, Deadline::after_ns(while_ns));
  } while (*result > 0);
}

__global__ void connect_often(Net net, Endpoint to, Socket* sockets, int count) {
  for (int i = 0; i < count; ++i) sockets[i] = net.connect(this_thread(), to, patience());
}

class FaultMatrix : public testing::TestWithParam<std::tuple<Call, Fault, std::string>> {
 protected:
  static constexpr int kSockets = 4;

  static Options options() {
    Options options = Options::from_env();
    options.sockets_max = kSockets;
    options.ring_bytes = kRingBytes;
    options.handshake_timeout_ns = kPatienceNs;
    options.connections_max = 2 * kSockets;
    return options;
  }

  Call call() const { return std::get<0>(GetParam()); }
  Fault fault() const { return std::get<1>(GetParam()); }
  std::string link() const { return std::get<2>(GetParam()); }
  std::string any_port() const { return test_host() + ":0,link=" + link(); }

  template <class... Arguments>
  void run(void (*kernel)(Net, Arguments...), std::type_identity_t<Arguments>... arguments) {
    launch(context_, {}, kernel, context_.net(), arguments...);
    context_.synchronize();
  }

  void SetUp() override {
    answers_ = expected(call(), fault(), link());
    // All but a caller that waits for nobody in particular.
    const bool has_peer = call() != Call::accept || fault() == Fault::table_full;
    if (has_peer && link() == "p2p" && test::like_a_gpu()) GTEST_SKIP() << "a GPU's kernels do not reach another process's memory";
    if ((fault() == Fault::link_cut || fault() == Fault::link_lost) && !can_cut_network()) GTEST_SKIP() << "this process may not have a network of its own";
    if (call() == Call::connect) {
      listen_elsewhere();
    } else {
      listen_here();
      if (call() != Call::accept) meet_peer();
    }
    if (fault() == Fault::ring_full || call() == Call::reserve) fill();  // there is always room to reserve in another ring
    if (fault() == Fault::table_full) fill_table();
  }

  void TearDown() override {
    if (can_cut_network()) set_network_up(true);
  }

  void listen_elsewhere() {
    peer_ = std::make_unique<Peer>("listen", any_port());
    to_ = Endpoint::parse(peer_->read_line() + ",link=" + link());
  }

  void listen_here() {
    run(open_listener, Endpoint::parse(any_port()), handles_.data(), locals_.data());
    ASSERT_GE(handles_[0], 0);
    to_ = locals_[0];
    to_.link = parse_link(link());
    socket_ = handles_[0];
  }

  /// A peer process that connects to the listener. One that cannot says so by its end, and nobody waits for its connection.
  std::unique_ptr<Peer> connected_peer() {
    auto peer = std::make_unique<Peer>("connect", to_.host_port() + ",link=" + link());
    if (peer->read_line() != "connected") throw std::runtime_error("the peer process cannot connect to " + to_.host_port() + " on " + link());
    return peer;
  }

  void meet_peer() {
    peer_ = connected_peer();
    run(take_connection, socket_, handles_.data() + 1);
    socket_ = handles_[1];
    ASSERT_GE(socket_, 0);
  }

  void fill() {
    // An emulated card is slow, and so may be the operating system to take what fits its buffers, on a machine that is busy.
    const std::uint64_t while_ns = link() == "p2p" ? kDeadlineNs : 10 * kDeadlineNs;
    run(fill_ring, socket_, data_.data(), while_ns, results_.data());
    ASSERT_EQ(results_[0], -ETIMEDOUT);
  }

  /// All slots of the kind that the call needs are taken.
  void fill_table() {
    if (call() == Call::connect) {
      run(connect_often, to_, handles_.data(), kSockets);
      for (int i = 0; i < kSockets; ++i) ASSERT_GE(handles_[i], 0);
      return;
    }
    for (int i = 0; i < kSockets; ++i) {
      visitors_.push_back(connected_peer());
      run(take_connection, socket_, handles_.data() + 1);
      ASSERT_GE(handles_[1], 0);
    }
    visitors_.push_back(std::make_unique<Peer>("connect", to_.host_port() + ",link=" + link()));
  }

  void break_it() {
    switch (fault()) {
      case Fault::peer_killed:
        if (peer_ != nullptr) peer_->kill_and_wait();
        break;
      case Fault::peer_stopped:
        if (peer_ != nullptr) peer_->stop();
        break;
      case Fault::proxy_stalled: stalled_.emplace(stall(context_)); break;
      case Fault::context_ended: context_.cancel(); break;
      case Fault::link_cut:
      case Fault::link_lost: set_network_up(false); break;
      case Fault::ring_full:
      case Fault::table_full: break;
    }
  }

  /// A connection cannot be broken before it is opened, and opening one is over too soon to break it meanwhile.
  bool breaks_before() const { return call() == Call::connect; }

  Context context_{options()};
  Mapped<Socket> handles_{context_, kSockets + 1};
  Mapped<Endpoint> locals_{context_, 1};
  Mapped<std::int64_t> results_{context_, 1};
  Mapped<Answer> answer_{context_, 1};
  DeviceBuffer<std::uint8_t> data_{context_, kTooManyBytes};
  std::unique_ptr<Peer> peer_;
  std::vector<std::unique_ptr<Peer>> visitors_;
  Endpoint to_;
  Socket socket_ = -1;
  Answers answers_;
  std::optional<std::unique_lock<std::mutex>> stalled_;
};

TEST_P(FaultMatrix, TheCallReturnsWhatIsDocumentedByItsDeadline) {
  const bool late = costs_the_deadline(answers_);
  const std::uint64_t deadline_ns = late ? kDeadlineNs : kPatienceNs;
  if (breaks_before()) break_it();
  launch(context_, {}, ask, context_.net(), Question{call(), to_, socket_, data_.data(), deadline_ns},
         answer_.data());
  while (detail::SystemRef(answer_[0].waiting).load(ringbuf::kAcquire) == 0) sched_yield();
  if (!breaks_before()) break_it();
  context_.synchronize();
  stalled_.reset();
  const std::int64_t result = answer_[0].result;
  EXPECT_TRUE(answers_.contains(result >= 0 && call() == Call::connect ? kSocket : result)) << result;
  if (late) {
    EXPECT_LT(answer_[0].elapsed_ns, deadline_ns + kLateNs);
  } else {
    EXPECT_LT(answer_[0].elapsed_ns, kPatienceNs) << "it was told before";
  }
}

/// Every cell of the table that is not empty.
std::vector<std::tuple<Call, Fault, std::string>> cells() {
  std::vector<std::tuple<Call, Fault, std::string>> all;
  for (int call = 0; call < static_cast<int>(std::size(kCalls)); ++call) {
    for (int fault = 0; fault < static_cast<int>(std::size(kFaults)); ++fault) {
      for (const std::string& link : test_links()) {
        if (expected(Call(call), Fault(fault), link).empty()) continue;
        all.emplace_back(Call(call), Fault(fault), link);
      }
    }
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Cells, FaultMatrix, testing::ValuesIn(cells()), [](const auto& cell) {
  return std::string(kCalls[static_cast<int>(std::get<0>(cell.param))]) + "_" +
         kFaults[static_cast<int>(std::get<1>(cell.param))] + "_" + std::get<2>(cell.param);
});

}  // namespace
}  // namespace gpusock::fault
