// Ring memory that is made with its context and not later.
#include "connected.hpp"

#include <gtest/gtest.h>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace gpusock::test {
namespace {

/// A plain TCP client that has sent one byte.
class PlainClient {
 public:
  PlainClient(const Endpoint& to, char byte) : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(to.port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected = ::connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 &&
                ::send(socket_, &byte, 1, 0) == 1;
  }
  ~PlainClient() { ::close(socket_); }
  PlainClient(const PlainClient&) = delete;
  PlainClient& operator=(const PlainClient&) = delete;

  bool connected;

 private:
  int socket_;
};

/// What the process writes to standard error. gtest's capture must end before it can be read, and what is written until
/// the next one begins is lost.
class StandardError {
 public:
  StandardError() : file_(std::tmpfile()), before_(::dup(STDERR_FILENO)) { ::dup2(::fileno(file_), STDERR_FILENO); }
  ~StandardError() {
    ::dup2(before_, STDERR_FILENO);
    ::close(before_);
    std::fclose(file_);
  }
  StandardError(const StandardError&) = delete;
  StandardError& operator=(const StandardError&) = delete;

  /// All of it so far, up to 64 KiB.
  std::string text() const {
    std::string all(64 << 10, '\0');
    const ssize_t got = ::pread(::fileno(file_), all.data(), all.size(), 0);
    all.resize(got < 0 ? 0 : static_cast<std::size_t>(got));
    return all;
  }

