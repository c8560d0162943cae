// The codes of examples/coded_transfer: any m of m + k chunks, and enough symbols of an LT code, give back what was
// coded. GPUSOCK_TEST_DRAWS=N: random losses to draw, instead of some hundreds; with it, the LT test prints its
// figures.
#include "examples/coded_transfer/lt_decoder.hpp"
#include "examples/coded_transfer/reed_solomon.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <random>
#include <set>
#include <vector>

namespace coded {
namespace {

/// How many random losses to draw.
unsigned draws(unsigned usual) {
  const char* const asked = std::getenv("GPUSOCK_TEST_DRAWS");
  if (asked != nullptr) return static_cast<unsigned>(std::strtoul(asked, nullptr, 10));
  const char* const scale = std::getenv("GPUSOCK_TEST_SCALE");
  return scale == nullptr ? usual : std::max(1u, static_cast<unsigned>(usual * std::strtod(scale, nullptr)));
}

std::vector<std::uint64_t> random_words(std::size_t count, std::mt19937_64& random) {
  std::vector<std::uint64_t> words(count);
  for (std::uint64_t& word : words) word = random();
  return words;
}

#if GPUSOCK_WITH_ISAL
constexpr std::size_t kChunkBytes = 64;

/// Chunks of a group, coded, and what they were.
struct Group {
  Group(unsigned data, unsigned spare, std::mt19937_64& random)
      : code(data, spare), bytes((data + spare) * kChunkBytes), chunks(data + spare) {
    std::generate(bytes.begin(), bytes.end(), [&] { return static_cast<unsigned char>(random()); });
    for (unsigned i = 0; i < chunks.size(); ++i) chunks[i] = &bytes[i * kChunkBytes];
    code.encode(kChunkBytes, chunks);
    whole.assign(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(data * kChunkBytes));
  }
  /// Loses chunks and decodes. Returns true if the data is what it was.
  bool survives(const std::vector<bool>& has_come) {
    const std::vector<unsigned char> sent = bytes;
    for (unsigned i = 0; i < chunks.size(); ++i) {
      if (!has_come[i]) std::fill(chunks[i], chunks[i] + kChunkBytes, 0xee);
    }
    const bool decoded = code.decode(kChunkBytes, chunks, has_come);
    const bool same = std::equal(whole.begin(), whole.end(), bytes.begin());
    bytes.assign(sent.begin(), sent.end());
    return decoded && same;
  }

