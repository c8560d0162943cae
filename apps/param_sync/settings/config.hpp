#pragma once
/// @file What a run is: the settings that the command line gives, and the nodes are made from.

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

inline constexpr double kStartSecondsMin = 30;  ///< to come up takes what the machine takes, however short --timeout is

/// Each node owns an equal share of each layer, and adds in rank order: the weights are those of --serial, bit for bit.
inline constexpr const char* kDefaultScheme = "ps:even";

/// What to do where a launcher, or a variable of its, does not do what it should.
inline constexpr const char* kWithoutLauncher =
    "; or give --nodes to start all nodes here, whatever the environment says";

struct Config {
  // The same on all nodes
  int nodes = 4;
  std::vector<std::uint32_t> hidden = {128, 64};  ///< widths of the hidden layers
  std::uint32_t epochs = 2;
  std::uint32_t batch = 64;  ///< samples of a step on each node
  float learning_rate = 0.05f;
  float momentum = 0.9f;
  std::uint64_t seed = 1;
  std::uint64_t limit = 0;  ///< training samples used; 0: all
  std::string data = "/usr/share/datasets/fashion-mnist";
  gpusock::LinkKind link = gpusock::LinkKind::automatic;
  std::string scheme = kDefaultScheme;  ///< how gradients are exchanged: layer_schemes.hpp
  ExchangePrices prices;
  bool measures_prices = false;          ///< first of all
  std::uint64_t fuse_bytes = 0;          ///< neighbouring layers of so many bytes at most go together
  int slots = 0;                         ///< at most so many nodes send gradients to one owner at a time; 0: any number
  std::uint64_t budget_bytes = 0;        ///< of what a node sends in a step, the largest changes first; 0: any number
  bool priority = true;                  ///< what the next forward pass needs first is sent first
  bool overlap = true;                   ///< gradients go while those of other layers are still computed
  double timeout_s = 30;                 ///< for any wait on another node
  std::string checkpoint_folder;         ///< empty: no checkpoints
  std::uint64_t checkpoint_steps = 100;  ///< between two checkpoints
  std::string resume;                    ///< "latest" or a step; empty: from the beginning

  // This process's part
  int rank = -1;                            ///< -1: all nodes, see below
  std::vector<std::string> peers;           ///< HOST:PORT of each rank, this one's included
  bool in_process = false;                  ///< all nodes as threads and contexts of this process
  bool serial = false;                      ///< all nodes' work one after the other, without sockets
  std::optional<bootstrap::Launch> launch;  ///< where neither --nodes nor a way to run was chosen, and a launcher gives
                                            ///< the rank
  int control_fd = -1;                      ///< rank started by a cluster: the socket to it
  std::string json_file;
  std::string series_file;
  std::string trace_file;
  std::uint64_t trace_steps = 10;  ///< that are in it: the first ones of this run
  std::string weights_file;

  /// True where this program is to start several nodes on one GPU, that of GPUSOCK_GPU: they have to run in one
  /// process. Kernels of several processes take turns on a GPU, one time slice each, and nodes that wait for each other
  /// would wait for turns. `device`: "cpu" or "cuda".
  bool shares_gpu(std::string_view device) const {
    return device == "cuda" && nodes > 1 && rank < 0 && !launch && !serial;
  }

  /// How long nodes wait for each other's connections. Those that this program has started are all there by then, so
  /// that one that takes long is slow; those of others may never come.
  double connect_timeout_s() const {
    const bool all_there = peers.empty() && !launch;
    return all_there ? std::max(timeout_s, kStartSecondsMin) : timeout_s;
  }
};

}  // namespace param_sync
