#pragma once
/// @file A store and its workers in virtual time (--serial): who may push and read is decided by the clocks of real
/// stores, and pushes are applied by the code of their servers. The order of events depends on the settings alone.

#include "arithmetic/averages.cuh"
#include "arithmetic/shares.cuh"
#include "param_sync/store.hpp"
#include "param_sync/store/correction.hpp"
#include "param_sync/store/range_clocks.hpp"
#include "param_sync/store/sum_of.hpp"
#include "plan/delays.hpp"
#include "plan/store_ranges.hpp"
#include "training/serial_model.cuh"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <queue>
#include <utility>
#include <vector>

namespace param_sync {

/// Sums the ranks' gradients in the order of ranks, and applies the sums, as an owner does. `stride`: floats from a
/// rank's gradients to those of the next one.
[[maybe_unused]] static __global__ void apply_sum(Sgd update, int nodes, std::uint32_t parameters,
                                                  const float* gradients, std::size_t stride, UpdateStates states,
                                                  float* weights) {
  for_share(parameters, [&](std::uint32_t i) {
    float sum = gradients[i];
    for (int rank = 1; rank < nodes; ++rank) sum += gradients[stride * rank + i];
    update.apply(sum, states.of(i), weights[i]);
  });
}

/// Sums the gradients of the ranks that have a bit in `summed`, and applies the sums times `scale`, as an owner does.
[[maybe_unused]] static __global__ void apply_sum_of(Sgd update, std::uint64_t summed, float scale,
                                                     std::uint32_t parameters, const float* gradients,
                                                     std::size_t stride, UpdateStates states, float* weights) {
  for_share(parameters, [&](std::uint32_t i) {
    update.apply(scale * store::sum_of(summed, gradients + i, stride), states.of(i), weights[i]);
  });
}

/// Applies one rank's push. `read`: the weights as the rank has read them, or null.
[[maybe_unused]] static __global__ void apply_single(store::SinglePush push, std::uint32_t parameters,
                                                     const float* pushed, const float* read, float* squares,
                                                     UpdateStates states, float* weights) {
  for_share(parameters, [&](std::uint32_t i) {
    push.apply(pushed[i], read == nullptr ? nullptr : read + i, squares + i, states.of(i), weights[i]);
  });
}

[[maybe_unused]] static __global__ void copy_parameters(std::uint32_t parameters, const float* from, float* to) {
  for_share(parameters, [&](std::uint32_t i) { to[i] = from[i]; });
}

/// Makes a push of the change since `base`.
[[maybe_unused]] static __global__ void take_change(std::uint32_t parameters, int nodes, const float* weights,
                                                    const float* base, float* change) {
  for_share(parameters, [&](std::uint32_t i) { change[i] = part_of_change(weights[i], base[i], nodes); });
}

/// A rank takes an average that comes late.
[[maybe_unused]] static __global__ void take_late_average(std::uint32_t parameters, const float* average,
                                                          float* weights) {
  for_share(parameters, [&](std::uint32_t i) { weights[i] = taken_late(average[i], weights[i]); });
}

/// With what a serial run begins.
struct SerialBegin {
  std::uint64_t step = 0;      ///< the first one
  std::vector<float> weights;  ///< empty: the initial ones
  std::vector<float> states;   ///< of the owners; empty: zeros
};

/// A serial run, whatever its clock.
class SerialRun {
 public:
  virtual ~SerialRun() = default;
  /// Runs until all nodes together have computed so many steps for each of them, those before this run included.
  virtual void run_until(std::uint64_t steps) = 0;
  /// The weights to evaluate: the store's, or rank 0's if it trains by itself.
  virtual const float* newest() const = 0;
  /// The mean loss of as many steps as there are nodes, in the order in which they ended. The stream was synchronized.
  virtual float mean_loss(std::uint64_t step) const = 0;
  virtual std::vector<float> weights() const = 0;
  /// What another run can begin with. Of Bsp; the stream was synchronized.
  virtual SerialBegin end() const = 0;
  /// Adds what a store counts.
  virtual void finish(NodeReport& report) const = 0;
};

template <class Clock>
class SerialStore final : public SerialRun {
 public:
  SerialStore(const Config& config, const Plan& plan, SerialModel& model, const Clock& clock, const SerialBegin& begin)
      : first_step_(begin.step),
        config_(config),
        plan_(plan),
        sync_(plan.sync),
        model_(model),
        delays_(delays_of(config.delays)),
        ranks_(static_cast<std::size_t>(config.nodes)),
        weights_(model.context, versions() * parameters()),
        states_(model.context, of_ranks(plan.owners.kStateFloats)),
        squares_(model.context, parameters()),
        gradients_(model.context, of_ranks(versions())),
        scratch_(model.context, alone() || by_tree() ? parameters() : 1),
        own_(model.context, of_ranks(has_own() ? 1 : 0)),
        bases_(model.context, of_ranks(alone() ? 1 : 0)),
        own_states_(model.context, of_ranks(alone() ? state_floats(plan.update) : 0)) {
    weights_.copy_in(begin.weights.empty() ? initial_weights(plan.layout, config.seed) : begin.weights);
    if (!begin.states.empty()) states_.copy_in(begin.states);
    for (Rank& rank : ranks_) rank.steps = first_step_;
    if (!sync_.by_layer && !by_tree()) parts_.push_back(part_of(clock, {0, {0, parameters()}}));
    for (int layer = 0; sync_.by_layer && layer < plan.layout.size(); ++layer) {
      const Layer& at = plan.layout[layer];
      parts_.push_back(part_of(clock, {layer, {at.offset, at.offset + at.parameters()}}));
    }
    if (by_tree()) {
      for (const StoreRange& range : store_ranges(plan.layout, config.nodes)) parts_.push_back(part_of(clock, range));
    }
    for (int rank = 0; rank < config_.nodes; ++rank) begin_step(rank);
  }