  ReedSolomon code;
  std::vector<unsigned char> bytes, whole;
  std::vector<unsigned char*> chunks;
};

TEST(ReedSolomon, AnyDataChunksOfTheGroupAreEnough) {
  std::mt19937_64 random(1);
  for (const auto& [data, spare] : {std::pair{1u, 1u}, {1u, 3u}, {4u, 0u}, {4u, 1u}, {5u, 3u}, {6u, 6u}, {9u, 2u}}) {
    Group group(data, spare, random);
    std::vector<bool> has_come(data + spare);
    std::fill(has_come.begin() + spare, has_come.end(), true);
    do {
      ASSERT_TRUE(group.survives(has_come)) << data << " and " << spare;
    } while (std::next_permutation(has_come.begin(), has_come.end()));
  }
}

TEST(ReedSolomon, RandomLossesOfLargeGroups) {
  std::mt19937_64 random(2);
  constexpr unsigned kDrawsOfAGroup = 50;
  for (unsigned left = draws(300); left > 0;) {
    const auto data = static_cast<unsigned>(1 + random() % 60);
    const auto spare = static_cast<unsigned>(1 + random() % 12);
    Group group(data, spare, random);
    for (unsigned i = 0; i < kDrawsOfAGroup && left > 0; ++i, --left) {
      std::vector<bool> has_come(data + spare, true);
      std::fill(has_come.begin(), has_come.begin() + 1 + static_cast<int>(random() % spare), false);
      std::shuffle(has_come.begin(), has_come.end(), random);
      ASSERT_TRUE(group.survives(has_come)) << data << " and " << spare;
    }
  }
}

TEST(ReedSolomon, FewerChunksAreRefused) {
  std::mt19937_64 random(3);
  Group group(5, 2, random);
  EXPECT_FALSE(group.code.decode(kChunkBytes, group.chunks, {true, true, false, false, false, true, true}));
}
#endif

constexpr std::uint32_t kSources = 1000;

TEST(RobustSoliton, IsTheDistributionOfThePaper) {
  // With c = 0.1 and delta = 0.5: R = 0.1 ln(2000) sqrt(1000) = 24.04, so the spike is at degree 42.
  const std::vector<std::uint32_t> table = robust_soliton(kSources, {.c = 0.1, .delta = 0.5});
  const auto mass = [&](std::uint32_t d) { return (table[d - 1] - (d == 1 ? 0.0 : table[d - 2])) / 4294967296.0; };
  const double r = 24.04, m = kSources;
  double beta = 1 + r * std::log(r / 0.5) / m;  // the sum of all weights
  for (std::uint32_t d = 1; d < 42; ++d) beta += r / (d * m);
  EXPECT_NEAR(mass(1), (1 / m + r / m) / beta, 1e-5);
  EXPECT_NEAR(mass(2), (0.5 + r / (2 * m)) / beta, 1e-5);
  EXPECT_NEAR(mass(42), (1 / (42.0 * 41) + r * std::log(r / 0.5) / m) / beta, 1e-5);
  EXPECT_NEAR(mass(43), 1 / (43.0 * 42) / beta, 1e-5);
  EXPECT_EQ(table.back(), 4294967295u);
}

TEST(Neighbours, AreDifferentAndAllAlike) {
  const std::vector<std::uint32_t> table = robust_soliton(kSources);
  std::vector<double> uses(kSources), firsts(kSources);
  double degrees = 0;
  constexpr std::uint64_t kSymbols = 40'000;
  for (std::uint64_t number = 0; number < kSymbols; ++number) {
    const Neighbours drawn(table.data(), kSources, 7, number);
    std::set<std::uint32_t> all;
    for (std::uint32_t i = 0; i < drawn.degree(); ++i) all.insert(drawn.neighbour(i));
    ASSERT_EQ(all.size(), drawn.degree());
    ASSERT_LT(*all.rbegin(), kSources);
    for (const std::uint32_t source : all) ++uses[source];
    ++firsts[drawn.neighbour(0)];
    degrees += drawn.degree();
  }
  EXPECT_NEAR(degrees / kSymbols, 21.25, 1);
  for (const std::vector<double>& counts : {uses, firsts}) {  // chi-square: its deviation is sqrt(2 x 999)
    const double mean = std::accumulate(counts.begin(), counts.end(), 0.0) / kSources;
    double chi = 0;
    for (const double count : counts) chi += (count - mean) * (count - mean) / mean;
    EXPECT_NEAR(chi, kSources - 1, 6 * std::sqrt(2.0 * kSources)) << mean;
  }
}

/// Numbers of symbols that come, of those of paths, some of which lose many.
class Arrivals {
 public:
  explicit Arrivals(std::uint64_t seed) : random_(seed), loss_(0.9 * std::uniform_real_distribution<>()(random_)) {}
  std::uint64_t next() {
    while (std::uniform_real_distribution<>()(random_) < loss_) ++number_;
    return number_++;
  }

