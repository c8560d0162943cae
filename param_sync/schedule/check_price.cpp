#include "param_sync/schedule/check_price.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

namespace param_sync::schedule {
namespace {

// Sizes in bytes, rounded up to what the allocator takes.
constexpr std::uint64_t kUsesBytes = 64;    // a chunk at a rank: the op that wrote it, and an empty list of readers
constexpr std::uint64_t kReaderBytes = 16;  // an entry of that list, which doubles when it grows
constexpr std::uint64_t kOpBytes = 64;      // an op: its channels, its number among awaited ops, its level
constexpr std::uint64_t kLaneBytes = 384;
constexpr std::uint64_t kChannelBytes = 384;
constexpr std::uint64_t kAwaitedBytes = 128;
constexpr std::uint64_t kClocks = 2;       // clocks of each lane, channel and awaited op
constexpr std::uint64_t kChunkSteps = 64;  // steps for each chunk of an op, in addition to its symbols

/// Returns the number of different values. Consumes the vector.
template <class Value>
std::uint64_t distinct(std::vector<Value>&& values) {
  std::sort(values.begin(), values.end());
  return static_cast<std::uint64_t>(std::unique(values.begin(), values.end()) - values.begin());
}

/// Counts different channels. A key that equals the one before is not stored: lanes often use one channel repeatedly.
class ChannelKeys {
 public:
  void add(int from, int to, int channel) {
    const std::uint64_t key = (static_cast<std::uint64_t>(from) << 48) | (static_cast<std::uint64_t>(to) << 32) |
                              static_cast<std::uint64_t>(channel);
    if (keys_.empty() || keys_.back() != key) keys_.push_back(key);
  }
  std::uint64_t count() && { return distinct(std::move(keys_)); }

 private:
  std::vector<std::uint64_t> keys_;
};

/// Totals over the ops of one rank.
struct RankSums {
  std::uint64_t ops = 0;
  std::uint64_t chunks = 0;    ///< chunks of all ops; a signal counts as one
  std::uint64_t reading = 0;   ///< chunks of ops that only read them
  std::uint64_t messages = 0;  ///< messages sent and received
  std::uint64_t afters = 0;
  std::uint64_t awaited = 0;  ///< ops that an `after` names
};

RankSums sums_of(const Rank& rank) {
  RankSums sums;
  std::vector<std::pair<int, int>> awaited;
  for (const Lane& lane : rank.lanes) {
    for (const Op& op : lane) {
      ++sums.ops;
      sums.chunks += static_cast<std::uint64_t>(std::max(op.count, 1));
      if (op.kind == Kind::send) sums.reading += static_cast<std::uint64_t>(op.count);
      sums.messages += (op.sends() ? 1U : 0U) + (op.receives() ? 1U : 0U);
      sums.afters += op.after.size();
      for (const OpRef& before : op.after) awaited.emplace_back(before.lane, before.index);
    }
  }
  sums.awaited = distinct(std::move(awaited));
  return sums;
}

std::uint64_t channels_of(const Schedule& schedule) {
  ChannelKeys in, out;
  for (int rank = 0; rank < schedule.nodes(); ++rank) {
    for (const Lane& lane : schedule.ranks[static_cast<std::size_t>(rank)].lanes) {
      for (const Op& op : lane) {
        if (op.receives()) in.add(op.from, rank, op.channel);
        if (op.sends()) out.add(rank, op.to, op.channel);
      }
    }
  }
  return std::max(std::move(in).count(), std::move(out).count());
}

/// Words of one symbolic value: two bits for each rank, as in Symbols.
std::uint64_t symbol_words_of(std::uint64_t nodes) { return 2 * ((nodes + 63) / 64); }

/// Bytes for all chunks at all ranks, without the entries of their lists of readers.
std::uint64_t chunk_bytes_of(std::uint64_t nodes, std::uint64_t chunks) {
  return nodes * chunks * (symbol_words_of(nodes) * sizeof(std::uint64_t) + kUsesBytes + 1);
}

}  // namespace

CheckPrice least_price_of_check(int nodes, int chunks) {
  CheckPrice price;
  price.chunk_bytes = chunk_bytes_of(static_cast<std::uint64_t>(nodes), static_cast<std::uint64_t>(chunks));
  return price;
}

CheckPrice price_of_check(const Schedule& schedule, Known known) {
  const auto nodes = static_cast<std::uint64_t>(schedule.nodes()), chunks = static_cast<std::uint64_t>(schedule.chunks);
  const std::uint64_t symbol_words = symbol_words_of(nodes), channels = channels_of(schedule);
  const bool across = known == Known::across_ranks;
  std::uint64_t all_lanes = 0;
  for (const Rank& rank : schedule.ranks) all_lanes += rank.lanes.size();

  CheckPrice price;
  price.chunk_bytes = chunk_bytes_of(nodes, chunks);
  price.op_bytes = channels * (kChannelBytes + symbol_words * sizeof(std::uint64_t));
  price.clock_bytes = across ? channels * all_lanes * kClocks * sizeof(std::uint32_t) : 0;
  for (const Rank& rank : schedule.ranks) {
    const RankSums sums = sums_of(rank);
    const std::uint64_t lanes = rank.lanes.size(), clock = across ? all_lanes : lanes;
    price.chunk_bytes += std::min(sums.reading, chunks * lanes) * kReaderBytes;
    price.op_bytes += sums.ops * kOpBytes + sums.awaited * kAwaitedBytes +
                      lanes * (kLaneBytes + symbol_words * sizeof(std::uint64_t));
    price.clock_bytes += (lanes + sums.awaited) * clock * kClocks * sizeof(std::uint32_t);
    price.steps += sums.chunks * (symbol_words + kChunkSteps) + sums.reading * lanes +
                   kClocks * clock * (lanes + sums.afters + sums.awaited + (across ? sums.messages : 0));
  }
  return price;
}

void require_affordable(const CheckPrice& price) {
  const auto mib = [](std::uint64_t bytes) { return (bytes >> 20) + 1; };
  if (const std::uint64_t state = price.chunk_bytes + price.clock_bytes; state > kCheckStateBytesMax) {
    throw Error(fmt::format(
        "checking it would take {} MiB ({} for chunks at ranks, {} for clocks of lanes), more than {}: make chunks "
        "larger, or take fewer ranks or lanes",
        mib(state), mib(price.chunk_bytes), mib(price.clock_bytes), kCheckStateBytesMax >> 20));
  }
  if (price.op_bytes > kCheckOpBytesMax) {
    throw Error(
        fmt::format("checking it would take {} MiB for its ops, more than {}: take fewer ops, lanes or channels",
                    mib(price.op_bytes), kCheckOpBytesMax >> 20));
  }
  if (price.steps > kCheckStepsMax) {
    throw Error(
        fmt::format("checking it would take {:.1f} billion steps, more than {:.1f}: make chunks larger, or take "
                    "fewer ops, lanes or entries in \"after\"",
                    static_cast<double>(price.steps) * 1e-9, static_cast<double>(kCheckStepsMax) * 1e-9));
  }
}

}  // namespace param_sync::schedule
