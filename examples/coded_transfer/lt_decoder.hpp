#pragma once
/// @file Decoding LT codes on a host: first which symbols are enough, from their numbers alone, then the bytes.
///
/// Peeling (Luby, 2002) takes a symbol of which all but one source symbol are known. Where there is none, one source
/// symbol is made inactive: it counts as known, and is found at the end by Gaussian elimination (inactivation decoding,
/// as in RFC 6330, section 5.4). So the symbols are enough exactly if their equations have one solution.

#include "examples/coded_transfer/lt_code.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

namespace coded {

/// Equations over GF(2) whose left sides are bits; the rows that stay are independent.
class BitEquations {
 public:
  explicit BitEquations(std::uint32_t unknowns = 0) : unknowns_(unknowns), row_of_(unknowns, kNone) {}

  using Bits = std::vector<std::uint64_t>;
  Bits none() const { return Bits((unknowns_ + 63) / 64); }
  static void flip(Bits& bits, std::uint32_t which) { bits[which / 64] ^= std::uint64_t{1} << (which % 64); }
  static void add(Bits& to, const Bits& from) {
    for (std::size_t i = 0; i < to.size(); ++i) to[i] ^= from[i];
  }

  bool solvable() const { return rows_.size() == unknowns_; }
  std::uint32_t missing() const { return unknowns_ - static_cast<std::uint32_t>(rows_.size()); }

  /// Adds an equation. Returns true if it does not follow from the others. Calls `added(row)` for each earlier row that
  /// was added to it, so that a caller can do the same with right sides.
  template <class Added>
  bool insert(Bits bits, Added added) {
    for (std::uint32_t word = 0; word < bits.size(); ++word) {
      while (bits[word] != 0) {
        const std::uint32_t unknown = 64 * word + static_cast<std::uint32_t>(__builtin_ctzll(bits[word]));
        if (row_of_[unknown] == kNone) {
          row_of_[unknown] = static_cast<std::uint32_t>(rows_.size());
          rows_.push_back(std::move(bits));
          return true;
        }
        add(bits, rows_[row_of_[unknown]]);
        added(row_of_[unknown]);
      }
    }
    return false;
  }

  /// Solves from the last unknown on: calls `found(unknown, row)` after `added(row, other)` for each other unknown in
  /// its row, which was found before.
  template <class Added, class Found>
  void substitute(Added added, Found found) const {
    for (std::uint32_t unknown = unknowns_; unknown-- > 0;) {
      const std::uint32_t row = row_of_[unknown];
      for (std::uint32_t other = unknown + 1; other < unknowns_; ++other) {
        if ((rows_[row][other / 64] >> (other % 64) & 1) != 0) added(row, other);
      }
      found(unknown, row);
    }
  }

 private:
  static constexpr std::uint32_t kNone = ~0u;
  std::uint32_t unknowns_;
  std::vector<std::uint32_t> row_of_;  // by the first unknown of a row
  std::vector<Bits> rows_;
};

/// Takes the numbers of symbols until they are enough, and then decodes. Not for several threads at a time.
class LtDecoder {
 public:
  LtDecoder(std::uint32_t sources, std::uint64_t seed, Soliton soliton = {})
      : table_(robust_soliton(sources, soliton)), sources_(sources), seed_(seed) {}

  /// Adds the symbol of this number; each number once. Returns true if the symbols are enough.
  bool add(std::uint64_t number) {
    if (enough()) return true;
    const Neighbours drawn(table_.data(), sources_, seed_, number);
    Row& row = rows_.emplace_back(drawn.degree());
    for (std::uint32_t i = 0; i < row.size(); ++i) row[i] = drawn.neighbour(i);
    const auto index = static_cast<std::uint32_t>(rows_.size() - 1);
    if (rows_.size() == sources_) {
      peel();
    } else if (rows_.size() > sources_) {
      keep_if_new(index);
    }
    return enough();
  }

  bool enough() const { return rows_.size() >= sources_ && equations_.solvable(); }
  std::uint32_t symbols() const { return static_cast<std::uint32_t>(rows_.size()); }
  /// How many source symbols Gaussian elimination finds.
  std::uint32_t inactive() const { return static_cast<std::uint32_t>(inactive_.size()); }

  /// Writes the source symbols to `sources`, of `words` words each, if the symbols are enough. `symbol(i)`: the words
  /// of the i-th symbol that was added; called several times.
  void decode(std::size_t words, const std::function<const std::uint64_t*(std::uint32_t)>& symbol,
              std::uint64_t* sources) const {
    const auto of = [&](std::uint32_t source) { return sources + std::size_t{source} * words; };
    const auto put = [&](std::uint64_t* to, const std::uint64_t* from) { std::copy(from, from + words, to); };
    const auto add = [&](std::uint64_t* to, const std::uint64_t* from) {
      for (std::size_t i = 0; i < words; ++i) to[i] ^= from[i];
    };
    const auto resolve = [&] {  // what peeling knows, from what is in the inactive ones
      for (const Pivot& pivot : pivots_) {
        put(of(pivot.source), symbol(pivot.row));
        for (const std::uint32_t other : rows_[pivot.row]) {
          if (other != pivot.source) add(of(pivot.source), of(other));
        }
      }
    };
    for (const std::uint32_t source : inactive_) std::fill(of(source), of(source) + words, 0);
    resolve();
    // Right sides of the equations of inactive symbols, in the order in which these were inserted.
    BitEquations again(inactive());
    std::vector<std::vector<std::uint64_t>> sides;
    for (const std::uint32_t row : kept_) {
      std::vector<std::uint64_t> side(symbol(row), symbol(row) + words);
      for (const std::uint32_t source : rows_[row]) add(side.data(), of(source));
      again.insert(bits_of(row), [&](std::uint32_t other) { add(side.data(), sides[other].data()); });
      sides.push_back(std::move(side));
    }
    again.substitute([&](std::uint32_t row, std::uint32_t other) { add(sides[row].data(), of(inactive_[other])); },
                     [&](std::uint32_t unknown, std::uint32_t row) { put(of(inactive_[unknown]), sides[row].data()); });
    resolve();
  }

