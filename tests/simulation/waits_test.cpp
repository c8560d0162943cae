// How a wait ends: each way to end it, wherever callers poll their words, and however the proxy runs. That a context
// ends and that a deadline passes, callers find out by themselves; a fault and what the peer does, only by the proxy.
#include "tests/simulation/node.hpp"
#include "tests/support/sim/fabric.hpp"
#include "tests/support/sim/planted.hpp"
#include "tests/support/sim/verbs.hpp"

#include <gtest/gtest.h>

#include <arpa/inet.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <ostream>
#include <string>
#include <tuple>
#include <vector>

namespace gpusock::sim {
namespace {

enum class Ending { cancel, fault, peer, deadline };
enum class Words { host, device };
enum class ProxyIs { stalled, slow, dead };
enum class Call { recv, recv_again, peek, send, reserve, poll, set, accept, connect };

template <class T>
struct Named {
  T value;
  const char* name;

  friend std::ostream& operator<<(std::ostream& out, const Named& named) { return out << named.name; }
};
constexpr Named<Ending> kEndings[] = {
    {Ending::cancel, "cancel"}, {Ending::fault, "fault"}, {Ending::peer, "peer"}, {Ending::deadline, "deadline"}};
constexpr Named<Words> kWords[] = {{Words::host, "host"}, {Words::device, "device"}};
constexpr Named<ProxyIs> kProxies[] = {{ProxyIs::stalled, "stalled"}, {ProxyIs::slow, "slow"}, {ProxyIs::dead, "dead"}};
constexpr Named<LinkKind> kLinks[] = {{LinkKind::tcp, "tcp"}, {LinkKind::p2p, "p2p"}};
constexpr Named<Call> kCalls[] = {{Call::recv, "recv"},
                                  {Call::recv_again, "recv, in a loop that never waits"},
                                  {Call::peek, "peek"},
                                  {Call::send, "send"},
                                  {Call::reserve, "reserve"},
                                  {Call::poll, "poll"},
                                  {Call::set, "wait on a poll set"},
                                  {Call::accept, "accept"},
                                  {Call::connect, "connect"}};

constexpr std::uint64_t kMs = 1'000'000;
constexpr std::uint64_t kEndsAfterNs = 10 * kMs;  ///< of the wait's begin
constexpr std::uint64_t kShortNs = 20 * kMs;      ///< the deadline that ends a wait
constexpr std::uint64_t kLongNs = 3'000 * kMs;    ///< the one that ends what nothing else does
constexpr std::uint64_t kStallNs = 1'000 * kMs;   ///< of a stalled proxy
constexpr std::uint64_t kSlowStepsNs = 50 * kMs;  ///< between what a slow proxy does
constexpr std::uint64_t kSlowRunsNs = 5'000;      ///< for so long
constexpr std::uint64_t kLateNs = 5 * kMs;  ///< a caller's last look may lie so long before: it pauses between looks
constexpr std::uint64_t kProxyLateNs = 1'500 * kMs;            ///< what a proxy that is stalled or slow needs at most
constexpr std::uint32_t kSeldom = 4;                           ///< Side::status_turns of kernels
constexpr int kEndIsNotWritten = 47, kEndIsNotLookedFor = 48;  ///< numbers of plant_bugs.py

/// The waiting context, and its peer.
class Waits {
 public:
  Waits(Words words, LinkKind link, std::uint64_t seed)
      : link_(link), schedule_(seed, 5), kernel_(schedule_, Wire{}, 2), fabric_(kernel_), cards_(kernel_) {
    current_schedule = &schedule_;
    current_fabric = &fabric_;
    current_nics = &cards_;
    schedule_.on_switch = [](void* owner) { current_process = static_cast<Process*>(owner); };
    for (std::size_t i = 0; i < 2; ++i) {
      processes_[i] = &kernel_.start_process(kernel_.hosts[link == LinkKind::tcp ? i : 0], std::to_string(i));
      const AsProcess as(processes_[i]);
      NodeOptions options;
      options.secret = "simulated";
      options.device_words = i == 0 && words == Words::device;
      options.status_turns = options.device_words ? kSeldom : 1;
      options.nap_ns = kMs;
      nodes_[i] = std::make_unique<Node>(schedule_, *processes_[i], options);
    }
  }
  ~Waits() {
    for (std::size_t i = 0; i < 2; ++i) {
      schedule_.kill(processes_[i]);
      {
        const AsProcess as(processes_[i]);
        nodes_[i].reset();
      }
      kernel_.end_process(*processes_[i]);
      kernel_.unmap_all(*processes_[i]);
    }
    current_schedule = nullptr;
    current_fabric = nullptr;
    current_nics = nullptr;
  }
  Waits(const Waits&) = delete;
  Waits& operator=(const Waits&) = delete;

