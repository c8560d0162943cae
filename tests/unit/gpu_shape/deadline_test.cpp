// A deadline belongs to the clock of who made it.
#include "connected.hpp"

#include <gtest/gtest.h>

#include <thread>

namespace gpusock::test {
namespace {

constexpr std::uint64_t kSoonNs = 10'000'000;

struct Outcome {
  std::int64_t result = 0;
  std::uint64_t took_ns = 0;
  bool passed_as_it_came = false;
  bool passed_here = false;
};

__global__ void receive_nothing(Net net, Socket socket, Deadline deadline, Outcome* outcome) {
  char byte;
  const std::uint64_t began_ns = clock_ns();
  outcome->passed_as_it_came = deadline.passed();
  outcome->passed_here = deadline.here().passed();
  outcome->result = net.recv(this_thread(), socket, &byte, 1, 0, deadline);
  outcome->took_ns = clock_ns() - began_ns;
}

__global__ void make_deadlines(Deadline* soon, Deadline* never, std::uint64_t* now_ns) {
  *soon = Deadline::after_ns(kSoonNs);
  *never = Deadline::after_ns(~std::uint64_t{0});
  *now_ns = clock_ns();
}

TEST(Deadlines, AKernelWaitsForAsLongAsTheHostSaid) {
  Context context;
  const HostListener listener(context, "p2p");
  Mapped<Socket> socket(context, 1);
  Mapped<Outcome> outcome(context, 1);
  launch(context, {}, connect_kernel, context.net(), listener.at, socket.data());
  context.synchronize();
  ASSERT_GE(socket[0], 0);
  launch(context, {}, receive_nothing, context.net(), socket[0], Deadline::after_ns(kSoonNs), outcome.data());
  context.synchronize();
  EXPECT_EQ(outcome[0].result, -ETIMEDOUT);
  EXPECT_GE(outcome[0].took_ns, kSoonNs - 1000) << "the kernels' clock is years ahead of the host's";
  EXPECT_LT(outcome[0].took_ns, kPatienceNs);
  EXPECT_TRUE(outcome[0].passed_as_it_came) << "a loop until it has passed must not go on for years";
  EXPECT_FALSE(outcome[0].passed_here);
}

TEST(Deadlines, AHostThreadWaitsForAsLongAsAKernelSaid) {
  Context context;
  const Net net = context.net();
  const HostListener listener(context, "p2p");
  Mapped<std::byte> room(context, 2 * sizeof(Deadline));
  auto* const made = reinterpret_cast<Deadline*>(room.data());
  Mapped<std::uint64_t> kernels_ns(context, 1);
  launch(context, {}, make_deadlines, made, made + 1, kernels_ns.data());
  context.synchronize();
  EXPECT_GT(kernels_ns[0], clock_ns() + 1'000'000'000'000) << "these clocks are to be different";
  EXPECT_TRUE(made[1].is_never());
  EXPECT_FALSE(made[1].passed());
  const std::uint64_t began_ns = clock_ns();
  EXPECT_EQ(net.accept(this_thread(), listener.socket, made[0]), -ETIMEDOUT);
  EXPECT_GE(clock_ns() - began_ns, kSoonNs);
  EXPECT_LT(clock_ns() - began_ns, kPatienceNs);
}

TEST(Deadlines, OfTheirOwnSideStayWhatTheyAre) {
  const Deadline soon = Deadline::after_ns(kSoonNs), far = Deadline::after_ns(kPatienceNs);
  EXPECT_FALSE(far.here().passed());
  while (!soon.passed()) std::this_thread::yield();
  EXPECT_TRUE(soon.here().passed());
  EXPECT_TRUE(Deadline::now().passed());
  EXPECT_TRUE(Deadline::now().here().is_now());
  EXPECT_FALSE(Deadline::never().passed());
  EXPECT_TRUE(Deadline::never().here().is_never());
}

}  // namespace
}  // namespace gpusock::test
