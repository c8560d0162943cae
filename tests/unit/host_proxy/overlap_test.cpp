// Calls on one socket that overlap: ending a stream, or closing, while another thread is in the middle of a send.
#include <gpusock/gpusock.hpp>

#include "tests/support/patience.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

namespace gpusock {
namespace {

constexpr int kRounds = 30;

class Overlap : public testing::TestWithParam<const char*> {
 protected:
  static Options options() {
    Options options;
    options.sockets_max = 2;  // the next connection is in the same slot, or the one beside it
    options.ring_bytes = 64 << 10;
    return options;
  }

  void SetUp() override {
    listener_ = net_.listen(this_thread(), Endpoint::parse("127.0.0.1:0,link=" + std::string(GetParam())), 4,
                            patience());
    ASSERT_EQ(net_.getsockname(listener_, where_), 0);
    where_.link = parse_link(GetParam());
  }

  /// A connection: the sending end and the receiving one. A slot comes back a moment after its close.
  std::pair<Socket, Socket> connect() {
    const std::uint64_t until_ns = clock_ns() + 20'000'000'000;
    Socket sender = -EMFILE;
    while (sender == -EMFILE && clock_ns() < until_ns) sender = other_net_.connect(this_thread(), where_, patience());
    EXPECT_GE(sender, 0);
    return {sender, net_.accept(this_thread(), listener_, patience())};
  }

  /// Sends 'S' until it fails.
  std::thread keep_sending(Socket socket, std::atomic<std::uint64_t>& sent) {
    return std::thread([this, socket, &sent] {
      const std::vector<char> bytes(50'000, 'S');
      std::int64_t result = 0;
      // Some go through the ring, some past it.
      for (std::size_t size = 10'000;
           (result = other_net_.send(this_thread(), socket, bytes.data(), size, 0, patience())) > 0;
           size = size == bytes.size() ? 10'000 : bytes.size()) {
        sent.fetch_add(static_cast<std::uint64_t>(result));
      }
    });
  }

  /// Receives until the end; what the last call gave.
  std::int64_t receive_all(Socket socket, std::uint64_t& received) {
    std::vector<char> buffer(7'000);
    std::int64_t result = 0;
    while ((result = net_.recv(this_thread(), socket, buffer.data(), buffer.size(), 0, patience())) > 0) {
      received += static_cast<std::uint64_t>(result);
    }
    return result;
  }

  /// Calls `end` in the middle of a stream that `receiver` reads to its end; bytes sent and received.
  template <class End>
  std::pair<std::uint64_t, std::uint64_t> end_while_sending(int round, Socket sender, Socket receiver, End end) {
    std::atomic<std::uint64_t> sent{0};
    std::uint64_t received = 0;
    std::thread sending = keep_sending(sender, sent);
    std::thread ending([&] {
      while (sent.load() < 50'000u + 1000u * static_cast<unsigned>(round)) std::this_thread::yield();
      EXPECT_EQ(end(), 0);
    });
    EXPECT_EQ(receive_all(receiver, received), 0) << "round " << round;
    sending.join();
    ending.join();
    return {sent.load(), received};
  }

  Context context_{options()};
  Context other_{options()};
  Net net_ = context_.net();
  Net other_net_ = other_.net();
  Socket listener_ = -1;
  Endpoint where_;
};

TEST_P(Overlap, AShutdownDuringASendEndsTheStream) {
  for (int round = 0; round < kRounds; ++round) {
    const auto [sender, receiver] = connect();
    end_while_sending(round, sender, receiver,
                      [&, socket = sender] { return other_net_.shutdown(this_thread(), socket, Shutdown::write); });
    net_.close(this_thread(), receiver);
    other_net_.close(this_thread(), sender);
  }
}

TEST_P(Overlap, ACloseDuringASendLeavesTheNextConnectionAlone) {
  for (int round = 0; round < kRounds; ++round) {
    const auto [sender, receiver] = connect();
    const auto [sent, received] = end_while_sending(
        round, sender, receiver, [&, socket = sender] { return other_net_.close(this_thread(), socket); });
    EXPECT_EQ(received, sent) << "what send() took arrived, and no more";
    net_.close(this_thread(), receiver);
    const auto [next_sender, next_receiver] = connect();
    char byte = 'N';
    EXPECT_EQ(other_net_.send(this_thread(), next_sender, &byte, 1, kWaitAll, patience()), 1);
    other_net_.close(this_thread(), next_sender);
    std::vector<char> all(100);
    EXPECT_EQ(net_.recv(this_thread(), next_receiver, all.data(), all.size(), kWaitAll, patience()), 1);
    EXPECT_EQ(all[0], 'N') << "a byte of the old connection";
    net_.close(this_thread(), next_receiver);
  }
}

TEST_P(Overlap, WhoIsNotAcceptedWhenTheListenerClosesIsReset) {
  const Socket visitor = other_net_.connect(this_thread(), where_, patience());
  ASSERT_GE(visitor, 0);
  EXPECT_EQ(net_.close(this_thread(), listener_), 0);
  char byte = 0;
  EXPECT_EQ(other_net_.recv(this_thread(), visitor, &byte, 1, 0, patience()), -ECONNRESET);
}

INSTANTIATE_TEST_SUITE_P(Links, Overlap, testing::Values("tcp", "p2p"),
                         [](const auto& kind) { return std::string(kind.param); });

}  // namespace
}  // namespace gpusock
