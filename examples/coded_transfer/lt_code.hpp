#pragma once
/// @file LT codes (Luby, "LT codes", FOCS 2002): a symbol is the XOR of some source symbols. A generator that the
/// number of the symbol seeds names them, so a symbol carries only its number, and a sender makes as many as it likes.

#include <gpusock/groups.cuh>

#include <cmath>
#include <cstdint>
#include <vector>

namespace coded {

/// The two parameters of the robust soliton distribution, as in section 5 of the paper. Peeling alone needs fewest
/// symbols with a `c` of about 0.03; elimination finds what peeling does not, so these are chosen for it: a source
/// symbol that is in no symbol is rare, as `delta` is small, and few are inactive, as `c` is. The mean degree is 21 for
/// 1,000 source symbols, and 26 for 10,000.
struct Soliton {
  double c = 0.01;
  double delta = 1e-6;
};

/// The robust soliton distribution of degrees 1 to `sources`: element d - 1 is the probability of a degree of at most
/// d, times 2^32. Hosts that round log() in another way get the same table.
inline std::vector<std::uint32_t> robust_soliton(std::uint32_t sources, Soliton soliton = {}) {
  const double m = sources;
  constexpr double kSteps = 1024;
  const double exact = soliton.c * std::log(m / soliton.delta) * std::sqrt(m);
  const double r = std::round(exact * kSteps) / kSteps;
  const auto spike = static_cast<std::uint32_t>(r > 1 ? std::round(m / r) : m);
  std::vector<double> mass(sources);
  double sum = 0;
  for (std::uint32_t d = 1; d <= sources; ++d) {
    const double ideal = d == 1 ? 1 / m : 1 / (d * (d - 1.0));
    double robust = 0;
    if (r > 0 && d < spike) robust = r / (d * m);
    if (r > soliton.delta && d == spike) robust = r * std::round(std::log(r / soliton.delta) * kSteps) / kSteps / m;
    sum += mass[d - 1] = ideal + robust;
  }
  std::vector<std::uint32_t> table(sources);
  double so_far = 0;
  for (std::uint32_t i = 0; i < sources; ++i) {
    so_far += mass[i];
    table[i] = static_cast<std::uint32_t>(std::fmin(so_far / sum * 4294967296.0, 4294967295.0));
  }
  table.back() = 4294967295u;
  return table;
}

/// Mixes 64 bits (the finalizer of SplitMix64: Steele, Lea and Flood, OOPSLA 2014).
GPUSOCK_FN inline std::uint64_t mixed(std::uint64_t word) {
  word = (word ^ (word >> 30)) * 0xbf58476d1ce4e5b9u;
  word = (word ^ (word >> 27)) * 0x94d049bb133111ebu;
  return word ^ (word >> 31);
}

/// Which source symbols are in a symbol: neighbour(0) to neighbour(degree() - 1), all different. A keyed permutation of
/// all source symbols names them, so that each thread finds any of them by itself.
class Neighbours {
 public:
  /// `table`: robust_soliton(sources); `number`: of the symbol.
  GPUSOCK_FN Neighbours(const std::uint32_t* table, std::uint32_t sources, std::uint64_t seed, std::uint64_t number)
      : sources_(sources), key_(mixed(mixed(seed + 0x9e3779b97f4a7c15u) + number)) {
    while ((1u << bits_) < sources) ++bits_;
    const auto draw = static_cast<std::uint32_t>(mixed(key_) >> 32);
    std::uint32_t low = 0, high = sources - 1;  // the first degree whose element is larger
    while (low < high) {
      const std::uint32_t middle = (low + high) / 2;
      if (table[middle] > draw) {
        high = middle;
      } else {
        low = middle + 1;
      }
    }
    degree_ = low + 1;
  }

  GPUSOCK_FN std::uint32_t degree() const { return degree_; }

  GPUSOCK_FN std::uint32_t neighbour(std::uint32_t index) const {
    std::uint32_t at = index;
    do at = permuted(at);
    while (at >= sources_);  // the permutation is one of a power of two
    return at;
  }

 private:
  /// Rounds of additions, multiplications by odd numbers and shifts: each can be undone, so it is a permutation.
  GPUSOCK_FN std::uint32_t permuted(std::uint32_t at) const {
    const std::uint32_t mask = (1u << bits_) - 1;
    const std::uint32_t shift = bits_ / 2 + 1;
    for (int round = 0; round < 4; ++round) {
      const auto key = static_cast<std::uint32_t>(key_ >> (16 * round));
      at = (at + key) & mask;
      at = (at * (2 * (key * 0x9e3779b9u >> 8) + 0x2c1b3c6du)) & mask;
      at ^= at >> shift;
    }
    return at;
  }

  std::uint32_t sources_, degree_ = 0, bits_ = 1;
  std::uint64_t key_;
};

}  // namespace coded
