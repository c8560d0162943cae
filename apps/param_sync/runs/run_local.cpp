#include "runs/runs.hpp"

#include "checkpoint/safetensors.hpp"
#include "plan/plan.hpp"
#include "report/progress.hpp"
#include "training/serial.hpp"
#include "program/run.hpp"
#include "program/stop_signals.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>

namespace param_sync {
namespace {

/// The nodes of one process learn each other's addresses here. If a node fails, the others wait no longer.
class AddressExchange {
 public:
  explicit AddressExchange(int nodes) : addresses_(static_cast<std::size_t>(nodes)), missing_(nodes) {}

  /// Waits for all nodes and returns their addresses; returns nothing if one has failed.
  std::vector<gpusock::Endpoint> exchange_addresses(int rank, const gpusock::Endpoint& address) {
    std::unique_lock lock(mutex_);
    addresses_[static_cast<std::size_t>(rank)] = address;
    --missing_;
    changed_.notify_all();
    changed_.wait(lock, [&] { return missing_ == 0 || failed_; });
    return failed_ ? std::vector<gpusock::Endpoint>{} : addresses_;
  }

  void fail() {
    std::lock_guard lock(mutex_);
    failed_ = true;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<gpusock::Endpoint> addresses_;
  int missing_;
  bool failed_ = false;
};

/// The nodes of this process that may be told to stop.
class Stoppables {
 public:
  void add(Node& node) {
    std::lock_guard lock(mutex_);
    nodes_.push_back(&node);
    if (stopped_) node.request_stop();
  }
  void remove(Node& node) {
    std::lock_guard lock(mutex_);
    std::erase(nodes_, &node);
  }
  void stop_all() {
    std::lock_guard lock(mutex_);
    stopped_ = true;
    for (Node* node : nodes_) node->request_stop();
  }

 private:
  std::mutex mutex_;
  std::vector<Node*> nodes_;
  bool stopped_ = false;
};

struct InProcessRun {
  const Config& config;
  const Dataset& data;
  AddressExchange addresses;
  Stoppables stoppables;
  ProgressLine line;
  std::vector<NodeReport> reports;
  std::vector<float> weights;
  std::vector<std::exception_ptr> failures;
  std::vector<std::unique_ptr<Node>> nodes;

  InProcessRun(const Config& run, const Dataset& dataset)
      : config(run),
        data(dataset),
        addresses(run.nodes),
        line(run.nodes, run.batch),
        reports(static_cast<std::size_t>(run.nodes)),
        failures(static_cast<std::size_t>(run.nodes)) {}

  /// Makes all nodes before the first one runs a kernel. If they do not fit, gpusock::Error says how many nodes do.
  void make_nodes() {
    for (int rank = 0; rank < config.nodes; ++rank) {
      Config mine = config;
      mine.rank = rank;
      try {
        nodes.push_back(std::make_unique<Node>(mine, data));
      } catch (const gpusock::Error& error) {
        if (error.code().value() != ENOBUFS || nodes.empty()) throw;
        throw gpusock::Error::with_cause(
            ENOBUFS,
            fmt::format("{0} nodes fit in one process here, and {1} were asked for: give --nodes {0}, or use more GPUs "
                        "({2})",
                        rank, config.nodes, error.what()));
      }
    }
  }

  void run_node(int rank) {
    std::unique_ptr<Node>& node = nodes[static_cast<std::size_t>(rank)];
    stoppables.add(*node);
    try {
      train(*node, rank);
    } catch (...) {
      failures[static_cast<std::size_t>(rank)] = std::current_exception();
      addresses.fail();
    }
    stoppables.remove(*node);
    node.reset();  // so that its peers learn of its end
  }

  void train(Node& node, int rank) {
    gpusock::Endpoint at = gpusock::Endpoint::parse("127.0.0.1:0");
    at.link = config.link;
    at = node.listen(at);
    tell_where_published(node.publishes_at());
    const auto peers = addresses.exchange_addresses(rank, at);
    if (peers.empty()) throw Interrupted();
    node.connect(peers);
    reports[static_cast<std::size_t>(rank)] = node.train([&](const Progress& now) {
      line.note_waiting(rank, now.waited_s, now.train_s);
      if (rank == 0) line.show(now);
    });
    if (rank == 0) weights = node.weights();
  }
};

/// Prints why nodes have failed; true if any has. Throws Interrupted if the run was interrupted and none has failed.
bool tell_failures(const std::vector<std::exception_ptr>& failures) {
  bool told = false, interrupted = false;
  for (const std::exception_ptr& failure : failures) {
    if (!failure) continue;
    try {
      std::rethrow_exception(failure);
    } catch (const Interrupted&) {
      interrupted = true;
    } catch (const std::exception& error) {
      fmt::print(stderr, "param_sync: {}\n", error.what());
      told = true;
    }
  }
  if (interrupted && !told) throw Interrupted();
  return told;
}

}  // namespace

int tell_results(const RunReport& run) {
  gpusock::program::print(run.summary());
  run.write_files();
  if (run.same_weights()) return 0;
  fmt::print(stderr, "param_sync: the nodes' weights differ; this is a defect, please report it\n");
  return 1;
}

void tell_where_published(const std::optional<gpusock::Endpoint>& at) {
  if (at) gpusock::program::print_now("publishing weights at " + at->to_string() + "\n");
}

std::string device_name() {
#if defined(GPUSOCK_DEVICE_CUDA)
  return "cuda";
#else
  return "cpu";
#endif
}

int run_in_process(const Config& config) {
  const Dataset data = load_dataset(config.data, config.limit);
  gpusock::program::block_stop_signals();
  InProcessRun run(config, data);
  run.make_nodes();
  {
    gpusock::program::StopWatcher watcher([&](int) { run.stoppables.stop_all(); });
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < config.nodes; ++rank) threads.emplace_back([&run, rank] { run.run_node(rank); });
  }
  gpusock::program::unblock_stop_signals();
  if (tell_failures(run.failures)) return 1;
  const Layout layout = Plan::make(config, data).layout;
  if (!config.weights_file.empty()) safetensors::write_weights(config.weights_file, layout, run.weights);
  return tell_results({config, layout, device_name(), run.reports});
}

int run_serial(const Config& config) {
  const Dataset data = load_dataset(config.data, config.limit);
  gpusock::program::block_stop_signals();
  std::atomic<bool> stop{false};
  const SerialResult result = [&] {
    gpusock::program::StopWatcher watcher([&](int) { stop = true; });
    ProgressLine line(config.nodes, config.batch);
    return train_serially(
        config, data, [&](const Progress& now) { line.show(now); }, stop);
  }();
  gpusock::program::unblock_stop_signals();
  const Layout layout = Plan::make(config, data).layout;
  if (!config.weights_file.empty()) safetensors::write_weights(config.weights_file, layout, result.weights);
  return tell_results({config, layout, device_name(), {result.report}});
}

}  // namespace param_sync
