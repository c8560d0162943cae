#pragma once
/// @file What all nodes have, however their gradients become weights: the samples, the model, the loop over the steps.
/// SchemeNode and StoreNode add how ranks exchange gradients and weights.

#include "arithmetic/model.hpp"
#include "checkpoint/writer.hpp"
#include "param_sync/executor/handover.cuh"
#include "plan/plan.hpp"
#include "publishing/publisher.hpp"
#include "training/node.hpp"
#include "training/node_memory.cuh"
#include "training/state.cuh"

#include "gpusock/gpusock.hpp"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <variant>
#include <vector>

namespace param_sync {

struct Node::Impl {
  Impl(const Config& run, const Dataset& dataset, LossObserver loss_observer);
  virtual ~Impl() = default;
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  /// As Node's functions of these names.
  virtual gpusock::Endpoint listen(const gpusock::Endpoint& at) = 0;
  virtual void connect(const std::vector<gpusock::Endpoint>& peers) = 0;
  virtual void request_stop() noexcept = 0;
  virtual std::vector<gpusock::Endpoint> exchange(const gpusock::Endpoint& /*mine*/) { return {}; }
  virtual HeldTraining held() { return {}; }
  NodeReport train(const ProgressSink& progress);

  /// Launches the kernels that stay until the end of the training.
  virtual void launch_residents() = 0;
  /// Launches the kernels of a step, and does not wait for the device.
  virtual void launch_step(std::uint64_t step) = 0;
  /// The step to launch after one that was launched. It waits for the device if that decides which one it is: then some
  /// steps are left out, as other nodes have made them without this one.
  virtual std::uint64_t step_after(std::uint64_t step) { return step + 1; }
  /// Launches kernels that copy what this node's optimizer keeps of its weights, by copy_states().
  virtual void copy_own_states() = 0;
  /// Waits until no other node needs this one any more, after the last step: the evaluation that follows may take long.
  virtual void take_leave() {}
  /// Waits until the resident kernels have ended, after the last step, and takes leave of the other nodes.
  virtual void await_residents() = 0;
  /// Throws NodeFailure if a kernel has failed, or Interrupted if the run was stopped.
  virtual void check() = 0;
  /// Collects what the kernels have counted, after all of them have ended without a failure.
  virtual void finish(NodeReport& report) = 0;
  /// Adds what this node sends in a step, and would send without a budget.
  virtual void add_traffic(Progress& now) const = 0;
  /// What kernels take.
  virtual NodeState state() = 0;

  /// The step's number in this run. Kernels count from 0 in every run, and only steps that this node computes; steps
  /// count from the beginning of the training.
  std::uint64_t clock_of(std::uint64_t step) const { return step - first_step - left_out; }
  /// The version of the weights that this node has after so many steps, at least.
  std::uint64_t version_after(std::uint64_t steps) const {
    return plan.sync.arrived_before(clock_of(steps), {config.rank});
  }

  Config config;
  const Dataset& data;
  LossObserver observer;
  const Config of_data;  ///< the settings of a run in which nodes with the same samples are one node
  Plan plan;
  int peer_count;
  std::uint64_t first_step = 0;  ///< first step of this run: not 0 if it goes on with a training
  std::uint64_t left_out = 0;    ///< steps so far that this node has not computed: see step_after()
  ViewOrigin origin;             ///< see Node::origin()

  gpusock::Context context;
  gpusock::Stream compute{context};
  std::atomic<bool> stopping{false};

  gpusock::DeviceBuffer<executor::ExchangeTimes> exchange_times;
  Model model{context, compute, plan.layout};
  DeviceSamples training;
  DeviceSamples test;
  Activations activations;
  Activations test_activations;
  NodeMemory memory;
  gpusock::Mapped<StepBoard> board;
  gpusock::Mapped<float> losses;
  gpusock::Mapped<std::uint64_t> step_times_ns;  // when each step's loss was computed
  gpusock::Mapped<Score> score;
  std::optional<Publisher> publisher;  ///< of rank 0, with --publish
  gpusock::Mapped<float> image;        ///< a checkpoint's weights, and after them what the optimizer keeps of each
  std::optional<CheckpointWriter> checkpoints;  ///< with --checkpoint

 protected:
  /// Copies what the optimizer keeps of weights from number `begin` on to `image`.
  void copy_states(const float* states, std::size_t begin, std::size_t floats);
  /// Calls `call` with the layer as a NodeLayer, which kernels take. `exchange`: the exchange that brings its weights.
  template <class Call>
  void with_layer(int layer, int exchange, Call call) const {
    const Layer& at = plan.layout[layer];
    std::visit([&]<class Kind>(const Kind& kind) { call(NodeLayer<Kind>{kind, at.offset, exchange}); }, at.kind);
  }
  /// The state that all nodes share; the caller fills in the other members.
  NodeState common_state() const;
  /// Waits until the other nodes have seen which node was lost first. Without an observer it waits for a moment.
  void linger() const;

 private:
  /// Adds losses, times and counters that all nodes have.
  void finish_common(NodeReport& report) const;
  void evaluate(std::uint64_t step, NodeReport& report);
  /// Begins to write a checkpoint if one is due after so many steps.
  void save(std::uint64_t steps, NodeReport& report);
  /// Publishes the weights after so many steps, if they are to be published.
  void publish(std::uint64_t steps);
  Progress progress_since(std::chrono::steady_clock::time_point start) const;
};

/// A node whose gradients are exchanged by schedules (--scheme).
std::unique_ptr<Node::Impl> make_scheme_node(const Config& config, const Dataset& data, LossObserver observer);
/// A node whose gradients go through a store (--sync). `before`: see Node.
std::unique_ptr<Node::Impl> make_store_node(const Config& config, const Dataset& data, LossObserver observer,
                                            const HeldViews* before);

}  // namespace param_sync
