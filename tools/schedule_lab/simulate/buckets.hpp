#pragma once
/// @file Which layers of a model are exchanged together, and how.

#include "simulate/traffic.hpp"
#include "simulate/training.hpp"

#include <deque>
#include <map>
#include <string>
#include <vector>

namespace param_sync::simulate {

/// Neighbouring layers whose gradients are exchanged together, in one or more units.
struct Bucket {
  int first_layer = 0;  ///< first layer; its gradient is computed last
  int last_layer = 0;
  double rebuild_s = 0;  ///< time that a node takes to make the gradient from the received factors
  std::vector<Exchange> units;
};

class Buckets {
 public:
  /// Throws schedule::Error.
  Buckets(const models::Model& model, const TrainingSettings& settings);

  const std::vector<Bucket>& all() const { return buckets_; }          ///< in the order of the backward pass
  int of_layer(std::size_t layer) const { return bucket_of_[layer]; }  ///< schedule::kNobody if it has no parameters
  const std::vector<LayerExchange>& layers() const { return layers_; }
  int ranks() const { return settings_.nodes + settings_.summation_nodes; }
  std::uint64_t messages_of_step() const;

 private:
  void add_layer(int layer);
  void add_dense(Bucket bucket, double bytes);
  void add_factors(int layer, const std::string& scheme);
  std::string scheme_of(const models::Layer& layer) const;
  const Plan& plan(const std::string& scheme, int owner = 0);

  const models::Model& model_;
  const TrainingSettings& settings_;
  std::deque<Plan> plans_;
  std::map<std::pair<std::string, int>, const Plan*> plan_of_;
  std::vector<Bucket> buckets_;
  std::vector<int> bucket_of_;
  std::vector<LayerExchange> layers_;
  Bucket open_;  ///< dense layers that have fewer than fuse_bytes bytes so far
  double open_bytes_ = 0;
};

}  // namespace param_sync::simulate
