#include "param_sync/group.hpp"

#include "param_sync/bootstrap/bootstrap.hpp"
#include "param_sync/group/connected_group.hpp"
#include "param_sync/schedule/collectives.hpp"
#include "param_sync/schedule/rank_order.hpp"
#include "param_sync/schedule/schemes.hpp"

#include <algorithm>
#include <utility>

namespace param_sync {
namespace {

using schedule::Schedule;

constexpr int kBroadcastChunks = 8;

/// How many elements have one word of 4 bytes, which is what lanes move.
std::size_t elements_of_word(DataType type) { return sizeof(float) / size_of(type); }

[[noreturn]] void refuse(const std::string& why) { throw gpusock::Error(EINVAL, "a group: " + why); }

/// How many words so many elements are. Throws gpusock::Error (EINVAL) if that is no whole number.
std::size_t words_of(std::size_t count, DataType type) {
  const std::size_t elements = elements_of_word(type);
  if (count % elements == 0) return count / elements;
  refuse("a tensor of " + std::to_string(count) + " elements of " + name_of(type) +
         ": elements of 16 bits are moved in pairs, so their count is even. Add one that is 0");
}

}  // namespace

std::size_t small_floats_of(const std::vector<gpusock::Endpoint>& addresses) {
  const auto is_at_first = [&](const gpusock::Endpoint& at) {
    const gpusock::Endpoint& first = addresses.front();
    return at.family == first.family && std::ranges::equal(at.address, first.address) && at.scope_id == first.scope_id;
  };
  return std::ranges::all_of(addresses, is_at_first) ? kSmallFloatsOfHost : kSmallFloats;
}

std::string large_scheme(int nodes) { return nodes <= kMeshRanksMax ? "mesh" : "ring"; }

std::string all_reduce_scheme(const GroupOptions& options, bool is_small, const std::string& large) {
  if (options.all_reduce != "auto") return options.all_reduce;
  if (options.deterministic) return "chain";
  return is_small ? "butterfly" : large;
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
  if (nodes < 1 || nodes > bootstrap::kRanksMax) {
    refuse(std::to_string(nodes) + " ranks, not 1 to " + std::to_string(bootstrap::kRanksMax));
  }
  if (rank < 0 || rank >= nodes) {
    refuse("rank " + std::to_string(rank) + ", but ranks are 0 to " + std::to_string(nodes - 1));
  }
  const auto all_reduce = [&](bool is_small) {
    return all_reduce_of(all_reduce_scheme(options, is_small, large_scheme(nodes)), nodes, options.deterministic);
  };
  std::vector<Schedule> all{all_reduce(true), all_reduce(false), schedule::ring_reduce_scatter(nodes, nodes),
                            schedule::ring_all_gather(nodes, nodes)};
  for (int root = 0; root < nodes; ++root) all.push_back(schedule::chain_broadcast(nodes, kBroadcastChunks, root));
  return all;
}

}  // namespace

executor::Settings settings_of(int rank, const GroupOptions& options) {
  executor::Settings settings;
  settings.rank = rank;
  settings.ring_bytes = options.ring_bytes;
  settings.connect_timeout_ns = options.connect_timeout_ns;
  settings.last_words = executor::LastWordsBy::lanes;
  return settings;
}

namespace {

executor::Settings on_stream(executor::Settings settings, gpusock::Stream* stream) {
  settings.stream = stream;
  return settings;
}

}  // namespace

Group::Impl::Impl(gpusock::Context& of, int own_rank, int all, const GroupOptions& given)
    : context(of),
      rank(own_rank),
      nodes(all),
      options(given),
      executor(of, on_stream(settings_of(rank, given), given.stream), schedules_of(rank, all, given)) {
  if (has_choice(given)) measured.emplace(of);
}

gpusock::Endpoint Group::Impl::listen(const gpusock::Endpoint& at) {
  listens_at = at;
  const gpusock::Endpoint found = executor.listen(at);
  listens = true;
  return found;
}

void Group::Impl::connect(const std::vector<gpusock::Endpoint>& to) {
  if (connected) refuse("it is connected already");
  executor.begin_connect(to);
  try {
    executor.await_connect();
  } catch (const gpusock::Error& error) {
    if (const int other = executor.unreachable_rank(); other >= 0) throw UnreachableRank(error, other);
    throw;
  }
  addresses = to;
  small_floats_max = small_floats_of(to);
  connected = true;
}

