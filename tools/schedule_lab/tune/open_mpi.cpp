#include "tune/open_mpi.hpp"

#include <iterator>
#include <limits>
#include <vector>

namespace param_sync::tune {
namespace {

enum class Algorithm { doubling, ring, rabenseifner, reduce_and_broadcast };

/// The algorithm for fewer than `bytes_below` bytes.
struct SizeRule {
  double bytes_below;
  Algorithm algorithm;
};

/// The rules for fewer than `nodes_below` ranks.
struct RankRule {
  int nodes_below;
  std::vector<SizeRule> sizes;
};

constexpr double kAnySize = std::numeric_limits<double>::infinity();
constexpr int kAnyNodes = std::numeric_limits<int>::max();

const std::vector<RankRule>& rules() {
  using enum Algorithm;
  static const std::vector<RankRule> all = {
      {4, {{8, ring}, {4096, doubling}, {8192, ring}, {16384, doubling}, {262144, ring}, {kAnySize, rabenseifner}}},
      {8, {{16, ring}, {8192, doubling}, {kAnySize, rabenseifner}}},
      {16, {{8192, doubling}, {kAnySize, rabenseifner}}},
      {32, {{64, ring}, {4096, doubling}, {kAnySize, rabenseifner}}},
      {64, {{128, ring}, {kAnySize, rabenseifner}}},
      {128, {{262144, doubling}, {kAnySize, rabenseifner}}},
      {256, {{131072, reduce_and_broadcast}, {262144, doubling}, {kAnySize, rabenseifner}}},
      {512, {{4096, reduce_and_broadcast}, {kAnySize, rabenseifner}}},
      {kAnyNodes, {{2048, reduce_and_broadcast}, {16384, doubling}, {kAnySize, rabenseifner}}},
  };
  return all;
}

}  // namespace

Candidate open_mpi_choice(int nodes, double bytes) {
  for (const RankRule& ranks : rules()) {
    if (nodes >= ranks.nodes_below) continue;
    for (const SizeRule& size : ranks.sizes) {
      if (bytes >= size.bytes_below) continue;
      switch (size.algorithm) {
        case Algorithm::doubling:
          return {"butterfly", 1};
        case Algorithm::ring:
          return {"ring", nodes};
        case Algorithm::rabenseifner:
          return {"rhd", nodes};
        case Algorithm::reduce_and_broadcast:
          return {"tree:binary", 1};
      }
    }
  }
  return {"rhd", nodes};  // not reached: the last rules have no bound
}

}  // namespace param_sync::tune
