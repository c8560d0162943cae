// What gpusock/compat/gpunet.cuh promises: kernels written for GPUnet run, and what hung there comes back.
#include "tests/compat/gpunet_kernels.cuh"

#include <gtest/gtest.h>

#include <arpa/inet.h>

#include <cstdlib>

namespace gpusock::compat_test {
namespace {

double scale() {
  const char* text = std::getenv("GPUSOCK_TEST_SCALE");
  return text == nullptr ? 1 : std::atof(text);
}

class Gpunet : public testing::TestWithParam<LinkKind> {
 protected:
  void SetUp() override {
    gpunet_init(context_, GetParam());
    address_[0].sin_family = AF_INET;
    address_[0].sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    run(bind_kernel, 1, address_.data(), outcome_.data());
    ASSERT_GE(outcome_[0].result[0], 0);
    listener_ = outcome_[0].result[0];
    address_[0].sin_port = htons(static_cast<std::uint16_t>(outcome_[0].port));
  }
  void TearDown() override { gpunet_exit(context_); }

  template <class Kernel, class... Arguments>
  void run(Kernel kernel, unsigned threads, const Arguments&... arguments) {
    launch(context_, {.grid = 1, .block = threads}, kernel, arguments...);
    context_.synchronize();
  }
  int result(int which, int of = 0) const { return outcome_[of].result[which]; }