Group Group::from_environment(gpusock::Context& context, const GroupOptions& options) {
  const gpusock::LinkKind link = gpusock::Endpoint::parse("127.0.0.1:0").link;  // from GPUSOCK_LINK
  const auto launch = bootstrap::read_launch();
  const auto others = bootstrap::make_bootstrap(launch.value_or(bootstrap::Launch{.size = 1}),
                                                options.connect_timeout_ns);
  auto made = std::make_unique<Impl>(context, others->rank(), others->size(), options);
  gpusock::Endpoint at = others->where_to_listen();
  at.link = link;
  auto all = others->exchange_addresses(made->listen(at));
  for (gpusock::Endpoint& address : all) address.link = link;
  made->connect(all);
  return Group(std::move(made));
}

Group::Group(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Group::Group(gpusock::Context& context, int rank, int nodes, const GroupOptions& options)
    : impl_(std::make_unique<Impl>(context, rank, nodes, options)) {}

Group::~Group() { impl_->executor.await_runs(); }

int Group::rank() const { return impl_->rank; }
int Group::nodes() const { return impl_->nodes; }

gpusock::Endpoint Group::listen(const gpusock::Endpoint& at) { return impl_->listen(at); }
void Group::connect(const std::vector<gpusock::Endpoint>& addresses) { impl_->connect(addresses); }

Group::Operation Group::Impl::start(std::size_t index, const Tensor& tensor, ReduceOp op, std::uint64_t timeout_ns) {
  return ready().start_reduction(index, tensor.data, words_of(tensor), timeout_ns, {tensor.type, op});
}

std::size_t Group::Impl::words_of(const Tensor& tensor) try {
  return param_sync::words_of(tensor.count, tensor.type);
} catch (const gpusock::Error&) {
  executor.give_up();
  throw;
}

Group::Operation Group::all_reduce(const Tensor& tensor, ReduceOp op, std::uint64_t timeout_ns) {
  const std::size_t words = tensor.count / elements_of_word(tensor.type);
  return impl_->start(words <= impl_->small_floats_max ? kSmall : kLarge, tensor, op, timeout_ns);
}

Group::Operation Group::reduce_scatter(const Tensor& tensor, ReduceOp op, std::uint64_t timeout_ns) {
  return impl_->start(kReduceScatter, tensor, op, timeout_ns);
}

Group::Operation Group::all_gather(const Tensor& tensor, std::uint64_t timeout_ns) {
  return impl_->start(kAllGather, tensor, ReduceOp::sum, timeout_ns);
}

Group::Operation Group::broadcast(const Tensor& tensor, int root, std::uint64_t timeout_ns) {
  if (root < 0 || root >= impl_->nodes) {
    impl_->executor.give_up();
    refuse("a broadcast from rank " + std::to_string(root) + ", but ranks are 0 to " +
           std::to_string(impl_->nodes - 1));
  }
  return impl_->start(kBroadcast + static_cast<std::size_t>(root), tensor, ReduceOp::sum, timeout_ns);
}

Group::Operation Group::barrier(std::uint64_t timeout_ns) {
  return impl_->ready().start(kSmall, nullptr, 0, timeout_ns);  // the sum of empty tensors
}

void Group::wait(Operation operation) { impl_->ready().wait(operation); }
bool Group::done(Operation operation) { return impl_->ready().done(operation); }

TensorPart Group::part(int rank, std::size_t count, DataType type) const {
  if (rank < 0 || rank >= impl_->nodes) refuse("the part of rank " + std::to_string(rank));
  const std::size_t elements = elements_of_word(type), words = words_of(count, type);
  const auto nodes = static_cast<std::size_t>(impl_->nodes), index = static_cast<std::size_t>(rank);
  // This is words * i / nodes, without the product words * i, which may overflow.
  const auto begin_of = [&](std::size_t i) { return (words / nodes * i + words % nodes * i / nodes) * elements; };
  return {begin_of(index), begin_of(index + 1)};
}

}  // namespace param_sync
