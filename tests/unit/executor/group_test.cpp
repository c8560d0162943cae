// The public API: what each operation leaves in the tensors.
#include "param_sync/group.hpp"
#include "tests/support/error_of.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <thread>

namespace {

using gpusock::Endpoint;
using gpusock::test::error_of;
using param_sync::Group;
using param_sync::GroupOptions;
using param_sync::TensorPart;

constexpr int kRanks = 3;

class Groups {
 public:
  explicit Groups(std::size_t floats, const GroupOptions& options = {}) : floats_(floats) {
    std::vector<Endpoint> addresses;
    for (int rank = 0; rank < kRanks; ++rank) {
      contexts_.push_back(std::make_unique<gpusock::Context>());
      groups_.push_back(std::make_unique<Group>(*contexts_.back(), rank, kRanks, options));
      tensors_.push_back(std::make_unique<gpusock::DeviceBuffer<float>>(*contexts_.back(), floats));
      addresses.push_back(groups_.back()->listen(Endpoint::parse("127.0.0.1:0,link=p2p")));
    }
    std::vector<std::jthread> connecting;
    for (const auto& group : groups_) connecting.emplace_back([&group, &addresses] { group->connect(addresses); });
  }

  /// Runs an operation on all ranks, whose tensors hold rank * 1000 + index before; what they hold after it.
  template <class Start>
  std::vector<std::vector<float>> run(Start start) {
    std::vector<Group::Operation> operations;
    for (int rank = 0; rank < kRanks; ++rank) {
      std::vector<float> input;
      for (std::size_t i = 0; i < floats_; ++i) input.push_back(value(rank, i));
      tensor(rank).copy_in(input);
    }
    for (int rank = 0; rank < kRanks; ++rank) operations.push_back(start(group(rank), tensor(rank).data()));
    std::vector<std::vector<float>> results;
    for (int rank = 0; rank < kRanks; ++rank) {
      group(rank).wait(operations[static_cast<std::size_t>(rank)]);
      EXPECT_TRUE(group(rank).done(operations[static_cast<std::size_t>(rank)]));
      results.emplace_back(floats_);
      tensor(rank).copy_out(results.back());
    }
    return results;
  }

  static float value(int rank, std::size_t i) { return static_cast<float>(rank * 1000 + static_cast<int>(i)); }
  static float sum(std::size_t i) { return value(0, i) + value(1, i) + value(2, i); }

  Group& group(int rank) { return *groups_[static_cast<std::size_t>(rank)]; }
  gpusock::DeviceBuffer<float>& tensor(int rank) { return *tensors_[static_cast<std::size_t>(rank)]; }

 private:
  std::size_t floats_;
  std::vector<std::unique_ptr<gpusock::Context>> contexts_;
  std::vector<std::unique_ptr<gpusock::DeviceBuffer<float>>> tensors_;
  std::vector<std::unique_ptr<Group>> groups_;
};

TEST(GroupOperations, LeaveInTheTensorsWhatTheyPromise) {
  for (const std::size_t floats : {std::size_t{2}, std::size_t{100}, std::size_t{10'000}}) {
    Groups groups(floats);
    for (const auto& result : groups.run([&](Group&group, float*data) { return group.all_reduce(data, floats); })) {
      for (std::size_t i = 0; i < floats; ++i) ASSERT_EQ(result[i], Groups::sum(i)) << i;
    }
    auto results = groups.run([&](Group& group, float* data) { return group.reduce_scatter(data, floats); });
    for (int rank = 0; rank < kRanks; ++rank) {
      const TensorPart part = groups.group(rank).part(rank, floats);
      for (std::size_t i = part.begin; i < part.end; ++i) {
        ASSERT_EQ(results[static_cast<std::size_t>(rank)][i], Groups::sum(i)) << i;
      }
    }
    for (const auto& result : groups.run([&](Group&group, float*data) { return group.all_gather(data, floats); })) {
      for (int rank = 0; rank < kRanks; ++rank) {
        const TensorPart part = groups.group(rank).part(rank, floats);
        for (std::size_t i = part.begin; i < part.end; ++i) ASSERT_EQ(result[i], Groups::value(rank, i)) << i;
      }
    }
    for (int root = 0; root < kRanks; ++root) {
      results = groups.run([&](Group& group, float* data) { return group.broadcast(data, floats, root); });
      for (const auto& result : results) {
        for (std::size_t i = 0; i < floats; ++i) ASSERT_EQ(result[i], Groups::value(root, i)) << i;
      }
    }
  }
}

TEST(GroupOperations, ABarrierEndsWhenAllHaveStartedIt) {
  Groups groups(1);
  const auto first = groups.group(0).barrier(), second = groups.group(1).barrier();
  EXPECT_FALSE(groups.group(0).done(first));
  EXPECT_FALSE(groups.group(1).done(second));
  groups.group(2).wait(groups.group(2).barrier());
  groups.group(0).wait(first);
  groups.group(1).wait(second);
}

std::string error_of_group(const GroupOptions& options, int rank = 0, int nodes = kRanks) {
  gpusock::Context context;
  return error_of<gpusock::Error>([&] { Group group(context, rank, nodes, options); });
}

TEST(GroupOperations, DeterministicSumsAreInRankOrderOrRefused) {
  GroupOptions options;
  options.deterministic = true;
  Groups groups(5, options);
  const auto results = groups.run([](Group& group, float* data) { return group.all_reduce(data, 5); });
  EXPECT_EQ(results[2][4], Groups::sum(4));
  options.all_reduce = "ring";
  EXPECT_NE(error_of_group(options).find("ring does not add in the order of ranks for 3 ranks: take \"chain\""),
            std::string::npos);
  options.all_reduce = "chain";
  EXPECT_EQ(error_of_group(options), "");
}

TEST(GroupOperations, MisuseIsRefused) {
  GroupOptions options;
  options.all_reduce = "sing";
  EXPECT_NE(error_of_group(options).find("there is no scheme \"sing\""), std::string::npos);
  options.all_reduce = "byteps";
  EXPECT_NE(error_of_group(options).find("needs settings of its own"), std::string::npos);
  EXPECT_NE(error_of_group({}, 3).find("ranks are 0 to 2"), std::string::npos);
  EXPECT_NE(error_of_group({}, 0, 65).find("65 ranks, not 1 to 64"), std::string::npos);
  gpusock::Context context;
  Group group(context, 0, kRanks);
  EXPECT_THROW(group.barrier(), gpusock::Error);
}

}  // namespace
