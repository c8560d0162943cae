// For each call that waits, and each thing that can go wrong meanwhile: what it returns, and that it returns in time.
// docs/semantics.md has the same table. Each call has a context of its own; the calls that meet one fault on one link
// do so at the same time, with one process that connects to them and one that listens.
#include "full_ring.hpp"
#include "network.hpp"
#include "peer.hpp"
#include "stall.hpp"

#include "tests/support/device_kind.hpp"
#include "tests/support/patience.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <future>
#include <memory>
#include <optional>
#include <ostream>
#include <set>
#include <string>
#include <tuple>
#include <vector>

namespace gpusock::fault {
namespace {

enum class Call { connect, accept, send, reserve, recv, recv_all, peek, poll };
enum class Fault {
  peer_killed,
  peer_stopped,
  proxy_stalled,
  context_ended,
  context_ended_stalled,
  link_cut,
  link_lost,
  ring_full,
  table_full
};

constexpr const char* kCalls[] = {"connect", "accept", "send", "reserve", "recv", "recv_all", "peek", "poll"};
constexpr const char* kFaults[] = {
    "peer_killed", "peer_stopped", "proxy_stalled", "context_ended", "context_ended_stalled",
    "link_cut",    "link_lost",    "ring_full",     "table_full"};

void PrintTo(Fault fault, std::ostream* out) { *out << kFaults[static_cast<int>(fault)]; }

/// Deadline of a call that nothing ends before: what is to go wrong meanwhile happens in less.
constexpr std::uint64_t kDeadlineNs = 100'000'000;
/// Deadline of a connect into a network that was cut, on a link that a NIC carries. Where the NIC is emulated, connect
/// may need more than kDeadlineNs in a network that works. With that deadline, a network that was not cut would not be
/// noticed.
constexpr std::uint64_t kConnectNs = 1'000'000'000;
/// A tcp connection is full once nothing more went for so long. The system may take its time on a busy machine.
constexpr std::uint64_t kQuietNs = 300'000'000;
/// More than rings and the operating system's buffers hold.
constexpr std::uint64_t kTooManyBytes = 16 << 20;

/// What a call may return. Several where what the operating system says depends on what it was doing.
using Answers = std::set<std::int64_t>;
/// Stands for any handle.
constexpr std::int64_t kSocket = 1'000'000'000;

/// GPUSOCK_TEST_LINK names a link that is tested alone; GPUSOCK_TEST_HOST where.
std::string test_host() {
  const char* host = std::getenv("GPUSOCK_TEST_HOST");
  return host == nullptr ? "127.0.0.1" : host;
}
std::string any_port(const std::string& link) { return test_host() + ":0,link=" + link; }
std::vector<std::string> test_links() {
  const char* link = std::getenv("GPUSOCK_TEST_LINK");
  return link == nullptr ? std::vector<std::string>{"tcp", "p2p"} : std::vector<std::string>{link};
}

/// The table: empty where the two have nothing to do with each other.
Answers expected(Call call, Fault fault, const std::string& link) {
  const bool p2p = link != "tcp";  // what is said of p2p holds for all links between gpusock peers
  const bool opens = call == Call::connect;
  switch (fault) {
    case Fault::context_ended:
    case Fault::context_ended_stalled:  // nobody needs the proxy to see it
      return {-ECANCELED};
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
    case Fault::link_lost:  // cut for longer than a NIC tries again; tcp does so for a quarter of an hour
      return call == Call::send && has_nic(link) ? Answers{-ECONNRESET} : Answers{};
    case Fault::link_cut:
      if (call == Call::send && has_nic(link)) return {-ETIMEDOUT, -ECONNRESET};  // the NIC may know at once
      return call == Call::poll ? Answers{0} : Answers{-ETIMEDOUT};
    case Fault::peer_stopped:
      if (opens && !p2p) return {kSocket};  // on plain TCP the operating system connects for it
      [[fallthrough]];
    case Fault::proxy_stalled:
      return call == Call::poll ? Answers{0} : Answers{-ETIMEDOUT};
  }
  return {};
}

bool cuts_network(Fault fault) { return fault == Fault::link_cut || fault == Fault::link_lost; }

/// The calls whose cell in this column is not empty.
std::vector<Call> calls_with(Fault fault, const std::string& link) {
  std::vector<Call> calls;
  for (int call = 0; call < static_cast<int>(std::size(kCalls)); ++call) {
    if (!expected(Call(call), fault, link).empty()) calls.push_back(Call(call));
  }
  return calls;
}

/// True if the caller knows only by the deadline.
bool costs_the_deadline(const Answers& answers) { return answers.contains(-ETIMEDOUT) || answers == Answers{0}; }

struct Question {
  Call call;
  Endpoint to;
  Socket socket;       ///< a listener for accept
  std::uint8_t* data;  ///< kTooManyBytes for send
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
    case Call::connect:
      answer->result = net.connect(self, question.to, deadline);
      break;
    case Call::accept:
      answer->result = net.accept(self, question.socket, deadline);
      break;
    case Call::send:
      answer->result = net.send(self, question.socket, question.data, kTooManyBytes, kWaitAll, deadline);
      break;
    case Call::reserve:
      answer->result = net.reserve(self, question.socket, 100, deadline).size;
      break;
    case Call::peek:
      answer->result = net.peek(self, question.socket, 100, deadline).size;
      break;
    case Call::recv:
      answer->result = net.recv(self, question.socket, question.data, 100, 0, deadline);
      break;
    case Call::recv_all:
      answer->result = net.recv(self, question.socket, question.data, 100, kWaitAll, deadline);
      break;
    case Call::poll:
      answer->result = net.poll(self, &entry, 1, deadline);
      break;
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

__global__ void fill_ring(Net net, Socket socket, std::uint8_t* data, std::uint64_t capacity, std::int64_t* result) {
  *result = fill(net, socket, data, capacity, kQuietNs);
}

__global__ void connect_often(Net net, Endpoint to, Socket* sockets, int count) {
  for (int i = 0; i < count; ++i) sockets[i] = net.connect(this_thread(), to, patience());
}

/// One cell of the table: a call in a context of its own. It shares the peers with other cells.
class Cell {
 public:
  Cell(Call call, Fault fault, std::string link, const Peer& connecting_peer)
      : call_(call),
        fault_(fault),
        link_(std::move(link)),
        answers_(expected(call, fault, link_)),
        connecting_peer_(connecting_peer) {}

