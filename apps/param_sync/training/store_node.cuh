#pragma once
/// @file A node whose gradients go through a store (--sync): no node waits for the others longer than the store's clock
/// asks.
///
/// Each layer is divided into a range for each node. One resident block for each owner pushes this node's gradients of
/// that owner's ranges, and then pulls their new weights, the first layer first: so the next step's first kernels run
/// while weights of later layers are still on their way.

#include "param_sync/fail_at.hpp"
#include "param_sync/group.hpp"
#include "param_sync/store.hpp"
#include "plan/delays.hpp"
#include "plan/held_views.hpp"
#include "plan/store_ranges.hpp"
#include "training/node_impl.cuh"
#include "training/late_exchange.cuh"
#include "training/local_steps.cuh"
#include "training/pool_memory.cuh"
#include "training/store_exchange.cuh"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace param_sync {

class StoreNode final : public Node::Impl {
 public:
  StoreNode(const Config& run, const Dataset& dataset, LossObserver loss_observer, const HeldViews* before);
  ~StoreNode() override;

  gpusock::Endpoint listen(const gpusock::Endpoint& at) override;
  void connect(const std::vector<gpusock::Endpoint>& peers) override;
  void request_stop() noexcept override;
  std::vector<gpusock::Endpoint> exchange(const gpusock::Endpoint& mine) override;
  HeldTraining held() override;
  void launch_residents() override;
  void launch_step(std::uint64_t step) override;
  std::uint64_t step_after(std::uint64_t step) override;
  void copy_own_states() override;
  void take_leave() override;
  void await_residents() override {}
  void check() override;
  void finish(NodeReport& report) override;
  void add_traffic(Progress& now) const override;
  NodeState state() override;
  NodeState state_of(std::uint64_t step, int layer);

 private:
  std::size_t chosen_floats() const { return plan.codec.chooses() ? plan.layout.parameters() : 1; }
  void compare_settings();
  void make_store(const std::vector<float>& weights, const std::vector<float>& states);
  void go_on();
  void compare_checkpoints(std::span<const HeldOutline> of_nodes);
  bool go_on_from(const ChosenView& chosen, bool is_last);
  template <class T>
  void exchange_words(gpusock::Mapped<T>& all);
  std::uint64_t version_of(std::uint64_t step, int layer) const {
    return plan.sync.version_of(clock_of(step), own(layer));
  }
  LayerParameters parameters_of(int layer) const;
  RankLayer own(int layer) const { return {config.rank, layer}; }
  float* weights_of(std::uint64_t step, int layer) const { return memory.weights_of(version_of(step, layer)); }
  void launch_forward(int layer, std::uint64_t step);
  void launch_backward(int layer, std::uint64_t step);
  void launch_exchange_in_pool(const gpusock::LaunchShape& shape, const StoreMoves& moves);
  void launch_step_in_pool(std::uint64_t step);
  void launch_forward_in_pool(int layer, std::uint64_t step);
  void launch_errors_in_pool(int layer, std::uint64_t step);
  void launch_gradients_in_pool(int layer, std::uint64_t step);
  void take_averages(std::uint64_t step);
  NodeState moving_state();
  FailHandle fail_handle();
  template <class Call>
  void of_group(Call call);
  [[noreturn]] void fail_with(const std::string& why, int unreachable_rank = -1);
  std::string reason();
  void end_kernels() noexcept;

  const HeldViews* before;  ///< null, or what the nodes go on with
  std::vector<StoreRange> ranges = store_ranges(plan.layout, config.nodes);
  gpusock::Stream moving{context};  ///< of the blocks that push and pull
  Group group;
  gpusock::DeviceBuffer<float> average;                  ///< the weights that a node sets out from, if it trains alone
  gpusock::DeviceBuffer<float> changes;                  ///< what is pushed, if local steps go on beside it
  gpusock::DeviceBuffer<executor::ExchangeWords> words;  ///< by layer
  gpusock::DeviceBuffer<std::uint64_t> blocks;           ///< by layer: blocks that compute its gradients
  gpusock::DeviceBuffer<StorePart> parts;                ///< by owner, then by layer
  gpusock::DeviceBuffer<std::uint32_t> first_parts;      ///< by owner, and how many parts there are
  gpusock::DeviceBuffer<OwnersLags> of_owners;           ///< by owner
  gpusock::DeviceBuffer<float> withheld;                 ///< see Withheld, of all parameters
  gpusock::DeviceBuffer<std::uint32_t> chosen_rows;      ///< likewise
  gpusock::DeviceBuffer<std::uint64_t> lags;             ///< see NodeReport::staleness
  gpusock::DeviceBuffer<std::uint64_t> seen;             ///< by owner and rank: what the last pull contained
  gpusock::Mapped<std::int32_t> compared;                ///< the settings of all ranks
  std::optional<FailPoint> fails;                        ///< with --fail-at
  std::optional<PoolMemory> pool;                        ///< with --device-pool
  gpusock::DeviceBuffer<std::uint64_t> begins;           ///< see LateMoves
  gpusock::DeviceBuffer<std::uint64_t> after;            ///< likewise
  gpusock::Mapped<Reached> reached;                      ///< likewise
  gpusock::DeviceBuffer<std::uint64_t> step_begun_ns;    ///< with --step-ms
  Delays delays = delays_of(config.delays);              ///< likewise
  std::unique_ptr<Store> store;
  StoreHandle handle;
};

}  // namespace param_sync
