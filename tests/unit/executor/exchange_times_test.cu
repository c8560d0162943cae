// How much of a step's communication is hidden: synthetic timelines of a node with two layers.
#include "param_sync/executor/handover.cuh"

#include <gtest/gtest.h>

namespace {

using namespace param_sync::executor;

/// A kernel of one block computes.
void compute(ExchangeTimes& times, std::uint64_t from_ns, std::uint64_t until_ns) {
  begin_compute(times, from_ns);
  end_compute(times, until_ns);
}

TEST(ExchangeTimes, CommunicationAfterAllBackwardKernelsIsExposed) {
  ExchangeTimes times{};
  has_computed(times, 110);  // backward, layer 1
  has_computed(times, 130);  // backward, layer 0: the gradients may be sent now
  begin_communication(times, 130);
  end_communication(times, 170);
  compute(times, 175, 180);  // forward, layer 0
  compute(times, 180, 185);
  EXPECT_EQ(times.communicating_ns, 40U);
  EXPECT_EQ(times.exposed_ns, 40U);
}

TEST(ExchangeTimes, WhatBackwardKernelsRunBesideIsHidden) {
  ExchangeTimes times{};
  has_computed(times, 110);
  begin_communication(times, 110);
  has_computed(times, 130);  // backward, layer 0
  end_communication(times, 170);
  compute(times, 175, 180);
  EXPECT_EQ(times.communicating_ns, 60U);
  EXPECT_EQ(times.exposed_ns, 40U);
}

/// Weights of layer 1 come after those of layer 0, whose forward kernel runs meanwhile: hidden without overlap, too.
TEST(ExchangeTimes, AForwardKernelHidesTheWeightsOfLaterLayers) {
  ExchangeTimes times{};
  has_computed(times, 130);
  begin_communication(times, 130);
  compute(times, 150, 160);
  compute(times, 165, 180);
  end_communication(times, 170);
  EXPECT_EQ(times.communicating_ns, 40U);
  EXPECT_EQ(times.exposed_ns, 25U) << "130 to 150, and 160 to 165";
}

TEST(ExchangeTimes, WhatHasEndedIsExposedOnceAndNoLonger) {
  ExchangeTimes times{};
  for (std::uint64_t step = 1; step <= 3; ++step) {
    const std::uint64_t at = 1000 * step;
    compute(times, at - 300, at - 200);
    has_computed(times, at + 10);
    begin_communication(times, at + 10);
    end_communication(times, at + 60);
    compute(times, at + 500, at + 510);  // long after
    compute(times, at + 510, at + 520);
  }
  EXPECT_EQ(times.communicating_ns, 150U);
  EXPECT_EQ(times.exposed_ns, 150U);
}

TEST(ExchangeTimes, ComputingAllTheTimeHidesAll) {
  ExchangeTimes times{};
  has_computed(times, 10);
  begin_communication(times, 10);
  has_computed(times, 50);
  begin_compute(times, 50);
  end_compute(times, 90);
  end_communication(times, 80);
  begin_compute(times, times.ended_ns);  // as when a run has ended
  EXPECT_EQ(times.communicating_ns, 70U);
  EXPECT_EQ(times.exposed_ns, 0U);
}

/// As in a pipeline: the second step's exchange begins before the first one's ends.
TEST(ExchangeTimes, ExchangesThatOverlapCountOnce) {
  ExchangeTimes times{};
  has_computed(times, 100);
  begin_communication(times, 100);
  compute(times, 110, 150);
  begin_communication(times, 150);
  end_communication(times, 200);
  compute(times, 220, 230);
  end_communication(times, 260);
  begin_compute(times, 300);
  EXPECT_EQ(times.communicating_ns, 160U);
  EXPECT_EQ(times.exposed_ns, 10U + 70U + 30U) << "100 to 110, 150 to 220, and 230 to 260";
}

/// Blocks of a kernel wake in any order: the first one ends the pause, and the last one begins the next.
TEST(ExchangeTimes, NothingIsExposedWhileAnyBlockComputes) {
  ExchangeTimes times{};
  has_computed(times, 100);
  begin_communication(times, 100);
  begin_compute(times, 150);
  begin_compute(times, 155);
  end_compute(times, 160);
  begin_compute(times, 170);
  end_compute(times, 175);
  end_compute(times, 180);
  compute(times, 190, 200);  // a block that wakes late
  end_communication(times, 200);
  EXPECT_EQ(times.exposed_ns, 60U) << "100 to 150, and 180 to 190";
}

}  // namespace
