#include "param_sync/parameters.hpp"

#include "param_sync/group/connected_group.hpp"
#include "param_sync/wire/hash.hpp"

#include <algorithm>
#include <cerrno>

namespace param_sync {
namespace {

std::size_t checked_size(std::span<const float> initial, executor::Executor& executor) {
  if (!initial.empty()) return initial.size();
  executor.give_up();
  throw gpusock::Error(EINVAL, "parameters of 0 weights: give a value for each weight");
}

/// A hash that differs (except by chance) if ranks use other Parameters, other initial values or another update.
std::uint32_t tag_of(std::span<const float> initial, const Update& update, std::uint32_t number) {
  std::uint64_t hash = fnv1a(&number, sizeof number, hash_of(update));
  hash = fnv1a(initial.data(), initial.size_bytes(), hash);
  return static_cast<std::uint32_t>(hash ^ hash >> 32);
}

}  // namespace

struct Parameters::Impl {
  Impl(Group& of, std::span<const float> initial, const Update& update)
      : group(*of.impl_),
        size(checked_size(initial, group.executor)),
        part(of.part(group.rank, size)),
        tag(tag_of(initial, update, group.parameters_made++)),
        weights(group.context, std::max<std::size_t>(1, part.end - part.begin)),
        made(sgd_of(update)),
        states(group.context, state_floats(made, weights.size())) {
    if (part.begin != part.end) weights.copy_in(initial.subspan(part.begin, part.end - part.begin));
    states.copy_in(std::vector<float>(states.size()));
    optimizing.update = made;
    optimizing.states = {states.data(), weights.size()};
    optimizing.weights = weights.data();
    optimizing.owned = {part.begin, part.end};
  }

  Group::Impl& group;
  std::size_t size;
  TensorPart part;
  std::uint32_t tag;
  gpusock::DeviceBuffer<float> weights;  // of the part
  AnyUpdate made;
  gpusock::DeviceBuffer<float> states;  // states of these weights
  executor::Optimizing optimizing;
  std::uint64_t version = 0;
  Group::Operation last = 0;  // none
};

Parameters::Parameters(Group& group, std::span<const float> initial, const Update& update)
    : impl_(std::make_unique<Impl>(group, initial, update)) {}

Parameters::~Parameters() {
  if (impl_->last == 0) return;
  try {
    impl_->group.executor.wait(impl_->last);
  } catch (const gpusock::Error&) {
    // The program has seen this error in wait(), or chose not to wait.
  }
}

Group::Operation Parameters::push(float* gradients, std::uint64_t timeout_ns) {
  impl_->last = impl_->group.ready().start(kReduceScatter, gradients, impl_->size, timeout_ns, impl_->optimizing,
                                           impl_->tag);
  ++impl_->version;
  return impl_->last;
}

Group::Operation Parameters::pull(float* weights, std::uint64_t timeout_ns) {
  executor::Executor& executor = impl_->group.ready();
  executor.copy(weights + impl_->part.begin, impl_->weights.data(), impl_->part.end - impl_->part.begin);
  return impl_->last = executor.start(kAllGather, weights, impl_->size, timeout_ns, {}, impl_->tag);
}

std::size_t Parameters::size() const { return impl_->size; }
std::uint64_t Parameters::version() const { return impl_->version; }

}  // namespace param_sync