 private:
  std::mt19937_64 random_;
  double loss_;
  std::uint64_t number_ = 0;
};

TEST(LtDecoder, GivesBackWhatWasCoded) {
  std::mt19937_64 random(4);
  for (const std::uint32_t sources : {1u, 2u, 3u, 10u, 64u, 65u, 500u, kSources}) {
    for (unsigned draw = 0; draw < 5; ++draw) {
      constexpr std::size_t kWords = 3;
      const std::vector<std::uint64_t> words = random_words(sources * kWords, random);
      const std::uint64_t seed = random();
      const std::vector<std::uint32_t> table = robust_soliton(sources);
      LtDecoder decoder(sources, seed);
      std::vector<std::uint64_t> symbols;
      for (Arrivals arrivals(random()); !decoder.enough();) {
        const std::uint64_t number = arrivals.next();
        const Neighbours drawn(table.data(), sources, seed, number);
        symbols.resize(symbols.size() + kWords);
        for (std::uint32_t i = 0; i < drawn.degree(); ++i) {
          for (std::size_t word = 0; word < kWords; ++word) {
            symbols[symbols.size() - kWords + word] ^= words[drawn.neighbour(i) * kWords + word];
          }
        }
        decoder.add(number);
        ASSERT_LT(decoder.symbols(), 2 * sources + 60);
      }
      std::vector<std::uint64_t> found(words.size());
      decoder.decode(
          kWords, [&](std::uint32_t i) { return &symbols[i * kWords]; }, found.data());
      ASSERT_EQ(found, words) << sources << " source symbols, seed " << seed;
    }
  }
}

/// How many symbols peeling alone needs.
std::uint32_t symbols_to_peel(std::uint32_t sources, std::uint64_t seed, Arrivals arrivals) {
  const std::vector<std::uint32_t> table = robust_soliton(sources);
  std::vector<std::vector<std::uint32_t>> rows, rows_of(sources);
  std::vector<std::uint32_t> unknown;
  std::vector<bool> known(sources);
  for (std::uint32_t count = 0; count < sources;) {
    const Neighbours drawn(table.data(), sources, seed, arrivals.next());
    rows.emplace_back();
    for (std::uint32_t i = 0; i < drawn.degree(); ++i) {
      const std::uint32_t source = drawn.neighbour(i);
      if (known[source]) continue;
      rows.back().push_back(source);
      rows_of[source].push_back(static_cast<std::uint32_t>(rows.size() - 1));
    }
    unknown.push_back(static_cast<std::uint32_t>(rows.back().size()));
    for (std::vector<std::uint32_t> ready{static_cast<std::uint32_t>(rows.size() - 1)}; !ready.empty();) {
      const std::uint32_t row = ready.back();
      ready.pop_back();
      if (unknown[row] != 1) continue;
      const std::uint32_t source = *std::find_if(rows[row].begin(), rows[row].end(), [&](auto s) { return !known[s]; });
      known[source] = true;
      ++count;
      for (const std::uint32_t other : rows_of[source]) {
        if (--unknown[other] == 1) ready.push_back(other);
      }
    }
  }
  return static_cast<std::uint32_t>(rows.size());
}

/// Figures of many draws.
void print_figures(const char* how, std::uint32_t sources, std::vector<double> overheads) {
  std::sort(overheads.begin(), overheads.end());
  const double mean = std::accumulate(overheads.begin(), overheads.end(), 0.0) / static_cast<double>(overheads.size());
  const auto within = std::upper_bound(overheads.begin(), overheads.end(), 1.1) - overheads.begin();
  std::printf("%s, m = %u, %zu draws: mean %.4f, 99 %% %.4f, maximum %.4f; at most 1.1: %.3f %%\n", how, sources,
              overheads.size(), mean, overheads[overheads.size() * 99 / 100], overheads.back(),
              100.0 * static_cast<double>(within) / static_cast<double>(overheads.size()));
}

void expect_few_symbols(std::uint32_t sources, unsigned count) {
  const bool tells = std::getenv("GPUSOCK_TEST_DRAWS") != nullptr;
  std::vector<double> overheads, peeled;
  for (unsigned draw = 0; draw < count; ++draw) {
    LtDecoder decoder(sources, draw);
    for (Arrivals arrivals(draw); !decoder.add(arrivals.next());) {
      ASSERT_LT(decoder.symbols(), 1.1 * sources) << sources << " source symbols, seed " << draw;
    }
    overheads.push_back(decoder.symbols() / static_cast<double>(sources));
    if (tells) peeled.push_back(symbols_to_peel(sources, draw, Arrivals(draw)) / static_cast<double>(sources));
  }
  if (!tells) return;
  print_figures("with elimination", sources, overheads);
  print_figures("peeling alone", sources, peeled);
}

TEST(LtDecoder, ElevenTenthsOfAThousandSymbolsAreEnough) { expect_few_symbols(kSources, draws(100)); }
TEST(LtDecoder, ElevenTenthsOfTenThousandSymbolsAreEnough) { expect_few_symbols(10 * kSources, (draws(20) + 9) / 10); }

}  // namespace
}  // namespace coded
