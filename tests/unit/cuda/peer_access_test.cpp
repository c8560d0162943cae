// Rings between two GPUs: which of them reach each other's memory, when that is set up, and what follows where they do
// not.
#include "gpusock/cuda/peer_access.hpp"
#include "gpusock/device.cuh"
#include "tests/unit/cuda/fixture.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <optional>

namespace gpusock::cuda_test {
namespace {

Options options_of(int gpu, RingPlacement ring = RingPlacement::automatic) {
  Options options = small_options();
  options.gpu = gpu;
  options.ring = ring;
  return options;
}

struct Talk {
  Endpoint at;
  std::uint64_t listening = 0;
  std::uint64_t connected = 0;
  std::uint64_t looked = 0;
  std::int64_t received = 0;
  std::int64_t bytes = 0;
};

__device__ void wait_for_word(std::uint64_t& word) {
  while (Word(word).load(ringbuf::kAcquire) == 0) __nanosleep(1'000);
}

__global__ void accept_bytes(Net net, Talk* talk) {
  const Socket listener = net.listen(this_thread(), talk->at, 1, patience());
  net.getsockname(listener, talk->at);
  talk->at.link = LinkKind::p2p;
  raise(talk->listening);
  const Socket socket = net.accept(this_thread(), listener, patience());
  talk->received = net.recv(this_thread(), socket, &talk->bytes, 8, kWaitAll, patience());
  net.send(this_thread(), socket, &talk->bytes, 8, kWaitAll, patience());
  wait_for_word(talk->looked);
}

__global__ void connect_and_send(Net net, Talk* talk) {
  const Socket socket = net.connect(this_thread(), talk->at, patience());
  const std::int64_t sent = 0x1122334455667788;
  std::int64_t back = 0;
  net.send(this_thread(), socket, &sent, 8, kWaitAll, patience());
  net.recv(this_thread(), socket, &back, 8, kWaitAll, patience());
  talk->connected = back == sent ? 1 : 2;
  raise(talk->looked);
}

/// What the two sides' sockets say of a connection of kernels of two contexts, after bytes have gone both ways.
struct Seen {
  RingPlacement bytes = RingPlacement::automatic;
  RingPlacement words = RingPlacement::automatic;
  std::string reason;
};
Seen seen_by(const Context& context) {
  for (const SocketInfo& info : context.sockets()) {
    if (info.link != LinkKind::p2p || info.state == SocketState::listening) continue;
    const RingPlaces& places = info.places;
    EXPECT_TRUE(places.tx_committed == places.tx_consumed && places.rx_committed == places.rx_consumed &&
                places.tx_committed == places.rx_committed);
    return {places.bytes, places.tx_committed, info.link_reason};
  }
  return {};
}
void expect_talk(Context& accepts, Context& connects, RingPlacement placement, const std::string& reason) {
  Mapped<Talk> talk(accepts, 1);
  talk[0].at = Endpoint::parse("127.0.0.1:0,link=p2p");
  launch(accepts, {}, accept_bytes, accepts.net(), talk.data());
  while (Word(talk[0].listening).load(ringbuf::kAcquire) == 0) std::this_thread::yield();
  launch(connects, {}, connect_and_send, connects.net(), talk.data());
  connects.synchronize();
  accepts.synchronize();
  EXPECT_EQ(talk[0].received, 8);
  EXPECT_EQ(talk[0].connected, 1u);
  for (const Context* context : {&accepts, &connects}) {
    const Seen seen = seen_by(*context);
    EXPECT_EQ(seen.bytes, placement);
    EXPECT_EQ(seen.words, placement);
    EXPECT_EQ(seen.reason, reason);
  }
}

/// Peer access stays for the life of a process, so each test has one of its own. It has used no CUDA before: the child
/// has the double's machine, and none of its threads.
class TwoGpus : public testing::Test {
 protected:
  template <class Test>
  static void in_own_process(Test test) {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    EXPECT_EXIT(
        {
          test();
          std::fflush(nullptr);
          _exit(HasFailure() ? 1 : 0);
        },
        testing::ExitedWithCode(0), "");
  }
};

TEST_F(TwoGpus, KernelsUseTheMemoryOfBoth) {
  in_own_process([] {
    Context first(options_of(0)), second(options_of(1)), of_first_again(options_of(0));
    expect_talk(first, second, RingPlacement::device, "");
    expect_talk(second, of_first_again, RingPlacement::device, "");
  });
}

TEST_F(TwoGpus, DeviceMemoryByName) {
  in_own_process([] {
    Context first(options_of(0, RingPlacement::device)), second(options_of(1, RingPlacement::device));
    expect_talk(first, second, RingPlacement::device, "");
  });
}

TEST_F(TwoGpus, ThoseThatAreApartMeetInHostMemoryAndSayWhy) {
  in_own_process([] {
    cuda_double::set_peers_reach_each_other(false);
    Context first(options_of(0)), second(options_of(1));
    expect_talk(first, second, RingPlacement::host,
                "p2p in GPU memory: GPU 1 does not reach the memory of GPU 0 (cudaDeviceCanAccessPeer)");
    cuda_double::set_peers_reach_each_other(true);
    Context third(options_of(1));  // looks again
    expect_talk(first, third, RingPlacement::device, "");
  });
}

TEST_F(TwoGpus, NothingIsSetUpWhereRingsAreInHostMemory) {
  in_own_process([] {
    Context first(options_of(0, RingPlacement::host)), second(options_of(1));
    EXPECT_FALSE(cudart::PeerAccess::get().reaches(0, 1) || cudart::PeerAccess::get().reaches(1, 0));
    expect_talk(first, second, RingPlacement::host, "");
  });
}

TEST_F(TwoGpus, WhatTheProgramHasSetUpIsUsed) {
  in_own_process([] {
    EXPECT_EQ(cudaSetDevice(0), cudaSuccess);
    EXPECT_EQ(cudaDeviceEnablePeerAccess(1, 0), cudaSuccess);
    Context first(options_of(0)), second(options_of(1));
    EXPECT_TRUE(cudart::PeerAccess::get().reaches(0, 1) && cudart::PeerAccess::get().reaches(1, 0));
    EXPECT_EQ(cudaGetLastError(), cudaSuccess) << "the program does not see that it was there";
  });
}

/// Setting it up may wait for kernels. A kernel may be waiting for the context that is being made.
TEST_F(TwoGpus, IsNotSetUpWhileKernelsRunButWhenTheNextContextIsMade) {
  in_own_process([] {
    Context first(options_of(0));
    {
      Mapped<std::uint64_t> word(first, 1);
      launch(first, {}, wait_for<40>, word.data());
      Context second(options_of(1));
      EXPECT_EQ(cudart::PeerAccess::get().why_not(0, 1),
                "kernels ran on GPU 1 or GPU 0 when a context was made there: make all contexts first");
      raise(word[0]);
      first.synchronize();
    }
    const Context third(options_of(1));
    EXPECT_TRUE(cudart::PeerAccess::get().reaches(0, 1));
    EXPECT_TRUE(cudart::PeerAccess::get().reaches(1, 0));
  });
}

/// Memory that another GPU reaches is freed when no kernel runs there either.
/// GPU 0, whose kernel runs, is this thread's current one.
void end_a_context_while_a_kernel_of_the_other_gpu_runs() {
  Context first(options_of(0));
  std::optional<Context> second(options_of(1));
  Mapped<std::uint64_t> word(first, 1);
  HangExpected hang([&] { raise(word[0]); });
  launch(first, {}, wait_for<41>, word.data());
  second.reset();
  EXPECT_EQ(hang.text(), "");
  if (cudart::PeerAccess::get().reaches(0, 1)) {
    EXPECT_FALSE(cuda_double::left().empty()) << "it waits for the kernel";
  }
  raise(word[0]);
  first.synchronize();
}

TEST_F(TwoGpus, AContextThatEndsDoesNotWaitForKernelsOfTheOtherGpu) {
  in_own_process([] { end_a_context_while_a_kernel_of_the_other_gpu_runs(); });
}

TEST_F(TwoGpus, AContextThatEndsDoesNotWaitForKernelsOfAGpuThatIsApart) {
  in_own_process([] {
    cuda_double::set_peers_reach_each_other(false);
    end_a_context_while_a_kernel_of_the_other_gpu_runs();
  });
}

}  // namespace
}  // namespace gpusock::cuda_test