  struct Result {
    std::int64_t result = 0;
    std::uint64_t ended_ns = 0;   ///< when the wait was to end
    std::uint64_t passed_ns = 0;  ///< when its deadline passed
    std::uint64_t back_ns = 0;
    std::int64_t next = 0;  ///< what a call returns after that, which does not wait
    bool over = false;
  };

  Result run(Call call, Ending ending, ProxyIs proxy) {
    Result result;
    schedule_.spawn("peer", processes_[1], [this, call, ending] { be_peer(call, ending); });
    schedule_.spawn("waiter", processes_[0], [this, call, ending, proxy, &result] {
      prepare(call);
      hinder(proxy);
      const std::uint64_t begin_ns = schedule_.now_ns();
      result.passed_ns = begin_ns + (ending == Ending::deadline ? kShortNs : kLongNs);
      result.ended_ns = ending == Ending::deadline ? result.passed_ns : begin_ns + kEndsAfterNs;
      schedule_.at(begin_ns + kEndsAfterNs, [this, ending] { end_by(ending); });
      result.result = wait(call, ending, Deadline::after_ns(result.passed_ns - begin_ns));
      result.back_ns = schedule_.now_ns();
      PollEntry entry{socket_, kPollIn, 0};
      result.next = nodes_[0]->net().poll(this_thread(), &entry, 1, Deadline::now());
      result.over = true;
    });
    while (!result.over && schedule_.now_ns() < kGiveUpNs && schedule_.turn()) {
    }
    return result;
  }

 private:
  static constexpr std::uint64_t kGiveUpNs = 60'000 * kMs;
  static constexpr std::uint16_t kWaiterPort = 5001, kPeerPort = 5002, kClosedPort = 5003;

  Endpoint at(std::size_t whose, std::uint16_t port) const {
    Endpoint endpoint;
    endpoint.family = 4;
    const std::uint32_t ip = processes_[whose]->host.ip;
    std::memcpy(endpoint.address, &ip, sizeof ip);
    endpoint.port = port;
    endpoint.link = link_;
    return endpoint;
  }
  const Net& net(std::size_t whose) const { return nodes_[whose]->net(); }
  Socket connect(std::size_t who, std::uint16_t port) const {
    for (;;) {  // until there is a listener
      const Socket socket = net(who).connect(this_thread(), at(1 - who, port), Deadline::never());
      if (socket != -ECONNREFUSED) return socket;
      schedule_.sleep(kMs);
    }
  }

  /// Listens, so that the waiter can connect; with Ending::peer, does what ends its wait.
  void be_peer(Call call, Ending ending) {
    const Socket listener = net(1).listen(this_thread(), at(1, kPeerPort), 4, Deadline::never());
    Socket socket = -1;
    if (call != Call::accept && call != Call::connect) {
      socket = net(1).accept(this_thread(), listener, Deadline::never());
      if (call == Call::recv_again) feed(socket);
    }
    while (!peer_acts_) schedule_.sleep(kMs);
    if (ending != Ending::peer) return;
    if (call == Call::accept) {
      (void)connect(1, kWaiterPort);
    } else if (call == Call::connect) {
      (void)net(1).accept(this_thread(), listener, Deadline::never());
    } else {
      (void)net(1).close(this_thread(), socket);
    }
  }

