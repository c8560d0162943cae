// A kernel that fails in the middle of a call leaves a socket that others can close.
#include <gpusock/gpusock.hpp>
#include <gpusock/device.cuh>
#include <gpusock/owned_socket.cuh>

#include "tests/support/patience.hpp"
#include "tests/support/sanitized.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace gpusock {
namespace {

enum class Call { recv, send, accept };

constexpr unsigned kThreads = 32;

/// The first block waits in a call; the second one fails once the socket is in use.
__global__ void fail_beside_a_call(Net net, Call call, Socket socket, char* full, std::size_t bytes, int* waits) {
  if (blockIdx.x == 1) {
    while (atomicAdd(waits, 0) == 0) __nanosleep(1'000);
    throw std::runtime_error("on purpose");
  }
  auto block = this_block();
  char byte = 0;
  if (block.thread_rank() == 0) atomicExch(waits, 1);
  if (call == Call::recv) net.recv(block, socket, &byte, 1);
  if (call == Call::send) net.send(block, socket, full, bytes, kWaitAll);
  if (call == Call::accept) net.accept(block, socket);
}

/// Fails in the middle of receiving.
__global__ void receive_at(Net net, Socket socket, char* nowhere) { net.recv(this_block(), socket, nowhere, 1); }

class KernelFault : public testing::Test {
 protected:
  static Options options() {
    Options options;
    options.sockets_max = 16;
    return options;
  }
  void connect(LinkKind link) {
    Endpoint at = Endpoint::parse("127.0.0.1:0");
    at.link = link;
    listener_ = net_.listen(this_thread(), at, 4, patience());
    ASSERT_EQ(net_.getsockname(listener_, at), 0);
    at.link = link;
    near_ = other_.net().connect(this_thread(), at, patience());
    far_ = net_.accept(this_thread(), listener_, patience());
    ASSERT_GE(near_, 0);
    ASSERT_GE(far_, 0);
  }
  /// Nothing of this context is open any more.
  void expect_all_closed() {
    const Deadline until = patience();
    while (!context_.sockets().empty() && !until.passed()) std::this_thread::yield();
    EXPECT_EQ(context_.sockets().size(), 0u);
  }

  Context context_{options()}, other_{options()};
  Net net_ = context_.net();
  Socket listener_ = -1, near_ = -1, far_ = -1;
};

class KernelFaultBesideACall : public KernelFault, public testing::WithParamInterface<std::tuple<LinkKind, Call>> {};

TEST_P(KernelFaultBesideACall, TheSocketCloses) {
  const auto [link, call] = GetParam();
  ASSERT_NO_FATAL_FAILURE(connect(link));
  std::vector<char> data(16 << 20);  // more than the rings and the network hold
  Mapped<int> waits(context_, 1);
  launch(context_, {.grid = 2, .block = kThreads}, fail_beside_a_call, net_, call,
         call == Call::accept ? listener_ : far_, data.data(), data.size(), waits.data());
  EXPECT_THROW(context_.synchronize(), Error);
  EXPECT_EQ(net_.close(this_thread(), far_), 0);
  EXPECT_EQ(net_.close(this_thread(), listener_), 0);
  std::int64_t got = 0;
  while ((got = other_.net().recv(this_thread(), near_, data.data(), data.size(), 0, patience())) > 0) {
  }
  EXPECT_TRUE(got == 0 || got == -ECONNRESET) << got;
  EXPECT_EQ(other_.net().close(this_thread(), near_), 0);
  expect_all_closed();
}

INSTANTIATE_TEST_SUITE_P(Calls, KernelFaultBesideACall,
                         testing::Combine(testing::Values(LinkKind::p2p, LinkKind::tcp),
                                          testing::Values(Call::recv, Call::send, Call::accept)));

TEST_F(KernelFault, InsideACallLeavesASocketThatCanBeUsedAndClosed) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer ends the process at the fault";
  ASSERT_NO_FATAL_FAILURE(connect(LinkKind::p2p));
  ASSERT_EQ(other_.net().send(this_thread(), near_, "x", 1, 0, patience()), 1);
  launch(context_, {.grid = 1, .block = kThreads}, receive_at, net_, far_, static_cast<char*>(nullptr));
  EXPECT_THROW(context_.synchronize(), Error);
  char byte = 0;
  EXPECT_EQ(net_.recv(this_thread(), far_, &byte, 1, 0, patience()), 1) << "it was not consumed";
  EXPECT_EQ(byte, 'x');
  EXPECT_EQ(net_.close(this_thread(), far_), 0);
  EXPECT_EQ(net_.close(this_thread(), listener_), 0);
  EXPECT_EQ(other_.net().close(this_thread(), near_), 0);
  expect_all_closed();
}

/// The first block owns a socket, with a reservation and a peek; the second one fails once it does.
__global__ void fail_beside_an_owner(Net net, Socket socket, int* owned) {
  if (blockIdx.x == 1) {
    while (atomicAdd(owned, 0) == 0) __nanosleep(1'000);
    throw std::runtime_error("on purpose");
  }
  auto block = this_block();
  OwnedSocket owner(block, net, socket);
  owner.net().reserve(block, socket, 8);
  owner.net().peek(block, socket, 1);
  if (block.thread_rank() == 0) atomicExch(owned, owner.error() == 0 ? 1 : 2);
  net.shutdown(block, socket, Shutdown::read);  // a counted call is noted, and keeps what the owner has
  while (true) __nanosleep(1'000);
}

TEST_F(KernelFault, OfAnOwnerLeavesASocketThatCanBeUsedAndClosed) {
  ASSERT_NO_FATAL_FAILURE(connect(LinkKind::p2p));
  ASSERT_EQ(other_.net().send(this_thread(), near_, "x", 1, 0, patience()), 1);
  Mapped<int> owned(context_, 1);
  launch(context_, {.grid = 2, .block = kThreads}, fail_beside_an_owner, net_, far_, owned.data());
  EXPECT_THROW(context_.synchronize(), Error);
  EXPECT_EQ(owned[0], 1);
  char byte = 0;
  EXPECT_EQ(net_.recv(this_thread(), far_, &byte, 1, 0, patience()), 1) << "it is not held, and was not consumed";
  EXPECT_EQ(net_.send(this_thread(), far_, "y", 1, 0, patience()), 1) << "nothing is reserved";
  EXPECT_EQ(net_.close(this_thread(), far_), 0);
  EXPECT_EQ(net_.close(this_thread(), listener_), 0);
  EXPECT_EQ(other_.net().recv(this_thread(), near_, &byte, 1, 0, patience()), 1);
  EXPECT_LE(other_.net().recv(this_thread(), near_, &byte, 1, 0, patience()), 0) << "the owner keeps nothing open";
  EXPECT_EQ(other_.net().close(this_thread(), near_), 0);
  expect_all_closed();
}

/// One thread of an owner's block fails; the others wait for it.
__global__ void fail_as_an_owner(Net net, Socket socket) {
  OwnedSocket owner(this_block(), net, socket);
  if (threadIdx.x == kThreads / 2) throw std::runtime_error("on purpose");
  __syncthreads();
}

TEST_F(KernelFault, AnExceptionThatLeavesAnOwnersScopeIsWhatIsReported) {
  ASSERT_NO_FATAL_FAILURE(connect(LinkKind::p2p));
  launch(context_, {.grid = 1, .block = kThreads}, fail_as_an_owner, net_, far_);
  try {
    context_.synchronize();
    FAIL() << "no failure";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("on purpose"), std::string::npos) << error.what();
  }
  for (const Socket socket : {far_, listener_}) EXPECT_EQ(net_.close(this_thread(), socket), 0);
  char byte;
  EXPECT_LE(other_.net().recv(this_thread(), near_, &byte, 1, 0, patience()), 0);
  EXPECT_EQ(other_.net().close(this_thread(), near_), 0);
  expect_all_closed();
}

__global__ void do_nothing() {}

TEST(Launch, ARefusalNamesTheCallOnce) {
  Context context;
  try {
    launch(context, {.grid = 0, .block = 1}, do_nothing);
    FAIL() << "took a grid of no blocks";
  } catch (const Error& error) {
    const std::string text = error.what();
    EXPECT_EQ(text.find("launch: a grid has at least one block"), 0u) << text;
  }
}

}  // namespace
}  // namespace gpusock
