#pragma once
/// @file A node's state. node.cu sets it up and ends it, node_lanes.cu runs its resident lanes, and node_steps.cu
/// launches the kernels of a step.

#include "arithmetic/model.hpp"
#include "checkpoint/checkpoint.hpp"
#include "param_sync/executor/executor.hpp"
#include "plan/exchange_plan.hpp"
#include "plan/plan.hpp"
#include "training/factor_layers.cuh"
#include "training/node.hpp"
#include "training/node_memory.cuh"
#include "training/watch.cuh"

#include "gpusock/gpusock.hpp"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace param_sync {

struct Node::Impl {
  Impl(const Config& run, const Dataset& dataset, LossObserver loss_observer);
  ~Impl();

  NodeState state();
  RunSettings settings() const;
  void launch_step(std::uint64_t step);
  void prepare_residents();
  void launch_residents();
  executor::Settings exchange_settings() const;
  template <class Call>
  void with_layer(int layer, Call call) const;
  void launch_backward(int layer, std::uint64_t step);
  void launch_factors(std::uint64_t step, const std::function<void()>& mark);
  executor::Exchanged exchanged(std::size_t bucket) const;
  void connect_exchange(const std::vector<gpusock::Endpoint>& peers);
  void await_residents();
  std::uint64_t blocks_of(const Bucket& bucket) const;
  std::uint64_t* marks_of(std::uint64_t step);
  std::optional<Failure> failure();
  void evaluate(std::uint64_t step, NodeReport& report);
  void resume();
  void write_checkpoint(std::uint64_t step);
  /// The step's number in this run. Kernels count from 0 in every run; steps count from the beginning of the training.
  std::uint64_t clock_of(std::uint64_t step) const { return step - first_step; }
  void check();
  void ask_peer(Failure& record) noexcept;
  void say_last(const LastWord& word) noexcept;
  void tell(const Loss& loss, const LastWord& word);
  gpusock::Endpoint address_of(int rank) const;
  void finish(NodeReport& report);
  Progress progress(std::chrono::steady_clock::time_point start) const;
  std::string end_kernels() noexcept;

  Config config;
  const Dataset& data;
  LossObserver observer;
  Plan plan;
  int peer_count;
  std::optional<CheckpointFiles> checkpoints;
  std::uint64_t first_step = 0;  ///< first step of this run: not 0 if it resumes from a checkpoint

  gpusock::Context context;
  // A node has three streams: these two and the lanes' one. On a GPU a process has at most 32 for all of its nodes.
  gpusock::Stream compute{context};
  gpusock::Stream watching{context};
  std::atomic<bool> stopping{false};
  std::vector<gpusock::Endpoint> addresses;

  ExchangePlan exchange_plan;
  executor::Executor exchange;
  gpusock::DeviceBuffer<executor::ExchangeWords> exchange_words;
  gpusock::DeviceBuffer<executor::ExchangeTimes> exchange_times;
  FactorLayers factors;
  gpusock::DeviceBuffer<std::int32_t> computed;  ///< exchanges that a step without overlap hands over all at once
  gpusock::Mapped<std::uint64_t> ending;         ///< not 0 once this node has completed its training
  gpusock::Mapped<Heard> heard;                  ///< by rank: what this node has heard of that node's end
  gpusock::Mapped<std::uint64_t> said;           ///< not 0 once tell_word() has told the peers
  std::mutex saying;
  bool last_said = false;  ///< true once the last word is said, or is being said; `saying` guards it

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
  gpusock::Mapped<float> image;  ///< copy_state() writes it, if there are checkpoints
  std::uint64_t traced_steps;    ///< how many of this run's first steps are traced
  gpusock::DeviceBuffer<std::uint64_t> marks;
};

}  // namespace param_sync