  /// Sends on, so that the waiter never waits.
  void feed(Socket socket) {
    static constexpr std::byte kBytes[512] = {};
    while (!peer_acts_) {
      if (net(1).send(this_thread(), socket, kBytes, sizeof kBytes, 0, Deadline::after_ns(kMs)) < -ETIMEDOUT) return;
    }
  }

  /// All that the proxy has to do before the wait.
  void prepare(Call call) {
    schedule_.sleep(kMs);  // the proxy's BAR writes arrive: there are sockets
    if (call == Call::connect) return;
    if (call == Call::accept) {
      socket_ = net(0).listen(this_thread(), at(0, kWaiterPort), 4, Deadline::never());
      return;
    }
    socket_ = connect(0, kPeerPort);
    if (call != Call::set) return;
    set_ = net(0).open_set(this_thread());
    (void)net(0).watch(this_thread(), set_, socket_, kPollIn);
    schedule_.sleep(5 * kMs);  // the proxy hears of it
  }

  void hinder(ProxyIs proxy) {
    Node& node = *nodes_[0];
    node.stall_until(proxy == ProxyIs::dead ? Schedule::kNever : schedule_.now_ns() + kStallNs);
    if (proxy == ProxyIs::slow) let_run(schedule_.now_ns());
  }
  /// It runs for a moment, and stands still again.
  void let_run(std::uint64_t last_ns) {
    Node& node = *nodes_[0];
    node.stall_until(last_ns + kSlowStepsNs);
    schedule_.wake(node.server());
    schedule_.at(last_ns + kSlowStepsNs + kSlowRunsNs, [this] { let_run(schedule_.now_ns()); });
  }

  void end_by(Ending ending) {
    peer_acts_ = true;
    if (ending == Ending::cancel) nodes_[0]->cancel();
    if (ending != Ending::fault) return;
    for (const auto& socket : kernel_.connected()) socket->break_off(true);
  }

  std::int64_t wait(Call call, Ending ending, Deadline deadline) {
    const Net& own = net(0);
    std::byte bytes[4096] = {};
    std::int64_t result = 0;
    Span span;
    switch (call) {
      case Call::recv:
        return own.recv(this_thread(), socket_, bytes, sizeof bytes, 0, deadline);
      case Call::recv_again:
        do result = own.recv(this_thread(), socket_, bytes, 64, 0, deadline);
        while (result > 0);
        return result;
      case Call::peek:
        return own.peek(this_thread(), socket_, 1, deadline).size;
      case Call::send:
        do result = own.send(this_thread(), socket_, bytes, sizeof bytes, 0, deadline);
        while (result > 0);
        return result;
      case Call::reserve:
        do {
          span = own.reserve(this_thread(), socket_, sizeof bytes, deadline);
          if (span.size > 0) result = own.commit(this_thread(), socket_, static_cast<std::size_t>(span.size));
        } while (span.size > 0 && result == 0);
        return result != 0 ? result : span.size;
      case Call::poll: {
        PollEntry entry{socket_, kPollIn, 0};
        return own.poll(this_thread(), &entry, 1, deadline);
      }
      case Call::set: {
        PollEvent event;
        return own.wait(this_thread(), set_, &event, 1, deadline);
      }
      case Call::accept:
        return own.accept(this_thread(), socket_, deadline);
      case Call::connect:
        if (ending == Ending::peer) return own.connect(this_thread(), at(1, kPeerPort), deadline);
        if (ending == Ending::fault) return own.connect(this_thread(), at(1, kClosedPort), deadline);
        kernel_.part_until(Schedule::kNever);  // nobody answers
        return own.connect(this_thread(), at(1, kPeerPort), deadline);
    }
    return 0;
  }