  Call call() const { return call_; }
  /// A connection cannot be broken before it is opened, and opening one is over too soon to break it meanwhile.
  bool breaks_before() const { return call_ == Call::connect; }

  /// Makes all that the call needs. `listening`: where the other peer does so.
  void prepare(const Endpoint& listening) {
    if (call_ == Call::connect) {
      to_ = listening;
    } else {
      listen_here();
      if (call_ != Call::accept) meet_peer();
    }
    // There is always room to reserve in another ring.
    if (fault_ == Fault::ring_full || call_ == Call::reserve) fill();
    if (fault_ == Fault::table_full) fill_table();
  }

  /// Returns when the call is about to be made.
  void ask() {
    const Question question{call_, to_, socket_, data_.data(), deadline_ns()};
    launch(context_, {}, gpusock::fault::ask, context_.net(), question, answer_.data());
    while (detail::SystemRef(answer_[0].waiting).load(ringbuf::kAcquire) == 0) sched_yield();
  }

  /// Does what concerns this context alone.
  void break_it() {
    const bool stalls = fault_ == Fault::proxy_stalled || fault_ == Fault::context_ended_stalled;
    if (stalls) stalled_.emplace(stall(context_));
    if (fault_ == Fault::context_ended || fault_ == Fault::context_ended_stalled) context_.cancel();
  }

  void check() {
    context_.synchronize();
    stalled_.reset();
    const std::int64_t result = answer_[0].result;
    EXPECT_TRUE(answers_.contains(result >= 0 && call_ == Call::connect ? kSocket : result)) << result;
    if (costs_the_deadline(answers_)) {
      EXPECT_LT(answer_[0].elapsed_ns, kDeadlineNs + kPatienceNs);
    } else {
      EXPECT_LT(answer_[0].elapsed_ns, kPatienceNs) << "it was told before";
    }
  }

 private:
  static constexpr int kSockets = 4;

  static Options options() {
    Options options = Options::from_env();
    options.sockets_max = kSockets;
    options.ring_bytes = kRingBytes;
    options.handshake_timeout_ns = kPatienceNs;
    options.connections_max = 2 * kSockets;
    return options;
  }

  std::uint64_t deadline_ns() const {
    if (!costs_the_deadline(answers_)) return kPatienceNs;
    return call_ == Call::connect && cuts_network(fault_) && has_nic(link_) ? kConnectNs : kDeadlineNs;
  }

  template <class... Arguments>
  void run(void (*kernel)(Net, Arguments...), std::type_identity_t<Arguments>... arguments) {
    launch(context_, {}, kernel, context_.net(), arguments...);
    context_.synchronize();
  }

  void listen_here() {
    run(open_listener, Endpoint::parse(any_port(link_)), handles_.data(), locals_.data());
    ASSERT_GE(handles_[0], 0);
    to_ = locals_[0];
    to_.link = parse_link(link_);
    socket_ = handles_[0];
  }

  void let_peer_connect() {
    const char name = static_cast<char>('a' + static_cast<int>(call_));
    // A NIC gives up what it has sent. With room for so much it is still sending when the network is lost.
    const std::string ring = fault_ == Fault::link_lost ? ",ring=4M" : ring_option();
    connecting_peer_.say(std::string("connect ") + name + " " + to_.host_port() + ",link=" + link_ + ring);
  }

  void meet_peer() {
    let_peer_connect();
    run(take_connection, socket_, handles_.data() + 1);
    socket_ = handles_[1];
    ASSERT_GE(socket_, 0);
  }

  void fill() {
    run(fill_ring, socket_, data_.data(), capacity_of(link_), results_.data());
    ASSERT_EQ(results_[0], 0);
  }