  void run_until(std::uint64_t steps) override {
    const std::size_t all = (steps - first_step_) * ranks_.size();
    while (Clock::kDropsLate ? summed_.size() < steps : computed_.size() < all) {
      const auto [time, rank] = events_.top();
      events_.pop();
      now_ = time;
      rank == kGraceEnds ? end_grace() : end_step(rank);
    }
    times_ns_.push_back(static_cast<std::uint64_t>(now_ * 1e9));
  }

  const float* newest() const override {
    if (by_tree() && ranks_[0].steps != plan_.steps) return passed_on_to_first();
    return alone() && ranks_[0].steps != plan_.steps ? own(0) : version(parts_[0].version);
  }

  float mean_loss(std::uint64_t step) const override {
    double sum = 0;
    if constexpr (Clock::kDropsLate) {
      const auto of_sum = static_cast<std::size_t>(std::popcount(summed_[step]));
      for (int rank = 0; rank < config_.nodes; ++rank) {
        if ((summed_[step] >> rank & 1) != 0) sum += model_.loss(data_rank(rank), step);
      }
      return static_cast<float>(sum / static_cast<double>(of_sum));
    }
    const std::size_t first = (step - first_step_) * ranks_.size();
    for (std::size_t i = first; i < first + ranks_.size(); ++i) {
      sum += model_.loss(computed_[i].first, computed_[i].second);
    }
    return static_cast<float>(sum / config_.nodes);
  }

  std::vector<float> weights() const override {
    std::vector<float> all(parameters());
    weights_.copy_out(all, parts_[0].version % versions() * parameters());
    return all;
  }

  SerialBegin end() const override {
    SerialBegin next{ranks_[0].steps, weights(), std::vector<float>(parameters() * plan_.owners.kStateFloats)};
    states_.copy_out(next.states);
    return next;
  }

  void finish(NodeReport& report) const override {
    if (!config_.delays.empty()) report.step_times_ns = times_ns_;
    if (config_.sync.empty()) return;
    report.computed_batches = computed_.size() * sync_.batches_of_node();
    report.pushes = pushes_;
    report.dropped_pushes = dropped_;
    report.staleness = lags_;
    report.staleness_sum = lags_sum_;
    report.staleness_max = lags_most_;
    if (config_.history_file.empty()) return;
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      report.history += to_json_lines(static_cast<int>(rank), ranks_[rank].history);
    }
  }

 private:
  struct Rank {
    std::uint64_t steps = 0;  ///< that it has computed
    bool waits = false;       ///< for weights
    std::vector<StoreEvent> history;
  };
  /// What a rank has done with a part of the model.
  struct RankPart {
    std::uint64_t made = 0;            ///< pushes that it has made
    std::uint64_t taken = 0;           ///< pushes that the store has taken
    std::uint64_t read_of_others = 0;  ///< how many pushes of others it has read
  };
  /// Parameters that are exchanged together: a range of the store.
  struct Part {
    int layer = 0;  ///< the first one of its layers
    int owner = 0;  ///< with trees
    std::uint32_t begin = 0, count = 0;
    std::vector<std::uint64_t> received, contained;  ///< see RangeClocks
    store::RangeClocks clocks;
    std::vector<RankPart> ranks;
    std::uint64_t version = 0;