  LinkKind link_;
  mutable Schedule schedule_;
  Kernel kernel_;
  Fabric fabric_;
  Nics cards_;
  std::array<Process*, 2> processes_{};
  std::array<std::unique_ptr<Node>, 2> nodes_;
  Socket socket_ = -1;
  PollSet set_ = -1;
  bool peer_acts_ = false;
};

using Cell = std::tuple<Named<Words>, Named<ProxyIs>, Named<Ending>>;

class WaitsTest : public testing::TestWithParam<Cell> {};

/// True if that way ends that call at all, and has not ended it before it began to wait.
bool is_possible(Call call, Ending ending, LinkKind link, ProxyIs proxy) {
  if (call == Call::accept && ending == Ending::fault) return false;  // a listener has no connection
  // On one host somebody always answers: a proxy that goes on connects.
  const bool parted = ending == Ending::cancel || ending == Ending::deadline;
  if (call == Call::connect && parted && link == LinkKind::p2p) return proxy == ProxyIs::dead;
  // Bytes that the proxy brings run out with it.
  return call != Call::recv_again || link == LinkKind::p2p;
}

TEST_P(WaitsTest, End) {
  const auto& [words, proxy, ending] = GetParam();
  const bool by_itself = ending.value == Ending::cancel || ending.value == Ending::deadline;
  std::uint64_t seed = 0;
  for (const auto& link : kLinks) {
    for (const auto& call : kCalls) {
      if (!is_possible(call.value, ending.value, link.value, proxy.value)) continue;
      for (int again = 0; again < 2; ++again) {
        SCOPED_TRACE(std::string(call.name) + ", " + link.name + ", seed " + std::to_string(++seed));
        Waits waits(words.value, link.value, seed);
        const Waits::Result got = waits.run(call.value, ending.value, proxy.value);
        ASSERT_TRUE(got.over) << "the call never returns";
        if (ending.value == Ending::cancel) {
          EXPECT_EQ(got.result, -ECANCELED);
          EXPECT_EQ(got.next, -ECANCELED);
        } else if (ending.value == Ending::deadline || proxy.value == ProxyIs::dead) {
          const bool polls = call.value == Call::poll || call.value == Call::set;
          EXPECT_EQ(got.result, polls ? 0 : -ETIMEDOUT);
          EXPECT_GE(got.back_ns, got.passed_ns);
        } else {
          EXPECT_NE(got.result, -ETIMEDOUT);
          EXPECT_NE(got.result, -ECANCELED);
        }
        const std::uint64_t late_ns = by_itself || proxy.value == ProxyIs::dead ? kLateNs : kProxyLateNs;
        const std::uint64_t due_ns = !by_itself && proxy.value == ProxyIs::dead ? got.passed_ns : got.ended_ns;
        EXPECT_LE(got.back_ns, due_ns + late_ns) << "returned " << got.result;
      }
    }
  }
}

/// That only the proxy tells kernels of the end, or that nobody looks for it: both would be found.
TEST(WaitsTest, FindTheBugs) {
  for (const int bug : {kEndIsNotWritten, kEndIsNotLookedFor}) {
    plant(bug);
    for (const auto& call : kCalls) {
      if (call.value == Call::poll || call.value == Call::set) continue;  // they look at the word of the end anyway
      SCOPED_TRACE(call.name);
      Waits waits(Words::device, LinkKind::p2p, 1);
      const Waits::Result got = waits.run(call.value, Ending::cancel, ProxyIs::dead);
      EXPECT_TRUE(!got.over || got.result != -ECANCELED || got.back_ns > got.ended_ns + kLateNs);
    }
    plant(0);
  }
}

INSTANTIATE_TEST_SUITE_P(Matrix, WaitsTest,
                         testing::Combine(testing::ValuesIn(kWords), testing::ValuesIn(kProxies),
                                          testing::ValuesIn(kEndings)),
                         [](const testing::TestParamInfo<Cell>& cell) {
                           return std::string(std::get<0>(cell.param).name) + "_" + std::get<1>(cell.param).name + "_" +
                                  std::get<2>(cell.param).name;
                         });

}  // namespace
}  // namespace gpusock::sim
