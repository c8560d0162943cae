#include "param_sync/group.hpp"

#include "param_sync/group/connected_group.hpp"
#include "param_sync/schedule/generators.hpp"
#include "param_sync/schedule/rank_order.hpp"
#include "param_sync/schedule/schemes.hpp"

#include <algorithm>

namespace param_sync {
namespace {

using schedule::Schedule;

constexpr int kGroupNodesMax = 64;
constexpr int kBroadcastChunks = 8;

[[noreturn]] void refuse(const std::string& why) { throw gpusock::Error(EINVAL, "a group: " + why); }

}  // namespace

std::string all_reduce_scheme(const GroupOptions& options, std::size_t count) {
  if (options.all_reduce != "auto") return options.all_reduce;
  if (options.deterministic) return "chain";
  return count <= kSmallFloats ? "butterfly" : "ring";
}

Schedule all_reduce_of(const std::string& scheme, int nodes, bool deterministic) {
  if (schedule::needs_settings(scheme)) {
    refuse("all_reduce by " + scheme + ", which needs settings of its own");
  }
  schedule::Request request;
  request.nodes = nodes;
  Schedule made;
  try {
    made = schedule::generate(scheme, request);
  } catch (const schedule::Error& error) {
    refuse(error.what());
  }
  if (schedule::is_copied(made.result) || made.result == schedule::Result::reduce_scatter) {
    refuse(scheme + " leaves no sum of all tensors at all ranks: it is no all-reduce");
  }
  if (deterministic && !sums_in_rank_order(made)) {
    refuse(scheme + " does not add in the order of ranks for " + std::to_string(nodes) +
           " ranks: take \"chain\" or \"auto\", or leave deterministic out");
  }
  return made;
}

namespace {

std::vector<Schedule> schedules_of(int rank, int nodes, const GroupOptions& options) {
  if (nodes < 1 || nodes > kGroupNodesMax) {
    refuse(std::to_string(nodes) + " ranks, not 1 to " + std::to_string(kGroupNodesMax));
  }
  if (rank < 0 || rank >= nodes) {
    refuse("rank " + std::to_string(rank) + ", but ranks are 0 to " + std::to_string(nodes - 1));
  }
  const auto all_reduce = [&](std::size_t count) {
    return all_reduce_of(all_reduce_scheme(options, count), nodes, options.deterministic);
  };
  std::vector<Schedule> all{all_reduce(kSmallFloats), all_reduce(kSmallFloats + 1),
                            schedule::ring_reduce_scatter(nodes, nodes), schedule::ring_all_gather(nodes, nodes)};
  for (int root = 0; root < nodes; ++root) all.push_back(schedule::chain_broadcast(nodes, kBroadcastChunks, root));
  return all;
}

}  // namespace

executor::Settings settings_of(int rank, const GroupOptions& options) {
  executor::Settings settings;
  settings.rank = rank;
  settings.ring_bytes = options.ring_bytes;
  settings.connect_timeout_ns = options.connect_timeout_ns;
  settings.last_words = true;
  return settings;
}

Group::Group(gpusock::Context& context, int rank, int nodes, const GroupOptions& options)
    : impl_(new Impl{
          context, rank, nodes, options, {context, settings_of(rank, options), schedules_of(rank, nodes, options)}}) {
  if (has_choice(options)) impl_->measured.emplace(context);
}

Group::~Group() { impl_->executor.await_runs(); }

gpusock::Endpoint Group::listen(const gpusock::Endpoint& at) {
  impl_->listens_at = at;
  return impl_->executor.listen(at);
}

void Group::connect(const std::vector<gpusock::Endpoint>& addresses) {
  if (impl_->connected) refuse("it is connected already");
  impl_->executor.begin_connect(addresses);
  impl_->executor.await_connect();
  impl_->addresses = addresses;
  impl_->connected = true;
}

Group::Operation Group::all_reduce(float* data, std::size_t count, std::uint64_t timeout_ns) {
  return impl_->ready().start(count <= impl_->small_floats_max ? kSmall : kLarge, data, count, timeout_ns);
}

Group::Operation Group::reduce_scatter(float* data, std::size_t count, std::uint64_t timeout_ns) {
  return impl_->ready().start(kReduceScatter, data, count, timeout_ns);
}

Group::Operation Group::all_gather(float* data, std::size_t count, std::uint64_t timeout_ns) {
  return impl_->ready().start(kAllGather, data, count, timeout_ns);
}

Group::Operation Group::broadcast(float* data, std::size_t count, int root, std::uint64_t timeout_ns) {
  if (root < 0 || root >= impl_->nodes) {
    impl_->executor.give_up();
    refuse("a broadcast from rank " + std::to_string(root) + ", but ranks are 0 to " +
           std::to_string(impl_->nodes - 1));
  }
  return impl_->ready().start(kBroadcast + static_cast<std::size_t>(root), data, count, timeout_ns);
}

Group::Operation Group::barrier(std::uint64_t timeout_ns) {
  return impl_->ready().start(kSmall, nullptr, 0, timeout_ns);  // the sum of empty tensors
}

void Group::wait(Operation operation) { impl_->ready().wait(operation); }
bool Group::done(Operation operation) { return impl_->ready().done(operation); }

TensorPart Group::part(int rank, std::size_t count) const {
  if (rank < 0 || rank >= impl_->nodes) refuse("the part of rank " + std::to_string(rank));
  const auto nodes = static_cast<std::size_t>(impl_->nodes), index = static_cast<std::size_t>(rank);
  return {count * index / nodes, count * (index + 1) / nodes};
}

}  // namespace param_sync