    RankLayer of(int rank) const { return {rank, layer}; }
  };
  using Event = std::pair<double, int>;  ///< when a rank's step ends, or kGraceEnds
  static constexpr int kGraceEnds = -1;

  std::uint32_t parameters() const { return plan_.layout.parameters(); }
  std::size_t of_ranks(std::uint64_t copies) const {
    return std::max<std::size_t>(1, ranks_.size() * parameters() * copies);
  }
  std::uint64_t versions() const { return sync_.lag_max() + 1; }
  bool by_tree() const { return sync_.tree_depth != 0; }
  bool alone() const { return sync_.local_steps != 0; }
  /// True if ranks have copies of the weights. With Bsp they read a version that stays until all have computed.
  bool has_own() const { return alone() || by_tree() || !Clock::kInRankOrder; }

  float* of_rank(const gpusock::DeviceBuffer<float>& all, int rank, std::uint64_t copies = 1) const {
    return all.data() + static_cast<std::size_t>(rank) * parameters() * copies;
  }
  float* own(int rank) const { return of_rank(own_, rank); }
  float* version(std::uint64_t number) const { return weights_.data() + number % versions() * parameters(); }
  /// A rank's gradients that turn a version into the next one. Those of the next rank come after them.
  float* gradients(std::uint64_t number, int rank) const {
    const std::uint64_t version = number % versions();
    return gradients_.data() + (version * ranks_.size() + static_cast<std::size_t>(rank)) * parameters();
  }
  Rank& at(int rank) { return ranks_[static_cast<std::size_t>(rank)]; }
  /// Which part of the samples a rank computes gradients of: with Coded the ranks of a group have the same one.
  int data_rank(int rank) const { return rank / static_cast<int>(sync_.batches_of_node()); }

  Part part_of(const Clock& clock, const StoreRange& range) const {
    Part part;
    part.layer = range.layer;
    part.owner = range.owner;
    part.begin = range.parameters.begin;
    part.count = range.parameters.size();
    part.version = sync_.exchanges_before(first_step_, {0, range.layer});
    part.received.resize(ranks_.size(), part.version);
    part.contained.resize(ranks_.size(), part.version);
    part.clocks = {store::Clock(clock), part.received.data(), part.contained.data(), config_.nodes};
    part.ranks.resize(ranks_.size(), {.made = part.version, .taken = part.version, .read_of_others = 0});
    return part;
  }

  /// The version of a part that a rank computes its next step with.
  std::uint64_t wanted(int rank, const Part& part) const {
    const std::uint64_t step = ranks_[static_cast<std::size_t>(rank)].steps;
    if (!by_tree()) return sync_.version_of(step, part.of(rank));
    const std::uint64_t lag = sync_.lag_of(part.owner, rank);
    return step < lag ? 0 : step - lag;
  }

  /// The weights that rank 0 has when all have made as many pushes: each owner's as they have come down its tree.
  const float* passed_on_to_first() const {
    for (const Part& part : parts_) {
      const std::uint64_t levels = sync_.lag_of(part.owner, 0) - 1;
      const std::uint64_t come = part.version < levels ? 0 : part.version - levels;
      model_.launch(copy_parameters, part.count, version(come) + part.begin, scratch_.data() + part.begin);
    }
    return scratch_.data();
  }

  /// True if a rank pulls a part before its next step.
  bool reads(int rank, const Part& part) {
    const RankLayer of = part.of(rank);
    const std::uint64_t step = at(rank).steps;
    return (!alone() || sync_.begins_alone(step, of)) && sync_.pulls_after(sync_.exchanges_before(step, of));
  }

  /// True if a rank has made steps since it has pushed what it reads now.
  bool comes_late(int rank) const { return sync_.overlap != 0 && ranks_[static_cast<std::size_t>(rank)].steps != 0; }

  /// A rank begins a step as soon as it has the weights.
  void begin_step(int rank) {
    Rank& of = at(rank);
    if (of.steps == plan_.steps) return;
    of.waits = std::any_of(parts_.begin(), parts_.end(), [&](const Part& part) {
      return reads(rank, part) && !part.clocks.may_read(rank, wanted(rank, part));
    });
    if (of.waits) return;
    for (Part& part : parts_) {
      if (reads(rank, part)) read(rank, part);
      if (sync_.begins_alone(of.steps, part.of(rank)) && !comes_late(rank)) {
        model_.launch(copy_parameters, part.count, own(rank) + part.begin, of_rank(bases_, rank) + part.begin);
      }
    }
    const double time = delays_.time_of(config_.seed, rank, config_.nodes, of.steps);
    events_.emplace(now_ + static_cast<double>(sync_.batches_of_node()) * time, rank);
  }

