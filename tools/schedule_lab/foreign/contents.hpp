#pragma once
/// @file The contents of memory as symbols: a cell holds a sum of cells of the ranks' inputs.

#include <cstddef>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

namespace param_sync::foreign {

/// A cell of a rank's input.
struct Part {
  int rank = 0;  ///< the rank
  int cell = 0;  ///< the cell
  /// The order of ranks, then of cells.
  auto operator<=>(const Part&) const = default;
};

/// Sums of parts. Equal sums have equal numbers. A sum keeps how often it has each part.
class Contents {
 public:
  using Id = std::uint32_t;
  static constexpr Id kNothing = 0;  ///< memory that no step has written

  Contents() : sums_(1) {}

  Id part(const Part& part);
  /// Returns kNothing if one of both is. Throws schedule::Error if the sums of a plan take too much memory.
  Id sum(Id first, Id second);

  /// Says how `is` differs from `should`. Empty if it does not. `slices`: cells of a chunk.
  std::string difference(Id is, Id should, int slices) const;

 private:
  Id intern(std::vector<Part> parts);

  struct Hash {
    std::size_t operator()(const std::vector<Part>& parts) const;
  };

  std::vector<std::vector<Part>> sums_;  // sorted, by number
  std::unordered_map<std::vector<Part>, Id, Hash> numbers_;
  std::unordered_map<std::uint64_t, Id> pairs_;  // sums that were made before, by the numbers of both
  std::size_t parts_ = 0;                        // of all sums
  std::size_t merged_ = 0;                       // parts of sums that were made, also of those that were there
};

}  // namespace param_sync::foreign
