#include "training/store_checkpoints.hpp"

#include "plan/exchange_plan.hpp"
#include "plan/plan.hpp"
#include "plan/store_ranges.hpp"
#include "training/run_settings.hpp"

#include "gpusock/error.hpp"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace param_sync {
namespace {

constexpr std::string_view kFolderPrefix = "nodes-";

std::string folder_of(const Config& config) {
  return config.checkpoint_folder + "/" + std::string(kFolderPrefix) + std::to_string(config.nodes);
}

/// The numbers of nodes of which there may be checkpoints.
std::vector<int> numbers_of_nodes(const Config& config) {
  std::vector<int> all;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(config.checkpoint_folder, error)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(kFolderPrefix)) continue;
    int nodes = 0;
    const char* const end = name.data() + name.size();
    const auto read = std::from_chars(name.data() + kFolderPrefix.size(), end, nodes);
    if (read.ec == std::errc() && read.ptr == end && nodes >= 1 && nodes <= kNodesMax) all.push_back(nodes);
  }
  return all;
}

/// What is here of a view of so many nodes.
struct Found {
  Config view;
  std::vector<int> ranks;  ///< whose files are here
  std::uint64_t step = 0;  ///< the newest that all of these have; 0: none

  /// True if there is a checkpoint with the files of all ranks.
  bool is_whole() const { return step != 0 && static_cast<int>(ranks.size()) == view.nodes; }
  std::uint64_t samples() const { return step * static_cast<std::uint64_t>(view.nodes); }
};

Found find_view(const Config& config, const Dataset& data, int nodes) {
  Found found{config, {}};
  found.view.nodes = nodes;
  std::vector<std::uint64_t> common;
  for (int rank = 0; rank < nodes; ++rank) {
    found.view.rank = rank;
    const std::vector<std::uint64_t> steps = checkpoint_files(found.view, data).steps();
    if (steps.empty()) continue;
    if (found.ranks.empty()) common = steps;
    std::erase_if(common, [&](std::uint64_t step) { return std::ranges::find(steps, step) == steps.end(); });
    found.ranks.push_back(rank);
  }
  if (config.resume != "latest") {
    std::erase_if(common, [&](std::uint64_t step) { return std::to_string(step) != config.resume; });
  }
  if (!common.empty()) found.step = common.front();
  return found;
}

/// Adds what the file of a rank has of the ranges that it owned.
void add_ranges(Found found, int rank, const Dataset& data, HeldTraining& held) {
  found.view.rank = rank;
  const Checkpoint checkpoint = checkpoint_files(found.view, data).read(found.step);
  const std::vector<StoreRange> ranges = store_ranges(Plan::make(found.view, data).layout, found.view.nodes);
  for (std::size_t range = 0; range < ranges.size(); ++range) {
    const auto [begin, end] = ranges[range].parameters;
    const auto part = [&, first = begin, last = end](const std::vector<float>& all) {
      return std::vector<float>(all.begin() + first, all.begin() + last);
    };
    if (ranges[range].owner == rank)
      held.ranges.push_back({range, 0, part(checkpoint.weights), part(checkpoint.states)});
  }
}

}  // namespace

CheckpointFiles checkpoint_files(const Config& config, const Dataset& data) {
  const Plan plan = Plan::make(config, data);
  return {folder_of(config), config.rank, plan.layout,
          run_settings(config, data, plan, make_exchange_plan(config, plan.layout), 0)};
}

std::optional<HeldTraining> find_checkpoint(const Config& config, const Dataset& data) {
  std::vector<Found> views;
  for (const int nodes : numbers_of_nodes(config)) views.push_back(find_view(config, data, nodes));
  const bool has_files = std::ranges::any_of(views, [](const Found& of) { return !of.ranks.empty(); });
  // If all nodes share the folder, a newer one that lacks files was not completed.
  const bool is_shared = std::ranges::any_of(views, &Found::is_whole);
  std::erase_if(views, [&](const Found& of) { return of.step == 0 || (is_shared && !of.is_whole()); });
  const auto newest = std::ranges::max_element(views, {}, &Found::samples);
  if (newest == views.end() && has_files && config.resume == "latest") throw_none_is_whole(config.checkpoint_folder);
  if (newest == views.end()) return std::nullopt;
  HeldTraining held{kCheckpointView, newest->view.nodes, newest->step, {}, {}};
  for (const int rank : newest->ranks) {
    if (!is_shared || rank % config.nodes == config.rank) add_ranges(*newest, rank, data, held);
  }
  return held;
}

void remove_checkpoints_before(const Config& config, int nodes_before) {
  if (nodes_before == config.nodes) return;
  Config before = config;
  before.nodes = nodes_before;
  std::error_code gone;  // another node has removed it
  std::filesystem::remove_all(folder_of(before), gone);
}

}  // namespace param_sync