 private:
  std::FILE* file_;
  int before_;
};

TEST(Rings, PlainClientsForWhomThereAreNoneYetWaitTheirTurn) {
  constexpr int kConnections = 2, kClients = 5;
  Options options = Options::from_env();
  options.connections_max = kConnections;
  options.ring_bytes = 4 << 10;
  Context context(options);
  const Net net = context.net();
  const HostListener listener(context, "tcp");
  std::vector<std::unique_ptr<PlainClient>> clients;
  auto standard_error = std::make_optional<StandardError>();
  for (int i = 0; i < kClients; ++i) {
    clients.push_back(std::make_unique<PlainClient>(listener.at, static_cast<char>('a' + i)));
    ASSERT_TRUE(clients.back()->connected);
  }
  std::vector<Socket> sockets{listener.accept(), listener.accept()};
  static int repeats = 0;  // the log counts equal lines of one second instead of writing them
  const bool tells = repeats++ == 0 && std::getenv("GPUSOCK_LOG") == nullptr;
  const auto was_told = [&] {
    return standard_error->text().find("raise Options::connections_max") != std::string::npos;
  };
  const Deadline until = patience();
  do {
    EXPECT_EQ(net.accept(this_thread(), listener.socket, Deadline::after_ns(5'000'000)), -ETIMEDOUT)
        << "all ring memory is in use";
  } while (tells && !was_told() && !until.passed());
  EXPECT_TRUE(was_told() || !tells) << standard_error->text();
  standard_error.reset();
  std::string got;
  for (int i = 0; i < kClients; ++i) {
    char byte = 0;
    EXPECT_EQ(net.recv(this_thread(), sockets[static_cast<std::size_t>(i)], &byte, 1, 0, patience()), 1) << i;
    got += byte;
    net.close(this_thread(), sockets[static_cast<std::size_t>(i)]);
    clients[static_cast<std::size_t>(i)].reset();
    if (i + kConnections < kClients) sockets.push_back(listener.accept());
  }
  EXPECT_EQ(got, "abcde");
}

/// Where rings lie, of the socket of a context's that is on this link.
RingPlaces places_of(const Context& context, LinkKind link) {
  for (const SocketInfo& info : context.sockets()) {
    if (info.link == link && info.state != SocketState::listening) return info.places;
  }
  return {};
}

bool has_connection(const Context& context) {
  const std::vector<SocketInfo> all = context.sockets();
  return std::any_of(all.begin(), all.end(),
                     [](const SocketInfo& info) { return info.state != SocketState::listening; });
}

/// Statuses are the proxy's words: in this shape they are where it can write them by BAR writes.
constexpr RingPlaces all_in(RingPlacement place, RingPlacement status = RingPlacement::device) {
  return {place, place, place, place, place, status};
}

struct Talk {
  Endpoint at;
  std::uint64_t listening = 0;
  std::uint64_t looked = 0;  // the host, while both are connected
  std::uint64_t over = 0;    // the host has seen that both have closed
  std::uint64_t received = 0;
  std::uint64_t sent = 0;
  std::int64_t results[2] = {};
};

__device__ void wait_for_word(std::uint64_t& word, std::uint64_t value) {
  while (detail::SystemRef(word).load(ringbuf::kAcquire) < value) __nanosleep(1000);
}

constexpr int kRounds = 3;

/// Accepts connections one after the other; leaves unread all but 3 bytes of each.
__global__ void accept_kernel(Net net, Endpoint at, Talk* talk) {
  const Socket listener = net.listen(this_thread(), at, 1, patience());
  net.getsockname(listener, talk->at);
  raise(talk->listening);
  for (std::uint64_t round = 1; round <= kRounds; ++round) {
    const Socket socket = net.accept(this_thread(), listener, patience());
    char bytes[3];
    const auto received = net.recv(this_thread(), socket, bytes, 3, kWaitAll, patience());
    if (received == 3 && bytes[2] == static_cast<char>(round)) talk->results[0] += 3;
    detail::SystemRef(talk->received).store(round, ringbuf::kRelease);
    wait_for_word(talk->looked, round);
    net.close(this_thread(), socket);
    wait_for_word(talk->over, round);
  }
}

__global__ void connect_rounds_kernel(Net net, Talk* talk, LinkKind link) {
  wait_for_word(talk->listening, 1);
  for (std::uint64_t round = 1; round <= kRounds; ++round) {
    Endpoint to = talk->at;
    to.link = link;
    const Socket socket = net.connect(this_thread(), to, patience());
    char bytes[100];
    for (char& byte : bytes) byte = static_cast<char>(round);
    talk->results[1] += net.send(this_thread(), socket, bytes, sizeof bytes, kWaitAll, patience());
    detail::SystemRef(talk->sent).store(round, ringbuf::kRelease);
    wait_for_word(talk->looked, round);
    net.close(this_thread(), socket);
    wait_for_word(talk->over, round);
  }
}

/// What two kernels' sockets of two contexts say of their places, on a link, in each of some connections. There is ring
/// memory for one, so all use the same.
void expect_places(LinkKind link, RingPlacement asked, const RingPlaces& expected, int other_gpu = 0,
                   RingPlacement words = RingPlacement::automatic) {
  Options options = Options::from_env();
  options.ring = asked;
  options.words = words;
  options.connections_max = 1;
  options.sockets_max = 8;
  options.ring_bytes = 4 << 10;
  Context accepting(options);
  options.gpu = other_gpu;
  Context connecting(options);
  Mapped<Talk> talk(accepting, 1);
  const Endpoint at = Endpoint::parse("127.0.0.1:0,link=" + std::string(to_string(link)));
  launch(accepting, {}, accept_kernel, accepting.net(), at, talk.data());
  launch(connecting, {}, connect_rounds_kernel, connecting.net(), talk.data(), link);
  for (std::uint64_t round = 1; round <= kRounds; ++round) {
    for (std::uint64_t* word : {&talk[0].received, &talk[0].sent}) {
      while (detail::SystemRef(*word).load(ringbuf::kAcquire) < round) std::this_thread::yield();
    }
    EXPECT_EQ(places_of(accepting, link), expected) << to_string(link) << " " << to_string(asked);
    EXPECT_EQ(places_of(connecting, link), expected) << to_string(link) << " " << to_string(asked);
    for (const SocketInfo& info : accepting.sockets()) {
      if (link == LinkKind::p2p && info.state != SocketState::listening) {
        EXPECT_EQ(info.rx_bytes, 100u);
      }
    }
    detail::SystemRef(talk[0].looked).store(round, ringbuf::kRelease);
    while (has_connection(accepting) || has_connection(connecting)) std::this_thread::yield();
    detail::SystemRef(talk[0].over).store(round, ringbuf::kRelease);
  }
  accepting.synchronize();
  connecting.synchronize();
  EXPECT_EQ(talk[0].results[0], 3 * kRounds);
  EXPECT_EQ(talk[0].results[1], 100 * kRounds);
}

TEST(Rings, BetweenKernelsOfOneGpuBytesAndWordsAreInItsMemory) {
  expect_places(LinkKind::p2p, RingPlacement::automatic, all_in(RingPlacement::device));
  expect_places(LinkKind::p2p, RingPlacement::device, all_in(RingPlacement::device));
  expect_places(LinkKind::p2p, RingPlacement::host, all_in(RingPlacement::host));
}

TEST(Rings, BetweenKernelsOfTwoGpusBytesAndWordsAreInTheMemoryOfBoth) {
  expect_places(LinkKind::p2p, RingPlacement::automatic, all_in(RingPlacement::device), 1);
  expect_places(LinkKind::p2p, RingPlacement::device, all_in(RingPlacement::device), 1);
  expect_places(LinkKind::p2p, RingPlacement::host, all_in(RingPlacement::host), 1);
}

TEST(Rings, AGpuThatIsNotThereIsAnError) {
  Options options = Options::from_env();
  options.gpu = 2;
  EXPECT_THROW(Context{options}, Error);
}

TEST(Rings, OnTcpTheyAreInHostMemoryUnlessTheDevicesIsAskedFor) {
  RingPlaces places = all_in(RingPlacement::host);
  places.tx_consumed = places.rx_committed = RingPlacement::device;  // the proxy's words
  expect_places(LinkKind::tcp, RingPlacement::automatic, places);
  places.bytes = RingPlacement::device;
  expect_places(LinkKind::tcp, RingPlacement::device, places);
}

TEST(Rings, TheProxysWordsAreInHostMemoryIfThatIsAskedFor) {
  constexpr RingPlacement kHost = RingPlacement::host;
  expect_places(LinkKind::tcp, RingPlacement::automatic, all_in(kHost, kHost), 0, kHost);
  expect_places(LinkKind::p2p, RingPlacement::automatic, all_in(RingPlacement::device, kHost), 0, kHost);
}

TEST(Rings, SocketsOfHostThreadsHaveTheirWordsInHostMemory) {
  Context context;
  const HostListener listener(context, "tcp");
  const Socket near = context.net().connect(this_thread(), listener.at, patience());
  const Socket far = listener.accept();
  EXPECT_TRUE(near >= 0 && far >= 0);
  EXPECT_EQ(places_of(context, LinkKind::tcp), all_in(RingPlacement::host, RingPlacement::host));
}

}  // namespace
}  // namespace gpusock::test
