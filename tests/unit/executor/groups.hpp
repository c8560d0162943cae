#pragma once
/// @file Groups of all ranks in this process, each with a tensor.

#include "param_sync/group.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <thread>
#include <vector>

namespace group_test {

using param_sync::Group;
using param_sync::GroupOptions;

inline constexpr int kRanks = 3;
// Stores have rings of this size: small ones, so that few floats are more than a ring. A group's own are of
// GroupOptions.
inline constexpr const char* kAddress = "127.0.0.1:0,link=p2p,ring=32K";

class Groups {
 public:
  explicit Groups(std::size_t floats, const GroupOptions& options = {}) : floats_(floats) {
    std::vector<gpusock::Endpoint> addresses;
    for (int rank = 0; rank < kRanks; ++rank) {
      contexts_.push_back(std::make_unique<gpusock::Context>());
      groups_.push_back(std::make_unique<Group>(*contexts_.back(), rank, kRanks, options));
      tensors_.push_back(std::make_unique<gpusock::DeviceBuffer<float>>(*contexts_.back(), floats));
      addresses.push_back(groups_.back()->listen(gpusock::Endpoint::parse(kAddress)));
    }
    std::vector<std::jthread> connecting;
    for (const auto& group : groups_) connecting.emplace_back([&group, &addresses] { group->connect(addresses); });
  }

  /// Waits for each rank's operation.
  void wait(const std::vector<Group::Operation>& operations) {
    for (int rank = 0; rank < kRanks; ++rank) group(rank).wait(operations[static_cast<std::size_t>(rank)]);
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

  /// Ends the rank's group.
  void end(int rank) { groups_[static_cast<std::size_t>(rank)].reset(); }

  Group& group(int rank) { return *groups_[static_cast<std::size_t>(rank)]; }
  gpusock::Context& context(int rank) { return *contexts_[static_cast<std::size_t>(rank)]; }
  gpusock::DeviceBuffer<float>& tensor(int rank) { return *tensors_[static_cast<std::size_t>(rank)]; }

 private:
  std::size_t floats_;
  std::vector<std::unique_ptr<gpusock::Context>> contexts_;
  std::vector<std::unique_ptr<gpusock::DeviceBuffer<float>>> tensors_;
  std::vector<std::unique_ptr<Group>> groups_;
};

}  // namespace group_test
