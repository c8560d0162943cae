// What prepare_resident() and start_resident() refuse, which would else be a fault, a wait for ever, or a wrong sum.
// And how resident lanes end with their executor.
#include "param_sync/executor/executor.hpp"
#include "param_sync/executor/handover.cuh"
#include "param_sync/executor/in_place_reservation.cuh"
#include "tests/unit/executor/schedules.hpp"

#include <gtest/gtest.h>

#include <cerrno>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace resident_arguments_test {
namespace {

using namespace param_sync;
using executor::Exchanged;
using executor::Executor;
using executor::Residence;

constexpr std::uint64_t kFloats = 100;
constexpr int kRanks = 2;

/// A rank, and what a training has beside its executor. Two tensors can be exchanged: by schedules 0 and 1 without a
/// common channel, by 0 and 2 with.
struct Rank {
  explicit Rank(int rank) : executor(context, settings(rank), schedules()) {}

  static executor::Settings settings(int rank) {
    return {.rank = rank, .connect_timeout_ns = executor_test::kTimeoutNs, .execution = {.weights_apart = true}};
  }
  static std::vector<schedule::Schedule> schedules() {
    std::vector<schedule::Schedule> all(3, executor_test::make("ps:even", kRanks));
    schedule::shift_channels(all[1], schedule::shift_channels(all[0], 0));
    return all;
  }

  std::vector<Exchanged> tensors() {
    std::vector<Exchanged> all(2);
    for (std::size_t i = 0; i < all.size(); ++i) {
      const std::uint64_t first = i * kFloats;
      all[i].schedule = i;
      all[i].gradients = gradients.data() + first;
      all[i].count = kFloats;
      all[i].optimizing = {.states = {states.data() + first, kFloats}, .weights = weights.data() + first};
    }
    return all;
  }
  Residence residence() {
    return {.steps = 3,
            .timeout_ns = executor_test::kTimeoutNs,
            .words = words.data(),
            .times = times.data(),
            .failed = failed.data(),
            .stop = stop.data()};
  }

