// What holds over many sockets, many connections and all ring sizes: nothing leaks, nothing is mixed up, nothing waits
// for ever.
#include "tests/conformance/party.cuh"
#include "tests/support/device_kind.hpp"

#include <dirent.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <memory>
#include <thread>
#include <tuple>
#include <vector>

namespace gpusock::conformance::endurance {
namespace {

// A GPU's ring memory is set up with its context, so no ring is larger than the context's.
std::uint64_t context_ring() { return test::like_a_gpu() ? 1 << 20 : 4 << 10; }
std::vector<const char*> rings() {
  return test::like_a_gpu() ? std::vector{"4K", "32K", "1M"} : std::vector{"4K", "32K", "1M", "64M"};
}

Options endurance_options(std::uint32_t sockets_max) {
  Options options;
  options.ring_bytes = context_ring();
  options.sockets_max = sockets_max;
  options.connections_max = 16;
  return options;
}

std::size_t open_descriptors() {
  std::size_t count = 0;
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(opendir("/proc/self/fd"), closedir);
  while (readdir(folder.get()) != nullptr) ++count;
  return count;
}

std::size_t mappings() {
  std::ifstream maps("/proc/self/maps");
  return static_cast<std::size_t>(std::count(std::istreambuf_iterator<char>(maps), {}, '\n'));
}

class Endurance : public testing::TestWithParam<const char*> {
 protected:
  void open(std::uint32_t sockets_max) {
    context_ = std::make_unique<Context>(endurance_options(sockets_max));
    net_ = context_->net();
    listen("");
  }
  void listen(const std::string& options) {
    const auto at = Endpoint::parse("127.0.0.1:0,link=" + name_of(parse_link(GetParam())) + options);
    listener_ = net_.listen(this_thread(), at, 64, patience());
    ASSERT_GE(listener_, 0);
    ASSERT_EQ(net_.getsockname(listener_, where_), 0);
  }

  /// Connects; a closed socket's slot comes back a moment later.
  Socket connect() {
    const std::uint64_t until_ns = clock_ns() + kPatienceNs;
    Socket socket = -EMFILE;
    while (socket == -EMFILE && clock_ns() < until_ns) {
      socket = net_.connect(this_thread(), where_, patience());
      if (socket == -EMFILE) pause();
    }
    return socket;
  }
  std::pair<Socket, Socket> connect_pair() {
    const Socket near = connect();
    return {near, near < 0 ? near : net_.accept(this_thread(), listener_, patience())};
  }

