#pragma once
/// @file The layers of a node that are exchanged as factors.

#include "plan/exchange_plan.hpp"
#include "plan/plan.hpp"
#include "training/factor_exchange.cuh"

#include "gpusock/gpusock.hpp"

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

namespace param_sync {

class FactorLayers {
 public:
  /// Makes the memory for all nodes' factors.
  FactorLayers(gpusock::Context& context, const ExchangePlan& exchange, const Plan& plan, int rank) {
    const int nodes = plan.layout.nodes;
    for (int layer = plan.layout.size() - 1; layer >= 0; --layer) {
      if (!exchange.has_factors(layer)) continue;
      FactorExchange made;
      made.factors = {plan.layout[layer].outputs(), plan.layout[layer].inputs(), plan.batch,
                      static_cast<std::uint32_t>(nodes)};
      gathered_.push_back(std::make_unique<gpusock::DeviceBuffer<float>>(context, made.factors.gathered_floats()));
      made.gathered = gathered_.back()->data();
      made.gather = exchange.factors_of(layer);
      if (const int last = exchange.bucket_of(layer); last != made.gather) made.spread = last;
      made.makes_weights = made.spread < 0 || factor_owner(layer, nodes) == rank;
      if (made.makes_weights) made_here_.push_back(layer);
      layers_.emplace(layer, made);
    }
  }

  bool has(int layer) const { return layers_.contains(layer); }
  /// The layer must have factors.
  const FactorExchange& operator[](int layer) const { return layers_.at(layer); }

  /// Layers whose weights this node makes, in the order in which it makes them: the last layers first, since their
  /// factors arrive first.
  const std::vector<int>& made_here() const { return made_here_; }

  /// Number of blocks of the kernel that copies this node's factors.
  unsigned copying_blocks(int layer) const {
    constexpr std::uint64_t kFloatsOfBlock = kBlockTiles * 64, kBlocksMax = 32;
    const std::uint64_t floats = layers_.at(layer).factors.floats_of_rank();
    return static_cast<unsigned>(std::clamp(floats / kFloatsOfBlock, std::uint64_t{1}, kBlocksMax));
  }

 private:
  std::vector<std::unique_ptr<gpusock::DeviceBuffer<float>>> gathered_;
  std::map<int, FactorExchange> layers_;
  std::vector<int> made_here_;
};

}  // namespace param_sync
