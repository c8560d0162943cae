#include "simulate/training.hpp"

#include "param_sync/schedule/schedule.hpp"
#include "param_sync/schedule/schemes.hpp"
#include "simulate/buckets.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

namespace param_sync::simulate {
namespace {

using schedule::Error;
using schedule::kNobody;

/// Returns a random number from 0 to 1 that depends only on the seed and the coordinates. (splitmix64.)
double drawn(std::uint64_t seed, std::initializer_list<std::uint64_t> coordinates) {
  std::uint64_t state = seed;
  for (const std::uint64_t number : coordinates) {
    state = (state ^ number) + 0x9e3779b97f4a7c15;
    state = (state ^ (state >> 30)) * 0xbf58476d1ce4e5b9;
    state = (state ^ (state >> 27)) * 0x94d049bb133111eb;
    state ^= state >> 31;
  }
  return static_cast<double>(state >> 11) * 0x1p-53;
}

constexpr std::uint64_t kMessagesMax = 100'000'000;  // simulating these takes some minutes

/// The state of a node.
struct Node {
  int step = 0;
  int layer = 0;  // the layer that computes, or waits for its parameters
  bool forward = true;
  bool computing = false;
  std::vector<int> exchanged;  // by bucket: number of steps in which it has been exchanged
};

/// The exchange of a bucket in one step.
struct BucketExchange {
  std::vector<std::size_t> exchanges;
  std::vector<std::size_t> units_left;  // by rank
};

class Training : public TrafficListener {
 public:
  Training(const models::Model& model, const TrainingSettings& settings)
      : model_(model),
        settings_(settings),
        buckets_(model, settings),
        nodes_(static_cast<std::size_t>(settings.nodes)),
        starts_(static_cast<std::size_t>(settings.steps) + 1),
        traffic_(buckets_.ranks(), settings.network, *this) {
    for (Node& node : nodes_) node.exchanged.resize(buckets_.all().size());
  }

  TrainingTimes run();

  void exchange_done(std::size_t exchange, int rank) override;
  void timer(int rank) override;

 private:
  int layers() const { return static_cast<int>(model_.layers.size()); }
  Node& node(int rank) { return nodes_[static_cast<std::size_t>(rank)]; }
  bool may_go_forward(const Node& at) const;
  void go_forward(int rank);
  void go_backward(int rank);
  void compute(int rank, double seconds);
  void gradient_made(int rank, int layer);
  void start_exchange(int rank, int bucket);
  double forward_s(int layer) const {
    return model_.layers[static_cast<std::size_t>(layer)].forward_flops * settings_.batch / settings_.flops_per_s;
  }

