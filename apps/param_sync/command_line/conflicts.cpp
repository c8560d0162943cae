#include "command_line/conflicts.hpp"

#include "layout/layout.hpp"
#include "plan/exchange_plan.hpp"
#include "plan/layer_schemes.hpp"
#include "plan/plan.hpp"
#include "plan/store_codec.hpp"
#include "plan/sync.hpp"
#include "param_sync/bootstrap/launch.hpp"
#include "param_sync/schedule/schemes.hpp"

#include "gpusock/gpusock.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <cstddef>
#include <filesystem>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace param_sync {
namespace {

/// An option, and whether it was given.
using GivenOption = std::pair<const char*, bool>;

/// Says that `option` does not go with the first of `others` that was given; empty if none was.
std::string excluded(std::string_view option, std::span<const GivenOption> others,
                     std::string_view what_to_do = "give one of them") {
  for (const auto& [other, given] : others) {
    if (given) return fmt::format("{} and {} exclude each other: {}", option, other, what_to_do);
  }
  return "";
}

/// True if writing to one path would overwrite what was written to the other one.
bool overwrite_each_other(const std::string& one, const std::string& other) {
  namespace fs = std::filesystem;
  if (one == "-" || other == "-") return one == other;
  std::error_code unknown;
  if (fs::exists(one, unknown)) return fs::is_regular_file(one, unknown) && fs::equivalent(one, other, unknown);
  return fs::absolute(one, unknown).lexically_normal() == fs::absolute(other, unknown).lexically_normal();
}

/// Says what is wrong with the files that are written; empty if nothing is.
std::string problem_of_files(const Config& config) {
  const std::pair<const char*, const std::string&> files[] = {{"--json", config.json_file},
                                                              {"--series", config.series_file},
                                                              {"--trace", config.trace_file},
                                                              {"--history", config.history_file},
                                                              {"--save-weights", config.weights_file}};
  for (const auto& [option, file] : files) {
    for (const auto& [earlier, name] : files) {
      if (earlier == option) break;
      if (file.empty() || name.empty() || !overwrite_each_other(name, file)) continue;
      return fmt::format("{} and {} name the same file, {}: give each one of its own", earlier, option, file);
    }
  }
  return "";
}

/// Says what does not go with --device-pool; empty if nothing is.
std::string problem_of_pool(const Config& config, const SyncPlan& sync) {
  if (config.device_pool_bytes == 0) return "";
  if (config.sync.empty() || sync.local_steps != 0 || sync.depth != 0) {
    return "--device-pool needs --sync bsp, ssp:S or async, in which weights are pulled after each step";
  }
  if (config.serial) return "--device-pool is for nodes, and --serial has none: leave one of them out";
  if (store_codec_of(config.codec).chooses()) {
    return "--device-pool and --codec top:... or random:... exclude each other: what pushes leave out has the model's "
           "size";
  }
  return "";
}

/// Says what does not go with --join; empty if nothing is.
std::string problem_of_join(const Config& config, bool names_nodes) {
  if (config.join.empty()) return "";
  const GivenOption others[] = {
      {"--nodes", names_nodes},    {"--rank", config.rank >= 0},        {"--peers", !config.peers.empty()},
      {"--serial", config.serial}, {"--in-process", config.in_process}, {"--resume", !config.resume.empty()}};
  if (const std::string problem = excluded("--join", others, "the nodes that train say how many there are");
      !problem.empty())
    return problem;
  if (config.replicas == 1) return "--join needs --sync bsp and --replicas, as the nodes that train have them";
  return "";
}

/// Says what does not go with --replicas, --lost or --nodes-after; empty if nothing is.
std::string problem_of_replicas(const Config& config) {
  if (!config.lost_after.empty() && (!config.serial || config.sync != "bsp")) return "--lost needs --serial --sync bsp";
  if (!config.nodes_after.empty() && (!config.serial || config.sync != "bsp")) {
    return "--nodes-after needs --serial --sync bsp";
  }
  if (!config.nodes_after.empty() && !config.lost_after.empty()) {
    return "--lost and --nodes-after exclude each other: --nodes-after says both who is lost and who joins";
  }
  if (config.lost_after.size() >= static_cast<std::size_t>(config.nodes)) {
    return fmt::format("--lost names {} nodes of {}: none is left", config.lost_after.size(), config.nodes);
  }
  if (!config.fail_at.empty() && (config.sync.empty() || config.serial || config.in_process)) {
    return "--fail-at is for nodes that are processes, and needs --sync";
  }
  for (const FailAt& at : config.fail_at) {
    if (at.rank >= (config.join.empty() ? config.nodes : kNodesMax))
      return fmt::format("--fail-at: there is no rank {} of {}", at.rank, config.nodes);
  }
  if (config.replicas == 1) return "";
  if (config.sync != "bsp") return "--replicas needs --sync bsp";
  if (config.replicas > config.nodes && config.join.empty()) {
    return fmt::format("--replicas {} of --nodes {}: there are at most as many replicas as nodes", config.replicas,
                       config.nodes);
  }
  const GivenOption others[] = {
      {"--in-process", config.in_process},    {"--serial", config.serial},
      {"--codec", !config.codec.empty()},     {"--device-pool", config.device_pool_bytes != 0},
      {"--publish", !config.publish.empty()}, {"--history", !config.history_file.empty()}};
  return excluded("--replicas", others);
}

/// Says what does not go with --sync backup:B and coded:K; empty if nothing is.
std::string problem_of_late_drops(const Config& config, const SyncPlan& sync) {
  if (!sync.drops_late()) return "";
  if (const std::string problem = problem_of(sync.clock, config.nodes); !problem.empty()) return "--sync " + problem;
  const GivenOption others[] = {{"--codec", !config.codec.empty()},
                                {"--device-pool", config.device_pool_bytes != 0},
                                {"--publish", !config.publish.empty()}};
  if (const std::string problem = excluded("--sync backup:B or coded:K", others); !problem.empty()) return problem;
  if (config.stale_lr || config.delay_compensation != 0) {
    return "--sync backup:B and coded:K drop late pushes: leave out --stale-lr and --delay-compensation";
  }
  if (!config.history_file.empty()) {
    return "--history is of pushes that all count: it needs another --sync than backup:B or coded:K";
  }
  return "";
}

/// Says what does not go with --sync and --checkpoint; empty if nothing is.
std::string problem_of_store_checkpoints(const Config& config) {
  if (config.sync.empty() || config.checkpoint_folder.empty()) return "";
  if (config.sync != "bsp") return "--checkpoint needs --sync bsp, or no --sync: other nodes may be at other steps";
  if (!config.codec.empty()) return "--codec and --checkpoint exclude each other: checkpoints hold no withheld changes";
  if (config.device_pool_bytes != 0) return "--device-pool and --checkpoint exclude each other";
  if (config.in_process && !config.resume.empty()) {
    return "--in-process and --resume exclude each other with --sync: nodes put checkpoints together as processes";
  }
  return "";
}

/// Says what does not go with --sync; empty if nothing is.
std::string problem_of_sync(const Config& config) {
  if (!config.delays.empty() && !config.serial && config.step_ms == 0) {
    return "--delays needs --serial, or --sync and --step-ms MS: real nodes take as long as they take";
  }
  if (config.step_ms != 0 && (config.serial || config.sync.empty() || config.device_pool_bytes != 0)) {
    return "--step-ms is for real nodes with --sync, and not for --serial or --device-pool";
  }
  const SyncPlan sync = sync_of(config.sync);
  if (const std::string problem = problem_of_late_drops(config, sync); !problem.empty()) return problem;
  if (config.stale_lr && sync.is_deterministic()) return "--stale-lr needs --sync ssp:S, async, downpour or slots";
  if (config.delay_compensation != 0 && (sync.is_deterministic() || sync.local_steps != 0)) {
    return "--delay-compensation needs --sync ssp:S or async, in which nodes push gradients";
  }
  if (!config.outer.empty() && !sync.averages()) return "--outer needs --sync every:X or streaming:X,T";
  if (!config.codec.empty() && config.sync.empty()) return "--codec needs --sync";
  if (!config.codec.empty() && config.serial) return "--serial sends nothing, so it takes no --codec";
  if (sync.tree_depth != 0 && store_codec_of(config.codec).pull != WireFormat::float32) {
    return "--sync tree:D passes weights on as fp32: give --codec PUSH alone";
  }
  if (!config.error_feedback && !store_codec_of(config.codec).chooses()) {
    return "--no-error-feedback needs --codec top:... or random:...";
  }
  if (const std::string problem = problem_of_pool(config, sync); !problem.empty()) return problem;
  if (const std::string problem = problem_of_replicas(config); !problem.empty()) return problem;
  if (const std::string problem = problem_of_store_checkpoints(config); !problem.empty()) return problem;
  if (config.sync.empty()) return config.history_file.empty() ? "" : "--history needs --sync";
  const GivenOption others[] = {{"--scheme", config.scheme != kDefaultScheme},
                                {"--fuse", config.fuse_bytes != 0},
                                {"--credits", config.credits != 0},
                                {"--budget", config.budget_bytes != 0},
                                {"--no-priority", !config.priority},
                                {"--no-overlap", !config.overlap},
                                {"--trace", !config.trace_file.empty()}};
  if (const std::string problem = excluded("--sync", others); !problem.empty()) return problem;
  if (!config.history_file.empty() && config.serial && sync.depth != 0) {
    return "--serial has no --history of a pipeline or a tree: there nodes read old versions, and not from a store";
  }
  if (!config.history_file.empty() && config.launch) {
    return "--history is not for nodes that a launcher starts: each would write the same file";
  }
  return "";
}

/// Says what does not go with --batch-norm; empty if nothing is.
std::string problem_of_batch_norm(const Config& config) {
  if (config.batch_norm == kNoBatchNorm) return "";
  if (config.device_pool_bytes != 0) {
    return "--device-pool and --batch-norm exclude each other: weights are not in the pool when gradients are computed";
  }
  if (config.batch_norm != kBatchNormAll) return "";
  const GivenOption others[] = {{"--sync", !config.sync.empty()},
                                {"--budget", config.budget_bytes != 0},
                                {"--credits", config.credits != 0},
                                {"--trace", !config.trace_file.empty()}};
  return excluded("--batch-norm all", others, "give one of them, or --batch-norm node");
}

}  // namespace