  void read(int rank, Part& part) {
    const RankLayer of = part.of(rank);
    const std::uint64_t number = wanted(rank, part);
    const float* const newest = version(by_tree() ? number : part.version) + part.begin;
    if (comes_late(rank)) {
      model_.launch(copy_parameters, part.count, newest, of_rank(bases_, rank) + part.begin);
      model_.launch(take_late_average, part.count, newest, own(rank) + part.begin);
    } else if (has_own()) {
      model_.launch(copy_parameters, part.count, newest, own(rank) + part.begin);
    }
    part.ranks[static_cast<std::size_t>(rank)].read_of_others = part.clocks.of_others(rank);
    count_lags(rank, part, sync_.exchanges_before(at(rank).steps, of), number);
    if (config_.history_file.empty()) return;
    StoreEvent& event = at(rank).history.emplace_back();
    event.clock = number;
    event.begin = part.begin;
    event.end = part.begin + part.count;
    event.seen = part.contained;
  }

  void count_lags(int rank, const Part& part, std::uint64_t pushes, std::uint64_t wanted) {
    if (pushes == 0) return;
    for (int other = 0; other < config_.nodes; ++other) {
      if (other == rank) continue;
      const std::uint64_t seen = sync_.depth != 0 ? wanted : part.contained[static_cast<std::size_t>(other)];
      const std::uint64_t lag = seen < pushes ? pushes - seen : 0;
      const std::size_t index = std::min<std::size_t>(lag, kLagsMax);
      if (lags_.size() <= index) lags_.resize(index + 1);
      ++lags_[index];
      lags_sum_ += lag;
      lags_most_ = std::max(lags_most_, lag);
    }
  }

  void end_step(int rank) {
    Rank& of = at(rank);
    const std::uint64_t step = of.steps++;
    computed_.emplace_back(rank, step);
    if (Clock::kDropsLate && step < parts_[0].version) return end_late_step(rank);
    const std::uint64_t made = parts_[0].ranks[static_cast<std::size_t>(rank)].made;
    float* const computed = alone() ? scratch_.data() : gradients(made, rank);
    model_.compute(data_rank(rank), step, has_own() ? own(rank) : version(sync_.version_of(step, parts_[0].of(rank))),
                   computed);
    if (alone()) apply_own(rank, computed);
    for (Part& part : parts_) {
      if (sync_.exchanges_after(step, part.of(rank))) make_push(rank, part);
    }
    push_all();
    begin_step(rank);
  }

  /// A rank's push comes after the sum without it: the store drops it, and the rank goes on from the newest version.
  /// The gradients change nothing, so they are not computed.
  void end_late_step(int rank) {
    Part& part = parts_[0];
    RankPart& of = part.ranks[static_cast<std::size_t>(rank)];
    part.clocks.begin_push(rank, at(rank).steps - 1);
    part.clocks.end_push(rank);
    ++dropped_;
    ++pushes_;
    ++of.made;
    ++of.taken;
    at(rank).steps = part.version;
    begin_step(rank);
  }

  void make_push(int rank, Part& part) {
    RankPart& of = part.ranks[static_cast<std::size_t>(rank)];
    if (alone()) {
      model_.launch(take_change, part.count, config_.nodes, own(rank) + part.begin, of_rank(bases_, rank) + part.begin,
                    gradients(of.made, rank) + part.begin);
    }
    ++of.made;
    pushes_ += &part == &parts_.front() ? 1 : 0;
  }

  /// A rank applies its own gradients.
  void apply_own(int rank, const float* of_step) {
    const std::uint64_t floats = static_cast<std::uint64_t>(state_floats(plan_.update));
    const UpdateStates states{of_rank(own_states_, rank, floats), parameters()};
    model_.launch(apply_sum, std::get<Sgd>(plan_.update), 1, parameters(), of_step, std::size_t{0}, states, own(rank));
  }

  /// The store takes all pushes that it may take. Ranks that wait for them go on.
  void push_all() {
    for (bool some = true; some;) {
      some = false;
      for (Part& part : parts_) {
        for (int rank = 0; rank < config_.nodes; ++rank) {
          const RankPart& of = part.ranks[static_cast<std::size_t>(rank)];
          if (of.taken == of.made || !part.clocks.may_push(rank)) continue;
          push(rank, part);
          some = true;
        }
      }
    }
    for (int rank = 0; rank < config_.nodes; ++rank) {
      if (at(rank).waits) begin_step(rank);
    }
  }