  gpusock::Context context;
  gpusock::DeviceBuffer<float> gradients{context, 2 * kFloats}, weights{context, 2 * kFloats},
      states{context, 2 * kFloats};
  gpusock::DeviceBuffer<executor::ExchangeWords> words{context, 2};
  gpusock::DeviceBuffer<executor::ExchangeTimes> times{context, 1};
  gpusock::DeviceBuffer<std::uint64_t> failed{context, 1};
  gpusock::Mapped<std::uint64_t> stop{context, 1};
  Executor executor;
};

/// What a call throws, which is EINVAL.
std::string refusal(const std::function<void()>& call) {
  try {
    call();
  } catch (const gpusock::Error& error) {
    EXPECT_EQ(error.code().value(), EINVAL);
    return error.what();
  }
  return "accepted";
}

/// What is said of tensors and a residence that `spoil` has changed.
std::string refusal_of(const std::function<void(std::vector<Exchanged>&, Residence&)>& spoil) {
  Rank rank(0);
  auto tensors = rank.tensors();
  Residence residence = rank.residence();
  spoil(tensors, residence);
  return refusal([&] { rank.executor.prepare_resident(tensors, residence); });
}

TEST(ResidentArguments, AreRefusedByName) {
  const auto says = [](const std::string& what, const std::function<void(std::vector<Exchanged>&, Residence&)>& spoil) {
    EXPECT_NE(refusal_of(spoil).find(what), std::string::npos) << refusal_of(spoil);
  };
  says("accepted", [](auto&, Residence&) {});
  says("no tensors", [](auto& tensors, Residence&) { tensors.clear(); });
  says("Residence::words", [](auto&, Residence& residence) { residence.words = nullptr; });
  says("Residence::times", [](auto&, Residence& residence) { residence.times = nullptr; });
  says("Residence::failed", [](auto&, Residence& residence) { residence.failed = nullptr; });
  says("Residence::stop", [](auto&, Residence& residence) { residence.stop = nullptr; });
  says("Residence::timeout_ns", [](auto&, Residence& residence) { residence.timeout_ns = 0; });
  says("tensor 1 has schedule 3, but the executor has 3", [](auto& tensors, Residence&) { tensors[1].schedule = 3; });
  says("tensor 1 has no gradients", [](auto& tensors, Residence&) { tensors[1].gradients = nullptr; });
  says("tensor 0 is handed over 0 times", [](auto& tensors, Residence&) { tensors[0].ready_per_step = 0; });
  says("tensor 1 has no Optimizing::weights",
       [](auto& tensors, Residence&) { tensors[1].optimizing.weights = nullptr; });
  says("no memory for 100 parameters", [](auto& tensors, Residence&) { tensors[0].optimizing.states = {}; });
  says("no memory for 100 parameters", [](auto& tensors, Residence&) { tensors[0].optimizing.states.parameters = 99; });
  says("tensors 0 and 1 share channel 0 to rank 1", [](auto& tensors, Residence&) { tensors[1].schedule = 2; });
  says("schedule::shift_channels()", [](auto& tensors, Residence&) { tensors[1].schedule = 0; });
}

TEST(ResidentArguments, AreGivenOnceAndInOrder) {
  std::vector<std::unique_ptr<Rank>> ranks;
  std::vector<gpusock::Endpoint> addresses;
  for (int rank = 0; rank < kRanks; ++rank) {
    ranks.push_back(std::make_unique<Rank>(rank));
    addresses.push_back(ranks.back()->executor.listen(gpusock::Endpoint::parse("127.0.0.1:0")));
  }
  Executor& executor = ranks[0]->executor;
  EXPECT_NE(refusal([&] { executor.start_resident(); }).find("before prepare_resident()"), std::string::npos);
  EXPECT_NE(refusal([&] { executor.in_place_reservations(0); }).find("tensor 0: 0 are prepared"), std::string::npos);
  for (const auto& rank : ranks) rank->executor.prepare_resident(rank->tensors(), rank->residence());
  EXPECT_NE(refusal([&] { executor.start_resident(); }).find("before begin_connect()"), std::string::npos);
  EXPECT_NE(
      refusal([&] { executor.prepare_resident(ranks[0]->tensors(), ranks[0]->residence()); }).find("was called before"),
      std::string::npos);
  for (const auto& rank : ranks) rank->executor.begin_connect(addresses);
  EXPECT_NE(refusal([&] { executor.begin_connect(addresses); }).find("was called before"), std::string::npos);
  for (const auto& rank : ranks) rank->executor.await_connect();
  for (const auto& rank : ranks) rank->executor.start_resident();
  EXPECT_NE(refusal([&] { executor.start_resident(); }).find("was called before"), std::string::npos);
  // No gradients ever come: the executors' ends end the lanes, which else would wait for ever.
}

TEST(ExecutorSettings, HowSchedulesAreExecutedIsCompared) {
  gpusock::Context contexts[kRanks];
  const std::vector<schedule::Schedule> schedules{executor_test::make("ps:even", kRanks)};
  executor::Settings other = Rank::settings(1);
  other.execution.weights_apart = false;
  Executor zero(contexts[0], Rank::settings(0), schedules), one(contexts[1], other, schedules);
  const auto here = gpusock::Endpoint::parse("127.0.0.1:0");
  const std::vector<gpusock::Endpoint> addresses{zero.listen(here), one.listen(here)};
  zero.begin_connect(addresses);
  one.begin_connect(addresses);
  for (Executor* executor : {&zero, &one}) {
    try {
      executor->await_connect();
      ADD_FAILURE() << "they are connected";
    } catch (const gpusock::Error& error) {
      EXPECT_NE(std::string(error.what()).find("how they are executed"), std::string::npos) << error.what();
    }
  }
}

}  // namespace
}  // namespace resident_arguments_test