std::string conflict_in(const Config& config, bool names_nodes) {
  if (const std::string problem = problem_of_join(config, names_nodes); !problem.empty()) return problem;
  if (int(config.in_process) + int(config.serial) + int(config.rank >= 0) > 1) {
    return "--in-process, --serial and --rank exclude each other: give one of them";
  }
  if (config.nodes > kNodesMax)
    return fmt::format("--peers lists {} nodes; there are at most {}", config.nodes, kNodesMax);
  if (config.rank >= config.nodes) {
    return fmt::format("--rank {} of --nodes {}: ranks are 0 to {}", config.rank, config.nodes, config.nodes - 1);
  }
  if (const std::string problem = problem_of_batch_norm(config); !problem.empty()) return problem;
  const std::vector<AnyLayer> layers = layers_of(config, {.rows = 1, .columns = 1, .classes = 1});
  if (const auto problem = scheme_problem(config.scheme, layers); !problem.empty()) {
    return "--scheme: " + problem;
  }
  if (config.measures_prices && (config.serial || config.rank >= 0 || config.launch)) {
    return "--prices measured is for nodes that this command starts; run it once with these, and give all nodes the "
           "numbers that it prints";
  }
  if (config.serial && !config.publish.empty()) return "--serial is a reference and publishes no weights";
  if (config.serial && !config.trace_file.empty()) return "--serial exchanges nothing that --trace could show";
  if (config.credits != 0 && !all_parts(config.scheme, schedule::has_credits))
    return fmt::format("--credits is for --scheme {}",
                       fmt::join(schedule::schemes_with(schedule::Setting::credits), " and "));
  if (config.credits >= config.nodes && config.credits != 0) {
    return fmt::format("--credits {}: of --nodes {} only {} send to an owner", config.credits, config.nodes,
                       config.nodes - 1);
  }
  if (config.budget_bytes != 0 && !all_parts(config.scheme, has_budget)) {
    return fmt::format("--budget is for --scheme ps and ps:even, in which a node sends its own changes; not for {}",
                       config.scheme);
  }
  if (config.budget_bytes == 0 && config.budget_order != kBudgetOrders[0]) return "--budget-order needs --budget BYTES";
  if (config.budget_bytes != 0 && config.serial) return "--serial sends nothing that --budget could limit";
  if (config.budget_bytes != 0 && config.credits != 0) return "--budget and --credits exclude each other";
  if (config.budget_bytes != 0 && !config.checkpoint_folder.empty()) {
    return "--budget and --checkpoint exclude each other: checkpoints do not hold the changes that were not sent yet";
  }
  if (config.checkpoint_folder.empty() && !config.resume.empty()) return "--resume needs --checkpoint DIR";
  if (config.serial && !config.checkpoint_folder.empty()) return "--serial is a reference and writes no checkpoints";
  if (const std::string problem = problem_of_sync(config); !problem.empty()) return problem;
  if (const std::string problem = problem_of_files(config); !problem.empty()) return problem;
  if (config.control_fd >= 0) return config.rank < 0 ? "--control-fd needs --rank" : "";
  if (config.rank < 0 && !config.peers.empty()) return "--peers is for one node started by hand: give its --rank too";
  if (config.rank >= 0 && config.peers.size() != static_cast<std::size_t>(config.nodes)) {
    return fmt::format(
        "--peers lists {} addresses, but there are --nodes {}: list HOST:PORT of every rank, "
        "this one's included",
        config.peers.size(), config.nodes);
  }
  const std::string same = bootstrap::problem_of_peers(config.peers);
  if (!same.empty()) return "--peers " + same;
  for (const std::string& peer : config.peers) {
    try {
      if (gpusock::Endpoint::parse(peer).port == 0 && config.nodes > 1) {
        return "--peers: " + peer + " has no port; the nodes could not find each other";
      }
    } catch (const gpusock::Error& error) {
      if (error.code().value() == EINVAL) return std::string("--peers: ") + error.what();
    }
  }
  return "";
}

}  // namespace param_sync
