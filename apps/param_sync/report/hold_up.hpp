#pragma once
/// @file Which node the others wait for, and for how long. A node that is slow waits least: the others have waited for
/// it by as much as they have waited longer.

#include <map>
#include <span>

namespace param_sync {

/// A node that has held the others up.
struct HoldUp {
  int rank = -1;    ///< the first one that has waited least; -1: nobody knows
  double held = 0;  ///< by how much the others have waited longer, on average; in the unit of their waits
};

/// `waited`: how long each of at least two nodes has waited, by rank.
HoldUp hold_up_of(std::span<const double> waited);

/// The share of the steps in which the others have waited for a rank. `steps`: hold-ups by step.
double share_of_steps(std::span<const HoldUp> steps, int rank);

/// Who holds the others up now, from what nodes say while they train, each at its own times.
class HoldUpNow {
 public:
  /// A rank has waited so long, in so much time since it has begun to train.
  void note(int rank, double waited_s, double train_s);

  /// The hold-up of about the last second, as a share of the time. Its rank is -1 until all of `nodes` ranks have said
  /// how long they have waited.
  HoldUp of(int nodes) const;

 private:
  struct Rank {
    double waited_s = 0, train_s = 0;  ///< when its share was made
    double share = -1;                 ///< of about a second; negative: unknown
  };
  std::map<int, Rank> ranks_;
};

}  // namespace param_sync
