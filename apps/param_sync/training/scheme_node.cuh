#pragma once
/// @file A node whose gradients are exchanged by schedules (--scheme): resident lanes of the executor make its weights.
/// scheme_node.cu sets it up and ends it, scheme_node_lanes.cu runs its resident lanes, and scheme_node_steps.cu
/// launches the kernels of a step.

#include "arithmetic/shared_numbers.hpp"
#include "param_sync/executor/executor.hpp"
#include "plan/exchange_plan.hpp"
#include "training/factor_layers.cuh"
#include "training/node_impl.cuh"
#include "training/watch.cuh"

#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace param_sync {

class SchemeNode final : public Node::Impl {
 public:
  SchemeNode(const Config& run, const Dataset& dataset, LossObserver loss_observer);
  ~SchemeNode() override;

  gpusock::Endpoint listen(const gpusock::Endpoint& at) override;
  void connect(const std::vector<gpusock::Endpoint>& peers) override;
  void request_stop() noexcept override;
  void launch_residents() override;
  void launch_step(std::uint64_t step) override;
  void copy_own_states() override;
  void await_residents() override;
  void check() override;
  void finish(NodeReport& report) override;
  void add_traffic(Progress& now) const override;
  NodeState state() override;

 private:
  RunSettings settings() const;
  void prepare_residents();
  executor::Settings exchange_settings() const;
  void share(int exchange_of_numbers, std::uint64_t step);
  void launch_backward(int layer, std::uint64_t step);
  void launch_factors(std::uint64_t step, const std::function<void()>& mark);
  executor::Exchanged exchanged(std::size_t bucket) const;
  std::uint64_t blocks_of(const Bucket& bucket) const;
  std::uint64_t* marks_of(std::uint64_t step);
  std::optional<Failure> failure();
  void resume();
  void ask_peer(Failure& record) noexcept;
  void say_last(const LastWord& word) noexcept;
  void tell(const Loss& loss, const LastWord& word);
  gpusock::Endpoint address_of(int rank) const;
  std::string end_kernels() noexcept;

  std::vector<gpusock::Endpoint> addresses;  ///< by rank
  // A node has three streams: compute, this one and the lanes' one. On a GPU a process has at most 32 for all of its
  // nodes.
  gpusock::Stream watching{context};
  SharedMemory shared{context, plan.layout};
  ExchangePlan exchange_plan;
  executor::Executor exchange;
  gpusock::DeviceBuffer<executor::ExchangeWords> exchange_words;
  FactorLayers factors;
  gpusock::DeviceBuffer<std::int32_t> computed;  ///< exchanges that a step without overlap hands over all at once
  gpusock::Mapped<std::uint64_t> ending;         ///< not 0 once this node has completed its training
  gpusock::Mapped<Heard> heard;                  ///< by rank: what this node has heard of that node's end
  gpusock::Mapped<std::uint64_t> said;           ///< not 0 once tell_word() has told the peers
  std::mutex saying;
  bool last_said = false;      ///< true once the last word is said, or is being said; `saying` guards it
  std::uint64_t traced_steps;  ///< how many of this run's first steps are traced
  gpusock::DeviceBuffer<std::uint64_t> marks;
};

}  // namespace param_sync
