#include "param_sync/schedule/builder.hpp"

#include <bit>
#include <utility>

namespace param_sync::schedule {
namespace {

/// The ranks that take part in the exchanges: those outside of pairs, and the odd rank of each pair. Their number is a
/// power of two.
class Folded {
 public:
  explicit Folded(int nodes)
      : size_(static_cast<int>(std::bit_floor(static_cast<unsigned>(nodes)))), pairs_(nodes - size_) {}

  int size() const { return size_; }
  int rank(int index) const { return index < pairs_ ? 2 * index + 1 : index + pairs_; }

  /// Before the exchanges: the even rank of each pair gives its data to the odd one.
  void fold(Builder& builder, Range all, int receive_lane = Builder::kReceiveLane) const {
    for (int pair = 0; pair < pairs_; ++pair) {
      builder.send(2 * pair, Builder::kSendLane, 2 * pair + 1, all);
      builder.receive(2 * pair + 1, receive_lane, 2 * pair, all, Take::reduce);
    }
  }
  /// After the exchanges: the even rank gets the result.
  void unfold(Builder& builder, Range all, int receive_lane = Builder::kReceiveLane) const {
    for (int pair = 0; pair < pairs_; ++pair) {
      builder.send(2 * pair + 1, Builder::kSendLane, 2 * pair, all);
      builder.receive(2 * pair, receive_lane, 2 * pair + 1, all, Take::copy);
    }
  }

 private:
  int size_;
  int pairs_;
};

/// Returns the parts, out of `size`, that an index keeps after its exchanges with all partners at `distance` or more.
Range kept_parts(Range all, int index, int distance, int size) {
  const int first = index / distance * distance;
  return {part_of(all, first, size).begin, part_of(all, first + distance - 1, size).end};
}

}  // namespace

/// Recursive halving and doubling (Thakur, Rabenseifner and Gropp, 2005). If `nodes` is no power of two, some ranks
/// first give their data to a neighbor, and get the result from it at the end.
Schedule halving_doubling(int nodes, int chunks) {
  Builder builder("rhd", nodes, chunks);
  const Range all{0, chunks};
  const Folded folded(nodes);
  folded.fold(builder, all);
  for (int distance = folded.size() / 2; distance >= 1; distance /= 2) {
    for (int index = 0; index < folded.size(); ++index) {
      const int partner = index ^ distance;
      const Range partners = kept_parts(all, partner, distance, folded.size());
      builder.transfer(folded.rank(index), folded.rank(partner), partners, Take::reduce);
    }
  }
  for (int distance = 1; distance < folded.size(); distance *= 2) {
    for (int index = 0; index < folded.size(); ++index) {
      const Range own = kept_parts(all, index, distance, folded.size());
      builder.transfer(folded.rank(index), folded.rank(index ^ distance), own, Take::copy);
    }
  }
  folded.unfold(builder, all);
  return std::move(builder).finish();
}

/// Recursive doubling: partners exchange all data in each of log2(nodes) steps. See halving_doubling() for numbers of
/// nodes that are no power of two.
///
/// Both partners send a chunk before they add the partner's to it. So a message is one chunk, for which a ring has
/// room. If there is only one chunk, one lane does all: a second lane would only wait for the first, and each costs a
/// thread.
Schedule butterfly(int nodes, int chunks) {
  Builder builder("butterfly", nodes, chunks);
  const Range all{0, chunks};
  const Folded folded(nodes);
  const int receive_lane = chunks == 1 ? Builder::kSendLane : Builder::kReceiveLane;
  folded.fold(builder, all, receive_lane);
  for (int distance = 1; distance < folded.size(); distance *= 2) {
    for (int chunk = 0; chunk < chunks; ++chunk) {
      const Range one{chunk, chunk + 1};
      for (int index = 0; index < folded.size(); ++index) {
        builder.send(folded.rank(index), Builder::kSendLane, folded.rank(index ^ distance), one);
      }
      for (int index = 0; index < folded.size(); ++index) {
        builder.receive(folded.rank(index), receive_lane, folded.rank(index ^ distance), one, Take::reduce);
      }
    }
  }
  folded.unfold(builder, all, receive_lane);
  return std::move(builder).finish();
}

}  // namespace param_sync::schedule
