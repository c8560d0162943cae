#pragma once
/// @file The memory of the numbers that all nodes share within a step, for layers whose kernels need them.

#include "layout/layout.hpp"

#include "gpusock/gpusock.hpp"

#include <cstddef>
#include <cstdint>
#include <map>
#include <variant>

namespace param_sync {

/// The numbers of all layers of a model, and of both directions.
class SharedMemory {
 public:
  /// Makes the memory, and tells the layers of `layout` where it is.
  SharedMemory(gpusock::Context& context, Layout& layout) {
    for (int layer = 0; layer < layout.size(); ++layer) {
      const std::size_t floats = layout[layer].shared_floats();
      if (floats == 0) continue;
      const auto nodes = static_cast<std::size_t>(layout.nodes);
      const Numbers& made = layers_.try_emplace(layer, context, floats, nodes).first->second;
      const auto tell = [&]<class Kind>(Kind& kind) {
        if constexpr (SharesNumbers<Kind>)
          kind.shared = {made.forward.data(), made.backward.data(), static_cast<std::uint32_t>(nodes)};
      };
      std::visit(tell, layout.layers[static_cast<std::size_t>(layer)].kind);
    }
  }

  bool empty() const { return layers_.empty(); }
  bool has(int layer) const { return layers_.contains(layer); }
  /// Where a rank's numbers go. The layer must have some.
  float* forward(int layer, int rank) const { return at(layers_.at(layer).forward, layer, rank); }
  float* backward(int layer, int rank) const { return at(layers_.at(layer).backward, layer, rank); }

 private:
  struct Numbers {
    std::size_t floats;  ///< of a rank
    gpusock::DeviceBuffer<float> forward, backward;

    Numbers(gpusock::Context& context, std::size_t of_rank, std::size_t nodes)
        : floats(of_rank), forward(context, of_rank * nodes), backward(context, of_rank * nodes) {}
  };

  float* at(const gpusock::DeviceBuffer<float>& all, int layer, int rank) const {
    return all.data() + static_cast<std::size_t>(rank) * layers_.at(layer).floats;
  }

  std::map<int, Numbers> layers_;
};

}  // namespace param_sync
