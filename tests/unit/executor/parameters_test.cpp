// Weights that ranks share: what a pull gets after which pushes.
#include "param_sync/parameters.hpp"
#include "tests/support/error_of.hpp"
#include "tests/unit/executor/groups.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

namespace {

using gpusock::test::error_of;
using group_test::Groups;
using group_test::kRanks;
using param_sync::Group;
using param_sync::Parameters;
using param_sync::Update;

constexpr float kSum = 6;  // of all ranks' gradients, which are rank + 1

/// Parameters of all ranks; the groups' tensors are for gradients.
struct Shared {
  Shared(std::size_t count, const Update& update) : floats(count), groups(count) {
    std::vector<float> initial;
    for (std::size_t i = 0; i < floats; ++i) initial.push_back(static_cast<float>(i));
    for (int rank = 0; rank < kRanks; ++rank) {
      parameters.push_back(std::make_unique<Parameters>(groups.group(rank), initial, update));
      weights.push_back(std::make_unique<gpusock::DeviceBuffer<float>>(groups.context(rank), 3 * floats));
    }
  }

  Parameters& of(int rank) { return *parameters[static_cast<std::size_t>(rank)]; }
  void fill_gradients() {
    for (int rank = 0; rank < kRanks; ++rank) {
      groups.tensor(rank).copy_in(std::vector<float>(floats, static_cast<float>(rank + 1)));
    }
  }
  template <class Start>
  std::vector<Group::Operation> start(Start start) {
    std::vector<Group::Operation> all;
    for (int rank = 0; rank < kRanks; ++rank) all.push_back(start(rank));
    return all;
  }
  std::vector<Group::Operation> start_push() {
    return start([&](int rank) { return of(rank).push(groups.tensor(rank).data()); });
  }
  void push() {
    fill_gradients();
    groups.wait(start_push());
  }
  /// Into the tensor with this index of each rank.
  std::vector<Group::Operation> start_pull(std::size_t index) {
    return start(
        [&](int rank) { return of(rank).pull(weights[static_cast<std::size_t>(rank)]->data() + index * floats); });
  }
  void expect(std::size_t index, float change) {
    for (const auto& memory : weights) {
      std::vector<float> all(3 * floats);
      memory->copy_out(all);
      for (std::size_t i = 0; i < floats; ++i) ASSERT_EQ(all[index * floats + i], static_cast<float>(i) + change) << i;
    }
  }

  std::size_t floats;
  Groups groups;
  std::vector<std::unique_ptr<gpusock::DeviceBuffer<float>>> weights;
  std::vector<std::unique_ptr<Parameters>> parameters;  // end before the memory that they use
};

TEST(ParametersOfAGroup, APullGetsTheWeightsThatThePushesHaveMade) {
  for (const std::size_t floats : {std::size_t{2}, std::size_t{100}, std::size_t{200'000}}) {  // fewer than ranks;
                                                                                               // passes
    Shared shared(floats, Update::sgd(0.5f, 0.5f, 1.0f / kRanks));
    shared.groups.wait(shared.start_pull(0));
    shared.expect(0, 0);
    shared.push();
    shared.push();
    EXPECT_EQ(shared.of(1).version(), 2);
    EXPECT_EQ(shared.of(1).size(), floats);
    shared.groups.wait(shared.start_pull(0));
    const float first = kSum / kRanks, second = 0.5f * first + kSum / kRanks;
    shared.expect(0, -0.5f * (first + second));
  }
}

/// Nothing is waited for between them: a pull gets the version of when it was started, and a later push does not change
/// what it got.
TEST(ParametersOfAGroup, APullGetsTheVersionOfWhenItWasStarted) {
  Shared shared(10'000, Update::add());
  shared.fill_gradients();
  shared.start_pull(0);
  shared.start_push();
  shared.groups.wait(shared.start_pull(1));
  shared.push();
  shared.groups.wait(shared.start_pull(2));
  for (std::size_t version = 0; version < 3; ++version) shared.expect(version, static_cast<float>(version) * kSum);
}

TEST(ParametersOfAGroup, APushThatARankDoesNotJoinFailsInTime) {
  Shared shared(100, Update::add());
  shared.fill_gradients();
  constexpr std::uint64_t kShortNs = 100'000'000;
  const auto first = shared.of(0).push(shared.groups.tensor(0).data(), kShortNs);
  const auto second = shared.of(1).push(shared.groups.tensor(1).data(), kShortNs);
  EXPECT_NE(error_of<gpusock::Error>([&] { shared.groups.group(1).wait(second); }), "");
  EXPECT_NE(error_of<gpusock::Error>([&] { shared.groups.group(0).wait(first); }), "");
  EXPECT_NE(error_of<gpusock::Error>([&] { shared.of(0).pull(shared.groups.tensor(0).data()); }), "");
}

/// Sizes are equal, so sums of one's gradients would go into the other's weights.
TEST(ParametersOfAGroup, APushToOtherWeightsThanTheOtherRanksIsAnErrorAtAll) {
  Shared shared(100, Update::add());
  shared.fill_gradients();
  const std::vector<float> initial(100);
  std::vector<std::unique_ptr<Parameters>> others;
  for (int rank = 0; rank < kRanks; ++rank) {
    others.push_back(std::make_unique<Parameters>(shared.groups.group(rank), initial, Update::add()));
  }
  const auto pushes = shared.start(
      [&](int rank) { return (rank == 0 ? *others[0] : shared.of(rank)).push(shared.groups.tensor(rank).data()); });
  std::string errors;
  for (int rank = 0; rank < kRanks; ++rank) {
    const std::string error = error_of<gpusock::Error>(
        [&] { shared.groups.group(rank).wait(pushes[static_cast<std::size_t>(rank)]); });
    EXPECT_NE(error, "") << "rank " << rank;
    errors += error;
  }
  EXPECT_NE(errors.find("it does another operation"), std::string::npos) << errors;
}

TEST(ParametersOfAGroup, OtherInitialWeightsOrAnotherUpdateAreAnErrorAtTheFirstPush) {
  for (const bool update_differs : {false, true}) {
    group_test::Groups groups(100);
    std::vector<std::unique_ptr<Parameters>> all;
    for (int rank = 0; rank < kRanks; ++rank) {
      const bool differs = rank == 1;
      const std::vector<float> initial(100, differs && !update_differs ? 1.0f : 2.0f);
      all.push_back(std::make_unique<Parameters>(groups.group(rank), initial,
                                                 differs && update_differs ? Update::sgd(0.5f) : Update::add()));
    }
    std::vector<Group::Operation> pushes;
    for (int rank = 0; rank < kRanks; ++rank) {
      pushes.push_back(all[static_cast<std::size_t>(rank)]->push(groups.tensor(rank).data()));
    }
    for (int rank = 0; rank < kRanks; ++rank) {
      EXPECT_NE(error_of<gpusock::Error>([&] { groups.group(rank).wait(pushes[static_cast<std::size_t>(rank)]); }), "");
    }
  }
}

TEST(ParametersOfAGroup, MisuseIsRefused) {
  gpusock::Context context;
  Group group(context, 0, kRanks);
  EXPECT_NE(error_of<gpusock::Error>([&] { Parameters none(group, {}, Update::add()); }).find("0 weights"),
            std::string::npos);
  const std::vector<float> initial(10);
  Parameters parameters(group, initial, Update::add());
  EXPECT_NE(error_of<gpusock::Error>([&] { parameters.push(nullptr); }).find("call connect first"), std::string::npos);
  EXPECT_EQ(parameters.version(), 0);
}

}  // namespace
