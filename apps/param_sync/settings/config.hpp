#pragma once
/// @file The settings of a run: the command line gives them, and the nodes are made from them.

#include "gpusock/endpoint.hpp"
#include "param_sync/bootstrap/launch.hpp"
#include "param_sync/cost/exchange_prices.hpp"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace param_sync {

inline constexpr double kStartSecondsMin = 30;  ///< nodes get at least so long to start, however short --timeout is

/// Each node owns an equal share of each layer and adds in rank order: weights are those of --serial, bit for bit.
inline constexpr const char* kDefaultScheme = "ps:even";

/// What to do if a launcher, or one of its variables, does not do what it should.
inline constexpr const char* kWithoutLauncher =
    "; or give --nodes to start all nodes here, whatever the environment says";

/// The orders of --budget-order, as codec::ChangeOrder has them.
inline constexpr const char* kBudgetOrders[] = {"largest", "random", "oldest"};

/// The models of --model. The first is the default.
inline constexpr const char* kMlp = "mlp";      ///< fully connected layers: `hidden`
inline constexpr const char* kLenet = "lenet";  ///< convolutions, then fully connected layers

/// The values of --batch-norm. The first is the default.
inline constexpr const char* kNoBatchNorm = "none";
inline constexpr const char* kBatchNormNode = "node";  ///< each node normalizes by its own part of the batch
inline constexpr const char* kBatchNormAll = "all";    ///< by the whole batch: nodes share sums within a step

/// Where a node ends, for trials (--fail-at).
enum class FailPhase : std::uint32_t {
  compute,  ///< before a step's gradients are there
  push,     ///< when an owner has a part of them
  pull,     ///< when all are pushed, before weights are pulled
  take,     ///< when some of the weights are pulled
  view      ///< while nodes agree on who goes on; the step is then the number of that agreement, from 1
};
inline constexpr const char* kFailPhases[] = {"compute", "push", "pull", "take", "view"};

struct FailAt {
  int rank = 0;            ///< when the run begins
  std::uint64_t step = 0;  ///< from 0
  FailPhase phase = FailPhase::compute;
};

/// How many nodes go on after a step.
struct NodesAfter {
  std::uint64_t step = 0;  ///< counted as the nodes that were there until then count
  int nodes = 0;
};

struct Config {
  // The same on all nodes
  int nodes = 4;
  std::string model = kMlp;
  std::vector<std::uint32_t> hidden = {128, 64};  ///< with kMlp: widths of the hidden layers
  std::string batch_norm = kNoBatchNorm;          ///< with kLenet: of the convolutions
  std::uint32_t epochs = 2;
  std::uint32_t batch = 64;  ///< samples of a step on each node
  float learning_rate = 0.05f;
  std::uint64_t warmup_steps = 0;  ///< first steps, in which the learning rate rises linearly; 0: none
  int elastic_lr_nodes = 0;  ///< for so many nodes learning_rate is, and it is in proportion to nodes; 0: it is not
  float momentum = 0.9f;
  std::uint64_t seed = 1;
  std::uint64_t limit = 0;  ///< training samples used; 0: all
  std::string data = "/usr/share/datasets/fashion-mnist";
  gpusock::LinkKind link = gpusock::LinkKind::automatic;
  std::string scheme = kDefaultScheme;  ///< how gradients are exchanged: layer_schemes.hpp
  std::string sync;                     ///< the clock of the store through which gradients go; empty: by `scheme`
  int replicas = 1;                     ///< with a store: how many nodes have each range of weights (StoreOptions)
  std::string outer;             ///< with averages: what is done with them (plan/outer.hpp); empty: they are taken
  std::string codec;             ///< with a store: how pushes and pulls are sent (plan/store_codec.hpp)
  bool error_feedback = true;    ///< what a push of `codec` leaves out is kept for later ones
  bool stale_lr = false;         ///< owners divide late pushes by their lag
  float delay_compensation = 0;  ///< see Correction::compensation
  std::uint64_t device_pool_bytes = 0;  ///< with a store: limit of weights and gradients (plan/pool_plan.hpp); 0: none
  std::uint64_t tile_bytes = 0;  ///< fully connected layers use so many bytes of weights at a time (Bands); 0: all
  ExchangePrices prices;
  bool measures_prices = false;          ///< before anything else
  std::uint64_t fuse_bytes = 0;          ///< neighbouring layers go together, up to so many bytes
  int credits = 0;                       ///< at most so many nodes send gradients to one owner at a time; 0: any number
  std::uint64_t budget_bytes = 0;        ///< limit of what a node sends in a step; 0: none
  std::string budget_order = "largest";  ///< which changes are sent first within a budget: kBudgetOrders
  bool priority = true;                  ///< what the next forward pass needs first is sent first
  bool overlap = true;                   ///< gradients are sent while those of other layers are still computed
  double timeout_s = 30;                 ///< of any wait for another node
  std::string checkpoint_folder;         ///< empty: no checkpoints
  std::uint64_t checkpoint_steps = 100;  ///< between two checkpoints
  std::string publish;                   ///< where rank 0 publishes its weights; empty: nowhere
  std::uint64_t publish_steps = 10;      ///< between two versions that it publishes
  std::string resume;                    ///< "latest" or a step; empty: from the beginning

  // This process's part
  int rank = -1;                          ///< -1: all nodes, see below
  std::vector<std::string> peers;         ///< HOST:PORT of each rank, this one's included
  bool in_process = false;                ///< all nodes as threads and contexts of this process
  bool serial = false;                    ///< all nodes' work one after the other, without sockets
  std::string delays;                     ///< how long steps take, with `serial` or `step_ms` (plan/delays.hpp)
  double step_ms = 0;                     ///< with a store: time that a step of a node takes at least, times its delay
  std::vector<std::uint64_t> lost_after;  ///< with `serial`: steps after which a node is lost, one each
  std::vector<NodesAfter> nodes_after;    ///< likewise, if nodes join, too
  std::vector<std::string> join;          ///< HOST:PORT of members that this node asks to let it join
  std::optional<bootstrap::Launch> launch;  ///< set if a launcher gives the rank and no option chose how to run
  std::vector<FailAt> fail_at;              ///< which nodes end themselves; a node has only its own
  std::optional<double> connect_s;          ///< set for views after the first one
  int control_fd = -1;                      ///< of a node that a cluster has started: the socket to the cluster
  std::string json_file;
  std::string series_file;
  std::string trace_file;
  std::uint64_t trace_steps = 10;  ///< how many of this run's first steps are traced
  std::string weights_file;
  std::string history_file;

  /// True if this program is to start several nodes on one GPU, that of GPUSOCK_GPU: they must run in one process.
  /// Kernels of several processes take turns on a GPU, so that nodes which wait for each other would also wait for
  /// their time slices. `device`: "cpu" or "cuda".
  bool shares_gpu(std::string_view device) const {
    return device == "cuda" && nodes > 1 && rank < 0 && !launch && !serial;
  }

  /// How long nodes wait for each other's connections. Nodes that this program has started all run by then: one that
  /// takes long is only slow. Nodes that were started otherwise may never come.
  double connect_timeout_s() const {
    if (connect_s) return *connect_s;
    const bool all_there = peers.empty() && !launch && join.empty();
    return all_there ? std::max(timeout_s, kStartSecondsMin) : timeout_s;
  }
};

}  // namespace param_sync