 private:
  using Row = std::vector<std::uint32_t>;
  struct Pivot {
    std::uint32_t source, row;
  };
  static constexpr std::uint32_t kUsed = ~0u;

  /// Orders all source symbols: each is found by a symbol, from those before it, or is inactive.
  void peel() {
    Peeling all(rows_, sources_);
    std::vector<bool> is_pivot(rows_.size());
    for (Pivot next{}; all.next(next);) {
      if (next.row == kUsed) {
        inactive_.push_back(next.source);
      } else {
        pivots_.push_back(next);
        is_pivot[next.row] = true;
      }
    }
    equations_ = BitEquations(inactive());
    expressions_.assign(sources_, equations_.none());
    for (std::uint32_t i = 0; i < inactive(); ++i) BitEquations::flip(expressions_[inactive_[i]], i);
    for (const Pivot& pivot : pivots_) expressions_[pivot.source] = bits_of(pivot.row);  // its own bits are still 0
    for (std::uint32_t row = 0; row < rows_.size(); ++row) {
      if (!is_pivot[row]) keep_if_new(row);
    }
  }

  /// The sum of a symbol's source symbols, in terms of the inactive ones.
  BitEquations::Bits bits_of(std::uint32_t row) const {
    BitEquations::Bits bits = equations_.none();
    for (const std::uint32_t source : rows_[row]) BitEquations::add(bits, expressions_[source]);
    return bits;
  }
  void keep_if_new(std::uint32_t row) {
    if (equations_.insert(bits_of(row), [](std::uint32_t) {})) kept_.push_back(row);
  }

  /// Which source symbol is known next.
  class Peeling {
   public:
    Peeling(const std::vector<Row>& rows, std::uint32_t sources)
        : rows_(rows), rows_of_(sources), is_known_(sources), unknown_in_(rows.size()), by_unknown_(kDegreesMax + 1) {
      for (std::uint32_t row = 0; row < rows.size(); ++row) {
        for (const std::uint32_t source : rows[row]) rows_of_[source].push_back(row);
        unknown_in_[row] = static_cast<std::uint32_t>(rows[row].size());
        file(row);
      }
    }

    /// Returns false if all are known. `next.row`: kUsed if the source symbol is inactive.
    bool next(Pivot& next) {
      for (std::uint32_t degree = 1; degree <= kDegreesMax; ++degree) {
        std::vector<std::uint32_t>& rows = by_unknown_[degree];
        while (!rows.empty()) {
          const std::uint32_t row = rows.back();
          if (std::min(unknown_in_[row], kDegreesMax) != degree) {  // it is filed elsewhere, too
            rows.pop_back();
            continue;
          }
          next = {most_used(row), degree == 1 ? row : kUsed};
          know(next.source);
          return true;
        }
      }
      while (first_ < is_known_.size() && is_known_[first_]) ++first_;
      if (first_ == is_known_.size()) return false;
      next = {first_, kUsed};  // in no symbol that could find it
      know(first_);
      return true;
    }

   private:
    static constexpr std::uint32_t kDegreesMax = 32;  // larger ones are filed together

    void file(std::uint32_t row) {
      if (unknown_in_[row] != 0) by_unknown_[std::min(unknown_in_[row], kDegreesMax)].push_back(row);
    }
    void know(std::uint32_t source) {
      is_known_[source] = true;
      for (const std::uint32_t row : rows_of_[source]) {
        --unknown_in_[row];
        file(row);
      }
    }
    /// Of the unknown source symbols of a row, the one that is in most rows: knowing it helps most.
    std::uint32_t most_used(std::uint32_t row) const {
      std::uint32_t best = kUsed;
      for (const std::uint32_t source : rows_[row]) {
        if (!is_known_[source] && (best == kUsed || rows_of_[source].size() > rows_of_[best].size())) best = source;
      }
      return best;
    }

    const std::vector<Row>& rows_;
    std::vector<Row> rows_of_;
    std::vector<bool> is_known_;
    std::vector<std::uint32_t> unknown_in_;
    std::vector<Row> by_unknown_;
    std::uint32_t first_ = 0;
  };

  std::vector<std::uint32_t> table_;
  std::uint32_t sources_;
  std::uint64_t seed_;
  std::vector<Row> rows_;  // the source symbols of each symbol
  std::vector<Pivot> pivots_;
  std::vector<std::uint32_t> inactive_;
  std::vector<BitEquations::Bits> expressions_;  // of each source symbol, in terms of the inactive ones
  BitEquations equations_;
  std::vector<std::uint32_t> kept_;  // rows of equations_
};

}  // namespace coded