  std::unique_ptr<Context> context_;
  Net net_;
  Socket listener_ = -1;
  Endpoint where_;
};

TEST_P(Endurance, NoCallReturnsBeforeItsDeadlineOrMuchLater) {
  open(8);
  const auto [near, far] = connect_pair();
  char byte = 0;
  std::vector<char> much(8 << 20);
  PollEntry entry;
  while (net_.send(this_thread(), far, much.data(), much.size(), 0, Deadline::after_ns(20'000'000)) > 0) {
  }  // Rings and the operating system's buffers are nearly full; the system may still make some room.
  const Socket socket = far;
  const std::pair<const char*, std::function<std::int64_t(Deadline)>> calls[] = {
      {"accept", [&](Deadline until) { return net_.accept(this_thread(), listener_, until); }},
      {"recv", [&](Deadline until) { return net_.recv(this_thread(), socket, &byte, 1, 0, until); }},
      {"recv all", [&](Deadline until) { return net_.recv(this_thread(), socket, &byte, 1, kWaitAll, until); }},
      {"peek", [&](Deadline until) { return net_.peek(this_thread(), socket, 1, until).size; }},
      {"send all",
       [&](Deadline until) {
         const auto sent = net_.send(this_thread(), socket, much.data(), much.size(), kWaitAll, until);
         return sent > 0 ? -ETIMEDOUT : sent;  // room that the system made meanwhile; the call waited for more
       }},
      {"poll",
       [&](Deadline until) {
         return net_.poll(this_thread(), &(entry = {socket, kPollIn, 0}), 1, until) - ETIMEDOUT;
       }},
  };
  for (const auto& [name, call] : calls) {
    constexpr std::uint64_t kWaitNs = 3'000'000;
    const std::uint64_t start_ns = clock_ns();
    EXPECT_EQ(call(Deadline::after_ns(kWaitNs)), -ETIMEDOUT) << name;
    const std::uint64_t took_ns = clock_ns() - start_ns;
    EXPECT_GE(took_ns, kWaitNs) << name;
    EXPECT_LT(took_ns, kPatienceNs) << name;
  }
}

TEST_P(Endurance, ThousandsOfConnectionsLeaveNothingBehind) {
  const int rounds = scaled(3000, 150);
  open(8);
  std::vector<char> bytes(100, 'x');
  std::size_t descriptors = 0, maps = 0;
  const auto run = [&](int count) {
    for (int round = 0; round < count; ++round) {
      const auto [near, far] = connect_pair();
      ASSERT_GE(near, 0) << "round " << round;
      ASSERT_GE(far, 0) << "round " << round;
      ASSERT_EQ(net_.send(this_thread(), near, &round, sizeof round, 0, patience()), 4);
      int got = -1;
      ASSERT_EQ(net_.recv(this_thread(), far, &got, sizeof got, kWaitAll, patience()), 4);
      ASSERT_EQ(got, round) << "a byte of another connection";
      if (round % 3 == 0) net_.send(this_thread(), far, bytes.data(), bytes.size());  // left unread
      ASSERT_EQ(net_.close(this_thread(), round % 2 == 0 ? near : far), 0);
      ASSERT_EQ(net_.close(this_thread(), round % 2 == 0 ? far : near), 0);
    }
  };
  // What is left once the last connections are gone, which takes the proxy a moment (ring memory goes a second later).
  const auto settle = [&](std::size_t descriptors_max, std::size_t maps_max) {
    const std::uint64_t until_ns = clock_ns() + kPatienceNs;
    do {
      pause();
      descriptors = open_descriptors();
      maps = mappings();
    } while ((descriptors > descriptors_max || maps > maps_max) && clock_ns() < until_ns);
  };
  run(1);  // a link's first connection opens what the context keeps (RDMA devices)
  const std::size_t descriptors_before = open_descriptors(), maps_before = mappings();
  run(rounds);
  settle(descriptors_before, maps_before + 64);
  EXPECT_LE(descriptors, descriptors_before);
  EXPECT_LE(maps, maps_before + 64) << "after " << rounds << " connections";
}

TEST_P(Endurance, AnAddressIsTheSocketsOwnAlsoWhileItIsClosedAndItsSlotIsAnothers) {
  open(3);                                   // the listener and one connection: the next one has the same slots
  std::atomic<std::uint64_t> asked_for = 0;  // the handle and its port, both of one connection; 0: the end
  std::atomic<std::uint64_t> turns = 0;      // of the asker; relaxed: only its calls may order what it reads
  int strangers = 0;
  const auto pack = [](Socket socket, std::uint16_t port) { return static_cast<std::uint64_t>(socket) << 16 | port; };
  const auto [first, its_peer] = connect_pair();
  Endpoint at;
  ASSERT_EQ(net_.getsockname(first, at), 0);
  asked_for = pack(first, at.port);
  std::thread asker([&] {
    for (std::uint64_t about = 0; (about = asked_for) != 0; turns.fetch_add(1, std::memory_order_relaxed)) {
      const auto socket = static_cast<Socket>(about >> 16);
      Endpoint local, peer;
      const int has_local = net_.getsockname(socket, local), has_peer = net_.getpeername(socket, peer);
      strangers += has_local == 0 ? local.port != (about & 0xffff) : has_local != -EBADF;
      strangers += has_peer == 0 ? peer.port != where_.port : has_peer != -EBADF;
    }
  });
  Socket near = first, far = its_peer;
  for (int round = 0; round < scaled(300, 50) && near >= 0 && far >= 0; ++round) {
    const std::uint64_t until_ns = clock_ns() + kPatienceNs, turn = turns.load(std::memory_order_relaxed);
    while (turns.load(std::memory_order_relaxed) < turn + 2 && clock_ns() < until_ns) pause();
    EXPECT_EQ(net_.close(this_thread(), near), 0);  // while it is asked about
    EXPECT_EQ(net_.close(this_thread(), far), 0);
    std::tie(near, far) = connect_pair();
    EXPECT_EQ(net_.getsockname(near, at), 0) << "round " << round;
    asked_for = pack(near, at.port);
  }
  asked_for = 0;
  asker.join();
  EXPECT_EQ(strangers, 0);
}

TEST_P(Endurance, BothSidesMayCloseAtTheSameTime) {
  open(4);
  for (int round = 0; round < scaled(300, 50); ++round) {
    const auto [near, far] = connect_pair();
    ASSERT_GE(near, 0);
    ASSERT_GE(far, 0) << "round " << round;
    ASSERT_EQ(net_.send(this_thread(), near, "x", 1, 0, patience()), 1);
    std::atomic<int> ready{0};
    const auto close = [&](Socket socket) {
      ready.fetch_add(1);
      while (ready.load() < 2) std::this_thread::yield();
      EXPECT_EQ(net_.close(this_thread(), socket), 0);
    };
    std::thread other([&, socket = far] { close(socket); });
    close(near);
    other.join();
    EXPECT_EQ(net_.close(this_thread(), near), -EBADF);
  }
}

TEST_P(Endurance, AStreamFitsThroughEveryRing) {
  open(8);
  for (const char* ring : rings()) {
    net_.close(this_thread(), listener_);
    listen(",ring=" + std::string(ring));
    Endpoint with_ring = Endpoint::parse("127.0.0.1:0,link=" + name_of(parse_link(GetParam())) + ",ring=" + ring);
    with_ring.port = where_.port;
    where_ = with_ring;
    const auto [near, far] = connect_pair();
    ASSERT_GE(near, 0);
    ASSERT_GE(far, 0);
    const std::uint64_t total = std::max<std::uint64_t>(1 << 20, with_ring.ring_bytes / 4 * 5);
    std::vector<std::uint8_t> piece(100'003);
    for (std::uint64_t i = 0; i < piece.size(); ++i) piece[i] = byte_at(i);
    std::thread sender([&, socket = near] {
      for (std::uint64_t sent = 0; sent < total;) {
        const std::uint64_t start = sent % piece.size();
        const auto result = net_.send(this_thread(), socket, piece.data() + start,
                                      std::min(total - sent, piece.size() - start), 0, patience());
        ASSERT_GT(result, 0);
        sent += static_cast<std::uint64_t>(result);
      }
      EXPECT_EQ(net_.close(this_thread(), socket), 0);
    });
    std::vector<std::uint8_t> got(77'777);
    std::uint64_t received = 0, wrong = 0;
    std::int64_t result = 0;
    while ((result = net_.recv(this_thread(), far, got.data(), got.size(), 0, patience())) > 0) {
      for (std::int64_t done = 0; done < result;) {
        const std::uint64_t start = (received + static_cast<std::uint64_t>(done)) % piece.size();
        const std::int64_t part = std::min<std::int64_t>(result - done,
                                                         static_cast<std::int64_t>(piece.size() - start));
        wrong += std::memcmp(got.data() + done, piece.data() + start, static_cast<std::size_t>(part)) != 0;
        done += part;
      }
      received += static_cast<std::uint64_t>(result);
    }
    sender.join();
    EXPECT_EQ(result, 0) << ring;
    EXPECT_EQ(received, total) << ring;
    EXPECT_EQ(wrong, 0u) << ring;
    net_.close(this_thread(), far);
  }
}

/// Accepts until the listener is closed; answers each visitor's byte.
__global__ void answer_each(Net net, Socket listener, std::int64_t* served) {
  const auto block = this_block();
  __shared__ char byte[1];
  for (;;) {
    const Socket peer = net.accept(block, listener, patience());
    if (peer < 0) return;
    if (net.recv(block, peer, byte, 1, kWaitAll, patience()) == 1) net.send(block, peer, byte, 1, kWaitAll, patience());
    if (threadIdx.x == 0) ++served[blockIdx.x];
    net.close(block, peer);
  }
}

__global__ void listen_for_others(Net net, Endpoint at, Socket* listener, Endpoint* where) {
  *listener = net.listen(this_thread(), at, 8, patience());
  net.getsockname(*listener, *where);
}

__global__ void close_for_others(Net net, Socket socket) { net.close(this_thread(), socket); }

TEST_P(Endurance, AStormOfVisitorsIsServedByManyBlocks) {
  constexpr int kBlocks = 3, kVisitors = 4;
  const int each = scaled(150, 20);
  Context server(endurance_options(64)), visitors(endurance_options(64));
  Mapped<Socket> listener(server, 1);
  Mapped<Endpoint> where(server, 1);
  Mapped<std::int64_t> served(server, kBlocks);
  const auto at = Endpoint::parse("127.0.0.1:0,link=" + name_of(parse_link(GetParam())));
  launch(server, {.grid = 1, .block = 1}, listen_for_others, server.net(), at, listener.data(), where.data());
  server.synchronize();
  ASSERT_GE(listener[0], 0);
  Stream serving(server);
  launch(server, {.grid = kBlocks, .block = 64, .shared_bytes = 0, .stream = &serving}, answer_each, server.net(),
         listener[0], served.data());
  std::atomic<int> answered{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < kVisitors; ++i) {
    threads.emplace_back([&, i] {
      const Net net = visitors.net();
      for (int visit = 0; visit < each; ++visit) {
        const char mine = static_cast<char>(7 * i + visit);
        char byte = 0;
        Socket socket = -EMFILE;
        const std::uint64_t until_ns = clock_ns() + kPatienceNs;
        while (socket == -EMFILE && clock_ns() < until_ns) socket = net.connect(this_thread(), where[0], patience());
        if (net.send(this_thread(), socket, &mine, 1, kWaitAll, patience()) == 1 &&
            net.recv(this_thread(), socket, &byte, 1, kWaitAll, patience()) == 1 && byte == mine) {
          ++answered;
        }
        net.close(this_thread(), socket);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(answered.load(), kVisitors * each);
  launch(server, {.grid = 1, .block = 1}, close_for_others, server.net(), listener[0]);
  server.synchronize();
  std::int64_t all = 0;
  for (int i = 0; i < kBlocks; ++i) all += served[i];
  EXPECT_EQ(all, kVisitors * each);
}

TEST_P(Endurance, ThousandsOfSocketsAreOpenAtOnceAndPollFindsTheOne) {
  if (test::like_a_gpu()) GTEST_SKIP() << "a GPU's context pins ring memory for each connection";
  rlimit files{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &files), 0);
  files.rlim_cur = files.rlim_max;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &files), 0);
  const int have = static_cast<int>(std::min<rlim_t>(files.rlim_max, 100'000)) / 2 - 50;  // two descriptors for each
                                                                                          // pair
  const int count = std::min(have, scaled(4095, 100));                                    // and the listener
  open(4096);
  std::vector<PollEntry> entries;
  std::vector<Socket> near;
  for (int i = 0; i < count; ++i) {
    const auto [here, there] = connect_pair();
    ASSERT_GE(here, 0) << "socket " << i << "; see ulimit -n";
    ASSERT_GE(there, 0) << "socket " << i;
    near.push_back(here);
    entries.push_back({there, kPollIn, 0});
  }
  EXPECT_EQ(net_.poll(this_thread(), entries.data(), count, Deadline::now()), 0);
  for (const int which : {0, count / 2, count - 1}) {
    ASSERT_EQ(net_.send(this_thread(), near[which], "x", 1, 0, patience()), 1);
    EXPECT_EQ(net_.poll(this_thread(), entries.data(), count, patience()), 1);
    EXPECT_EQ(entries[which].revents, kPollIn);
    char byte = 0;
    EXPECT_EQ(net_.recv(this_thread(), entries[which].socket, &byte, 1, kDontWait), 1);
  }
}

INSTANTIATE_TEST_SUITE_P(Links, Endurance, testing::Values("tcp", "p2p"),
                         [](const auto& kind) { return std::string(kind.param); });

}  // namespace
}  // namespace gpusock::conformance::endurance