  void push(int rank, Part& part) {
    RankPart& of = part.ranks[static_cast<std::size_t>(rank)];
    const std::uint64_t number = of.taken++;
    if (!config_.history_file.empty()) {
      at(rank).history.push_back(
          {.is_push = true, .clock = number + 1, .begin = part.begin, .end = part.begin + part.count, .seen = {}});
    }
    if constexpr (Clock::kDropsLate) {
      part.clocks.begin_push(rank, at(rank).steps - 1);
      if (part.clocks.end_push(rank) && !is_in_grace(part)) apply_some(part);
    } else if constexpr (Clock::kInRankOrder) {
      if (!part.clocks.end_push(rank)) return;
      float* const next = version(part.version + 1) + part.begin;
      if (versions() != 1) model_.launch(copy_parameters, part.count, version(part.version) + part.begin, next);
      const UpdateStates states{states_.data(), parameters()};
      model_.launch(apply_sum, plan_.owners, config_.nodes, part.count, gradients(part.version, 0) + part.begin,
                    std::size_t{parameters()}, states.from(part.begin), next);
      ++part.version;
      part.clocks.apply_all();
    } else {
      const store::SinglePush push(plan_.owners, plan_.correction, config_.nodes,
                                   part.clocks.of_others(rank) - of.read_of_others);
      const float* const read = plan_.correction.compensation == 0 ? nullptr : own(rank) + part.begin;
      const UpdateStates states{of_rank(states_, rank, Sgd::kStateFloats), parameters()};
      model_.launch(apply_single, push, part.count, of_rank(gradients_, rank) + part.begin, read,
                    squares_.data() + part.begin, states.from(part.begin), weights_.data() + part.begin);
      part.clocks.end_push(rank);
    }
  }

  /// True if enough pushes have come for the next version, and it still waits for the others.
  bool is_in_grace(Part& part) {
    const double grace = static_cast<double>(part.clocks.clock.grace()) * 1e-9;
    const std::vector<std::uint32_t> none_is_lost(ranks_.size());
    if (grace == 0 || part.clocks.all_have_come(none_is_lost.data())) return false;
    if (grace_until_ == 0) events_.emplace(grace_until_ = now_ + grace, kGraceEnds);
    return now_ < grace_until_;
  }

  /// The version that was to end now may have ended earlier.
  void end_grace() {
    if (grace_until_ == 0 || now_ < grace_until_) return;
    apply_some(parts_[0]);
    push_all();
  }

  /// Applies the sum of the pushes that have come.
  void apply_some(Part& part) {
    grace_until_ = 0;
    summed_.push_back(part.clocks.summed());
    model_.launch(apply_sum_of, plan_.owners, summed_.back(), part.clocks.clock.scale(summed_.back(), config_.nodes),
                  part.count, gradients(0, 0), std::size_t{parameters()}, UpdateStates{states_.data(), parameters()},
                  weights_.data());
    ++part.version;
    part.clocks.apply_all();
  }

  static constexpr std::size_t kLagsMax = 64;

  const std::uint64_t first_step_;
  const Config& config_;
  const Plan& plan_;
  const SyncPlan& sync_;
  SerialModel& model_;
  Delays delays_;
  std::vector<Rank> ranks_;
  std::vector<Part> parts_;
  gpusock::DeviceBuffer<float> weights_;     ///< by version
  gpusock::DeviceBuffer<float> states_;      ///< the owners', by rank; with Bsp rank 0's are those of all
  gpusock::DeviceBuffer<float> squares_;     ///< see SinglePush
  gpusock::DeviceBuffer<float> gradients_;   ///< by version, then by rank: what is pushed
  gpusock::DeviceBuffer<float> scratch_;     ///< gradients that a rank applies by itself
  gpusock::DeviceBuffer<float> own_;         ///< by rank: its weights
  gpusock::DeviceBuffer<float> bases_;       ///< by rank: its weights after its last push
  gpusock::DeviceBuffer<float> own_states_;  ///< by rank
  double now_ = 0;                           ///< virtual time, in steps of a rank without delays
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::vector<std::pair<int, std::uint64_t>> computed_;  ///< ranks and their steps, in the order in which these ended
  std::vector<std::uint64_t> summed_;                    ///< with a clock that is kDropsLate: by step, whose gradients
  double grace_until_ = 0;                               ///< likewise: when a version ends that has enough; 0: none has
  std::uint64_t pushes_ = 0;                             ///< of the first part
  std::uint64_t dropped_ = 0;                            ///< those that were late
  std::vector<std::uint64_t> times_ns_;                  ///< by step: when all ranks together had computed so many
  std::vector<std::uint64_t> lags_;
  std::uint64_t lags_sum_ = 0, lags_most_ = 0;
};

}  // namespace param_sync
