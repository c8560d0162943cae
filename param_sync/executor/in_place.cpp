#include "param_sync/executor/in_place.hpp"

#include "param_sync/executor/failure.hpp"
#include "param_sync/executor/order.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

namespace param_sync::executor {
namespace {

using OpOfRank = std::pair<int, int>;  // lane, index

/// What a rank's ops do with the data that it has from the beginning, and which lanes send on its channels.
class OwnData {
 public:
  OwnData(const schedule::Schedule& schedule, int rank) : chunks_(static_cast<std::size_t>(schedule.chunks)) {
    for (const OpLocation& at : order_of(schedule)) {
      if (at.rank != rank) continue;
      const schedule::Op& op = schedule.ranks[static_cast<std::size_t>(rank)]
                                   .lanes[static_cast<std::size_t>(at.lane)][static_cast<std::size_t>(at.index)];
      look_at(op, {at.lane, at.index});
    }
  }

  /// True if this op is the only one that reads its chunks' original data, and a later op replaces this data.
  bool only_reader(const schedule::Op& op, OpOfRank location) const {
    return std::all_of(chunks_.begin() + op.chunk, chunks_.begin() + op.chunk + op.count,
                       [&](const Chunk& chunk) { return chunk.readers == 1 && chunk.last == location && !chunk.own; });
  }

  /// True if this op is the first send on its channel, and all other sends there are of its lane.
  bool leads_channel(const schedule::Op& op, OpOfRank location) const {
    const Sends& sends = sends_.at({op.to, op.channel});
    return sends.lanes.size() == 1 && sends.first == location;
  }

 private:
  struct Chunk {
    bool own = true;  // it still has its original data
    int readers = 0;  // ops that read this data
    OpOfRank last;
  };
  struct Sends {
    OpOfRank first;
    std::set<int> lanes;
  };

  void look_at(const schedule::Op& op, OpOfRank location) {
    using schedule::Kind;
    const bool replaces = op.kind == Kind::recv || op.kind == Kind::recv_send, sends = op.kind == Kind::send;
    for (int chunk = op.chunk; chunk < op.chunk + op.count; ++chunk) {
      Chunk& is = chunks_[static_cast<std::size_t>(chunk)];
      if (is.own && !replaces) {
        ++is.readers;
        is.last = location;
      }
      if (!sends) is.own = false;
    }
    if (!op.sends()) return;
    Sends& on = sends_.try_emplace({op.to, op.channel}, Sends{location, {}}).first->second;
    on.first = std::min(on.first, location);  // the first one, if they are of one lane
    on.lanes.insert(location.first);
  }

  std::vector<Chunk> chunks_;
  std::map<std::pair<int, int>, Sends> sends_;  // by rank and channel
};

}  // namespace

std::vector<InPlaceSend> in_place_sends(const schedule::Schedule& schedule, int rank, const Program& program,
                                        const Cut& cut, std::uint64_t ring_bytes) {
  std::vector<InPlaceSend> all;
  const OwnData own(schedule, rank);
  const auto& lanes = schedule.ranks[static_cast<std::size_t>(rank)].lanes;
  for (std::size_t lane = 0; lane < lanes.size(); ++lane) {
    for (std::size_t index = 0; index < lanes[lane].size(); ++index) {
      const schedule::Op& op = lanes[lane][index];
      const OpOfRank location{static_cast<int>(lane), static_cast<int>(index)};
      if (op.kind != schedule::Kind::send || op.is_signal()) continue;
      if (!own.only_reader(op, location) || !own.leads_channel(op, location)) continue;
      if (cut.passes() != 1 && op.count != 1) continue;  // parts of several chunks are not contiguous
      const Floats floats{cut.part(static_cast<std::uint32_t>(op.chunk), 0).begin,
                          cut.part(static_cast<std::uint32_t>(op.chunk + op.count - 1), 0).end};
      if (floats.count() == 0 || sizeof(MessageHeader) + floats.count() * sizeof(float) > ring_bytes) continue;
      all.push_back({program.lanes[lane].begin + static_cast<int>(index), floats});
    }
  }
  std::sort(all.begin(), all.end(),
            [](const InPlaceSend& a, const InPlaceSend& b) { return a.floats.begin < b.floats.begin; });
  return all;
}

}  // namespace param_sync::executor