  const models::Model& model_;
  const TrainingSettings& settings_;
  Buckets buckets_;
  std::vector<Node> nodes_;
  std::map<std::pair<int, int>, BucketExchange> bucket_exchanges_;  // by step and bucket
  std::vector<std::pair<int, int>> bucket_exchange_of_;             // by exchange
  std::vector<double> starts_;                                      // by step: when the last node begins it
  Traffic traffic_;
};

bool Training::may_go_forward(const Node& at) const {
  const int bucket = buckets_.of_layer(static_cast<std::size_t>(at.layer));
  if (settings_.order == Order::end) {
    return std::all_of(at.exchanged.begin(), at.exchanged.end(), [&](int steps) { return steps >= at.step; });
  }
  return bucket == kNobody || at.exchanged[static_cast<std::size_t>(bucket)] >= at.step;
}

void Training::go_forward(int rank) {
  Node& at = node(rank);
  if (!may_go_forward(at)) return;
  if (at.layer == 0) {
    double& start_s = starts_[static_cast<std::size_t>(at.step)];
    start_s = std::max(start_s, traffic_.now_s());
    at.computing = at.step == settings_.steps;  // the training has ended: the node waits for nothing
    if (at.computing) return;
  }
  const int bucket = buckets_.of_layer(static_cast<std::size_t>(at.layer));
  const double rebuild_s = bucket == kNobody || at.step == 0
                               ? 0
                               : buckets_.all()[static_cast<std::size_t>(bucket)].rebuild_s;
  compute(rank, forward_s(at.layer) + rebuild_s);
}

void Training::go_backward(int rank) { compute(rank, 2 * forward_s(node(rank).layer)); }

void Training::compute(int rank, double seconds) {
  Node& at = node(rank);
  at.computing = true;
  const auto number = [](int value) { return static_cast<std::uint64_t>(value); };
  const double drawn_share = drawn(settings_.seed,
                                   {number(rank), number(at.step), number(at.layer), number(at.forward ? 0 : 1)});
  const double slower = rank == settings_.nodes - 1 ? settings_.straggler : 1;
  traffic_.after(seconds * slower * (1 + settings_.jitter * (2 * drawn_share - 1)), rank);
}

/// Called when the node has computed a layer.
void Training::timer(int rank) {
  Node& at = node(rank);
  at.computing = false;
  if (at.forward) {
    if (at.layer + 1 < layers()) {
      ++at.layer;
      return go_forward(rank);
    }
    at.forward = false;
    return go_backward(rank);
  }
  gradient_made(rank, at.layer);
  if (at.layer > 0) {
    --at.layer;
    return go_backward(rank);
  }
  at.forward = true;
  ++at.step;
  go_forward(rank);
}

void Training::gradient_made(int rank, int layer) {
  if (settings_.order == Order::end) {
    if (layer > 0) return;
    for (int bucket = 0; bucket < static_cast<int>(buckets_.all().size()); ++bucket) start_exchange(rank, bucket);
    return;
  }
  const int bucket = buckets_.of_layer(static_cast<std::size_t>(layer));
  if (bucket == kNobody || buckets_.all()[static_cast<std::size_t>(bucket)].first_layer != layer) return;
  start_exchange(rank, bucket);
}

/// Called when the rank has its part of a bucket. The first rank that has its part begins the exchange.
void Training::start_exchange(int rank, int bucket) {
  const auto [found, is_new] = bucket_exchanges_.emplace(std::pair{node(rank).step, bucket}, BucketExchange{});
  BucketExchange& of_bucket = found->second;
  const std::vector<Exchange>& units = buckets_.all()[static_cast<std::size_t>(bucket)].units;
  if (is_new) {
    of_bucket.units_left.assign(static_cast<std::size_t>(buckets_.ranks()), units.size());
    for (const Exchange& unit : units) {
      of_bucket.exchanges.push_back(traffic_.begin(unit));
      bucket_exchange_of_.push_back(found->first);
    }
  }
  const std::vector<std::size_t> exchanges = of_bucket.exchanges;  // a copy: the calls below may end it
  for (const std::size_t exchange : exchanges) {
    if (is_new) {
      for (int summing = settings_.nodes; summing < buckets_.ranks(); ++summing) traffic_.ready(exchange, summing);
    }
    traffic_.ready(exchange, rank);
  }
}

void Training::exchange_done(std::size_t exchange, int rank) {
  const auto at = bucket_exchange_of_[exchange];
  BucketExchange& of_bucket = bucket_exchanges_.at(at);
  if (--of_bucket.units_left[static_cast<std::size_t>(rank)] != 0) return;
  if (std::all_of(of_bucket.units_left.begin(), of_bucket.units_left.end(),
                  [](std::size_t left) { return left == 0; })) {
    bucket_exchanges_.erase(at);
  }
  if (rank >= settings_.nodes) return;
  ++node(rank).exchanged[static_cast<std::size_t>(at.second)];
  Node& waiting = node(rank);
  if (waiting.forward && !waiting.computing && waiting.step == at.first + 1) go_forward(rank);
}

TrainingTimes Training::run() {
  const std::uint64_t messages = buckets_.messages_of_step() * static_cast<std::uint64_t>(settings_.steps);
  if (messages > kMessagesMax) {
    throw Error(fmt::format(
        "{} messages in {} steps, more than {}: take fewer steps (3 at least), larger units or fusion (--unit, "
        "--fuse), or a scheme with fewer messages (rhd, tree:binary, hierarchical)",
        messages, settings_.steps, kMessagesMax));
  }
  for (int rank = 0; rank < settings_.nodes; ++rank) go_forward(rank);
  traffic_.run();
  if (traffic_.unfinished() != 0) throw Error("the training does not end: a schedule is wrong");
  TrainingTimes times;
  constexpr int kFirst = 2;  // first step that counts
  const auto step = [&](int number) { return starts_[static_cast<std::size_t>(number)]; };
  times.step_s = (step(settings_.steps) - step(kFirst)) / (settings_.steps - kFirst);
  times.compute_s = 3 * model_.forward_flops() * settings_.batch / settings_.flops_per_s;
  for (int rank = 0; rank < buckets_.ranks(); ++rank) {
    const double bytes = traffic_.bytes_sent(rank) / settings_.steps;
    times.bytes_sent = std::max(times.bytes_sent, bytes);
    times.bytes_sent_by_all += bytes;
  }
  times.layers = buckets_.layers();
  return times;
}

void require(bool right, const std::string& why) {
  if (!right) throw Error("training: " + why);
}

bool is_scheme(const std::string& word) {
  const std::vector<std::string>& names = schedule::scheme_names();
  return std::find(names.begin(), names.end(), word) != names.end();
}

void check_settings(const TrainingSettings& settings) {
  require(settings.nodes >= 1 && settings.nodes <= schedule::kNodesMax,
          fmt::format("{} nodes, not 1 to {}", settings.nodes, schedule::kNodesMax));
  require(settings.batch >= 1, "a batch has one sample at least");
  require(settings.flops_per_s > 0, "nodes compute something");
  require(settings.unit_bytes >= 1024, "units have 1024 bytes at least");
  require(settings.fuse_bytes >= 0, "layers of less than no bytes cannot be fused");
  require(settings.straggler >= 1, "a straggler takes as long as others, or longer");
  require(settings.jitter >= 0 && settings.jitter < 1, "a jitter is a share of the time, below 1");
  require(settings.steps >= 3 && settings.steps <= 1000, fmt::format("{} steps, not 3 to 1000", settings.steps));
  require(!settings.network.topology, "links are all alike: a topology is not used");
  const bool uses_factors = is_for_factors(settings.scheme);
  const std::string& dense = uses_factors ? settings.dense : settings.scheme;
  require(is_scheme(dense), fmt::format("there is no scheme \"{}\" for gradients", dense));
  require(!schedule::uses(dense, schedule::Setting::topology),
          dense + " needs a topology, and links are all alike here");
  require(settings.summation_nodes == 0 || schedule::uses(dense, schedule::Setting::summation_nodes),
          fmt::format("summation nodes are for {}",
                      fmt::join(schedule::schemes_with(schedule::Setting::summation_nodes), " and ")));
  require(settings.summation_nodes == 0 || !uses_factors, "summation nodes have no use for factors");
}

}  // namespace

Order parse_order(const std::string& word) {
  for (const Order order : {Order::end, Order::per_layer, Order::priority}) {
    if (word == to_string(order)) return order;
  }
  throw Error("there is no order \"" + word + "\"; there are: end, per-layer, priority");
}

const char* to_string(Order order) {
  switch (order) {
    case Order::end:
      return "end";
    case Order::per_layer:
      return "per-layer";
    case Order::priority:
      return "priority";
  }
  return "?";
}

TrainingTimes train(const models::Model& model, const TrainingSettings& settings) {
  check_settings(settings);
  return Training(model, settings).run();
}

}  // namespace param_sync::simulate