  Context context_{Options()};
  Mapped<sockaddr_in> address_{context_, 1};
  Mapped<Outcome> outcome_{context_, 2};
  Socket listener_ = -1;
};

INSTANTIATE_TEST_SUITE_P(Links, Gpunet, testing::Values(LinkKind::tcp, LinkKind::p2p),
                         [](const auto& link) { return std::string(to_string(link.param)); });

TEST_P(Gpunet, EchoServerAndClientTalk) {
  const int messages = 1 + static_cast<int>(500 * scale());
  {
    Stream serving(context_), asking(context_);
    launch(context_, {.grid = 1, .block = kThreads, .stream = &serving}, echo_server_kernel, listener_,
           outcome_.data());
    launch(context_, {.grid = 1, .block = kThreads, .stream = &asking}, echo_client_kernel, address_.data(), messages,
           outcome_.data() + 1);
    context_.synchronize();
  }
  EXPECT_GE(result(0, 1), 0) << "gconnect_in";
  EXPECT_GT(result(1, 1), 0) << "the client's last call";
  EXPECT_EQ(result(2, 1), messages);
  EXPECT_EQ(result(3, 1), 0) << "bytes that came back wrong";
  EXPECT_EQ(result(4, 1), 0) << "single_thread_gclose";
  EXPECT_EQ(result(1), 0) << "the end of the client's stream";
  EXPECT_EQ(result(2), messages * kMessageBytes);
  EXPECT_EQ(result(3), 0) << "single_thread_gclose";
}

TEST_P(Gpunet, NonBlockingCallsSayThatTheyWouldWaitAndLoseNothing) {
  run(non_blocking_kernel, kThreads, listener_, address_.data(), outcome_.data());
  EXPECT_EQ(result(0), -EWOULDBLOCK) << "gaccept_nb with nobody there";
  EXPECT_NE(result(1), 0) << "sockets block at first";
  EXPECT_EQ(result(2), 0) << "and do not when told";
  EXPECT_EQ(result(3), -EWOULDBLOCK) << "grecv";
  EXPECT_EQ(result(4), -EWOULDBLOCK) << "gsend into a full socket";
  EXPECT_EQ(result(5), 0) << "bytes lost";
  EXPECT_EQ(result(6), -EWOULDBLOCK) << "grecv_nb";
}

TEST_P(Gpunet, TheEndOfAStreamIsToldAndThenAnError) {
  run(end_kernel, kThreads, listener_, address_.data(), outcome_.data());
  EXPECT_EQ(result(0), 0) << "single_thread_gshutdown";
  EXPECT_EQ(result(1), 5) << "what was sent before";
  EXPECT_EQ(result(2), 0);
  EXPECT_EQ(result(3), -EPIPE);
  EXPECT_EQ(result(4), -EPIPE) << "gsend behind one's own end";
  EXPECT_EQ(result(5), 3) << "the other direction goes on";
  EXPECT_EQ(result(6), -EINVAL) << "a direction that there is not";
}

TEST_P(Gpunet, PollSaysWhatThereIsAndHowMuch) {
  run(poll_kernel, kThreads, listener_, address_.data(), outcome_.data());
  EXPECT_EQ(result(0), 0) << "nothing within the time";
  EXPECT_EQ(result(1), POLLNVAL) << "a negative handle";
  EXPECT_EQ(result(2), 1);
  EXPECT_EQ(result(3), POLLIN) << "a connection to accept";
  EXPECT_EQ(result(4), 1);
  EXPECT_EQ(result(5), 0) << "nothing came the other way";
  EXPECT_EQ(result(6), POLLIN);
  EXPECT_EQ(result(7), 7) << "bytes to receive";
}

#if defined(GPUSOCK_DEVICE_CPU)
TEST_P(Gpunet, PollGivesUpTheProcessorWhileNothingHappens) {
  run(idle_poll_kernel, kThreads, outcome_.data());
  EXPECT_EQ(result(0), 1);
}
#endif

TEST_P(Gpunet, AcceptWithinAPartForOneThreadIsThatThreads) {
  run(accept_in_part_kernel, kThreads, listener_, address_.data(), outcome_.data());
  EXPECT_GE(result(0), 0);
  EXPECT_GE(result(1), 0);
  EXPECT_GE(result(2), 0);
}

TEST(GpunetMemory, OneInitializesAllCountAndTheLastTells) {
  constexpr unsigned kBlocks = 8;
  Context context;
  Mapped<Shared> shared(context, 1);
  Mapped<Outcome> outcome(context, 1);
  launch(context, {.grid = kBlocks, .block = kThreads}, locks_kernel, shared.data(), outcome.data());
  context.synchronize();
  EXPECT_EQ(outcome[0].result[0], 1);
  EXPECT_EQ(outcome[0].result[1], static_cast<int>(kBlocks));
  EXPECT_EQ(outcome[0].result[2], 0) << "the lock was free";
  EXPECT_EQ(outcome[0].result[3], 1) << "and is taken";
}

TEST(GpunetMemory, CopiesAreOfTheirSize) {
  Context context;
  Mapped<Outcome> outcome(context, 1);
  launch(context, {.grid = 1, .block = kThreads}, copies_kernel, outcome.data());
  context.synchronize();
  EXPECT_EQ(outcome[0].result[0], 0) << "bytes that are wrong";
  EXPECT_EQ(outcome[0].result[1], 0);
  EXPECT_EQ(outcome[0].result[2], 1);
  EXPECT_EQ(outcome[0].result[3], 0) << "equal as far as it is compared";
  EXPECT_EQ(outcome[0].result[4], 1) << "whole words only";
}

TEST_P(Gpunet, AWaitEndsWithTheContext) {
  launch(context_, {.grid = 1, .block = kThreads}, wait_for_ever_kernel, listener_, outcome_.data());
  context_.cancel();
  context_.synchronize();
  EXPECT_EQ(result(0), -ECANCELED);
}

TEST_P(Gpunet, WhatCannotBeOpenedIsAnError) {
  run(open_kernel, kThreads, address_.data(), outcome_.data());
  EXPECT_EQ(result(0), -EADDRINUSE) << "the port has its listener";
  EXPECT_GE(result(1), 0) << "who can be reached";
  address_[0].sin_family = AF_INET6;
  run(open_kernel, kThreads, address_.data(), outcome_.data());
  EXPECT_EQ(result(0), -EAFNOSUPPORT);
  EXPECT_EQ(result(1), -EAFNOSUPPORT);
  gpunet_exit(context_);
  run(open_kernel, kThreads, address_.data(), outcome_.data());
  EXPECT_EQ(result(0), -ENODEV) << "gpunet_init was not called";
  EXPECT_EQ(result(1), -ENODEV);
}

}  // namespace
}  // namespace gpusock::compat_test