  /// All slots of the kind that the call needs are taken.
  void fill_table() {
    if (call_ == Call::connect) {
      run(connect_often, to_, handles_.data(), kSockets);
      for (int i = 0; i < kSockets; ++i) ASSERT_GE(handles_[i], 0);
      return;
    }
    for (int i = 0; i < kSockets; ++i) {
      let_peer_connect();
      run(take_connection, socket_, handles_.data() + 1);
      ASSERT_GE(handles_[1], 0);
    }
    let_peer_connect();
  }

  Call call_;
  Fault fault_;
  std::string link_;
  Answers answers_;
  const Peer& connecting_peer_;
  Context context_{options()};
  Mapped<Socket> handles_{context_, kSockets + 1};
  Mapped<Endpoint> locals_{context_, 1};
  Mapped<std::int64_t> results_{context_, 1};
  Mapped<Answer> answer_{context_, 1};
  DeviceBuffer<std::uint8_t> data_{context_, call_ == Call::send ? kTooManyBytes : kRingBytes};
  Endpoint to_;
  Socket socket_ = -1;
  std::optional<std::unique_lock<std::mutex>> stalled_;
};

/// Cells of one column, and their peers.
class Batch {
 public:
  Batch(const std::vector<Call>& calls, Fault fault, const std::string& link)
      : fault_(fault), link_(link), connecting_peer_("gpusock", "-"), listening_peer_("listen", any_port(link)) {
    for (const Call call : calls) cells_.push_back(std::make_unique<Cell>(call, fault, link, connecting_peer_));
  }

  void prepare() {
    const Endpoint listening = Endpoint::parse(listening_peer_.read_line() + ",link=" + link_);
    std::vector<std::future<void>> prepared;
    for (auto& cell : cells_) {
      prepared.push_back(std::async(std::launch::async, [&cell, &listening] {
        const testing::ScopedTrace which(__FILE__, __LINE__, kCalls[static_cast<int>(cell->call())]);
        cell->prepare(listening);
      }));
    }
    for (auto& each : prepared) each.get();
  }

  void ask_those_that(bool break_before) {
    for (auto& cell : cells_) {
      if (cell->breaks_before() == break_before) cell->ask();
    }
  }

  void break_it() {
    for (Peer* peer : {&connecting_peer_, &listening_peer_}) {
      if (fault_ == Fault::peer_killed) peer->kill_and_wait();
      if (fault_ == Fault::peer_stopped) peer->stop();
    }
    if (cuts_network(fault_)) set_network_up(false);
    for (auto& cell : cells_) cell->break_it();
  }

  void check() {
    for (auto& cell : cells_) {
      SCOPED_TRACE(kCalls[static_cast<int>(cell->call())]);
      cell->check();
    }
  }

  /// Gives the network back, if it was taken away. Call it before the contexts end: without a network each of them
  /// waits for its peers, one after the other, and soft-RoCE of Linux 6.1 may then open no connection any more.
  void mend_it() const {
    if (cuts_network(fault_)) set_network_up(true);
  }

 private:
  Fault fault_;
  std::string link_;
  std::vector<std::unique_ptr<Cell>> cells_;
  Peer connecting_peer_, listening_peer_;
};

/// The calls that are made at the same time: all; on a GPU one, since its few queues do not hold the kernels of so many
/// contexts.
std::vector<std::vector<Call>> batches_of(const std::vector<Call>& calls) {
  if (!test::like_a_gpu()) return {calls};
  std::vector<std::vector<Call>> batches;
  for (const Call call : calls) batches.push_back({call});
  return batches;
}

class FaultMatrix : public testing::TestWithParam<std::tuple<Fault, std::string>> {
 protected:
  void TearDown() override {
    if (can_cut_network()) set_network_up(true);
  }
};

TEST_P(FaultMatrix, EachCallReturnsWhatIsDocumentedByItsDeadline) {
  const auto& [fault, link] = GetParam();
  if (cuts_network(fault) && !can_cut_network()) GTEST_SKIP() << "this process may not have a network of its own";
  if (link == "p2p" && !test::shares_between_processes()) GTEST_SKIP() << "kernels reach no other process's memory";
  for (const std::vector<Call>& calls : batches_of(calls_with(fault, link))) {
    if (can_cut_network()) set_network_up(true);
    Batch batch(calls, fault, link);
    batch.prepare();
    if (HasFatalFailure()) return;  // of any thread
    batch.ask_those_that(false);
    batch.break_it();
    batch.ask_those_that(true);
    batch.check();
    batch.mend_it();
  }
}

/// Every column of the table, on every link, that is not empty.
std::vector<std::tuple<Fault, std::string>> batches() {
  std::vector<std::tuple<Fault, std::string>> all;
  for (int fault = 0; fault < static_cast<int>(std::size(kFaults)); ++fault) {
    for (const std::string& link : test_links()) {
      if (!calls_with(Fault(fault), link).empty()) all.emplace_back(Fault(fault), link);
    }
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Batches, FaultMatrix, testing::ValuesIn(batches()), [](const auto& batch) {
  return std::string(kFaults[static_cast<int>(std::get<0>(batch.param))]) + "_" + std::get<1>(batch.param);
});

}  // namespace
}  // namespace gpusock::fault
