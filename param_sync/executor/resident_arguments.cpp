#include "param_sync/executor/resident_arguments.hpp"

#include "param_sync/executor/channel_uses.hpp"

#include "gpusock/error.hpp"

#include <cerrno>
#include <map>
#include <string>
#include <utility>

namespace param_sync::executor {
namespace {

[[noreturn]] void refuse(const std::string& why) { throw gpusock::Error(EINVAL, "resident lanes: " + why); }

void check_memory(const Residence& residence) {
  if (residence.words == nullptr) refuse("Residence::words is null: give one ExchangeWords for each tensor");
  if (residence.times == nullptr) refuse("Residence::times is null: give one ExchangeTimes");
  if (residence.failed == nullptr) refuse("Residence::failed is null: give a word of device memory");
  if (residence.stop == nullptr) refuse("Residence::stop is null: give a word of mapped memory");
  if (residence.timeout_ns == 0) refuse("Residence::timeout_ns is 0: no wait for another rank could succeed");
}

void check_weights(const std::string& name, const schedule::Schedule& schedule, const Settings& settings,
                   const Exchanged& tensor) {
  const Optimizing& own = tensor.optimizing;
  const bool apart = settings.execution.weights_apart && schedule.result == schedule::Result::parameter_server;
  if (own.weights == nullptr) {
    if (apart && tensor.count != 0) refuse(name + " has no Optimizing::weights, and they are apart from its gradients");
    return;
  }
  const std::uint64_t floats = own.owned.count() != 0 ? own.owned.count() : tensor.count;
  if (state_floats(own.update) == 0) return;
  if (own.states.first == nullptr || own.states.parameters < floats) {
    refuse(name + " has weights, but Optimizing::states has no memory for " + std::to_string(floats) + " parameters");
  }
}

/// Refuses two tensors that use a channel in one direction: their messages would be mixed.
void check_channels(const std::vector<schedule::Schedule>& schedules, int rank, std::span<const Exchanged> tensors) {
  std::map<std::pair<Channel, bool>, std::size_t> tensor_of;  // by channel, and whether it sends
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const auto use = [&](const Channel& channel, bool sends) {
      const std::size_t other = tensor_of.try_emplace({channel, sends}, i).first->second;
      if (other == i) return;
      refuse("tensors " + std::to_string(other) + " and " + std::to_string(i) + " share channel " +
             std::to_string(channel.number) + " to rank " + std::to_string(channel.peer) +
             ": give each a schedule of its own, and renumber its channels by schedule::shift_channels()");
    };
    for (const schedule::Lane& lane : schedules[tensors[i].schedule].ranks[static_cast<std::size_t>(rank)].lanes) {
      for_each_channel_use(lane, use);
    }
  }
}

}  // namespace

void check_resident(const std::vector<schedule::Schedule>& schedules, const Settings& settings,
                    std::span<const Exchanged> tensors, const Residence& residence) {
  if (tensors.empty()) refuse("there are no tensors");
  check_memory(residence);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const Exchanged& tensor = tensors[i];
    const std::string name = "tensor " + std::to_string(i);
    if (tensor.schedule >= schedules.size()) {
      refuse(name + " has schedule " + std::to_string(tensor.schedule) + ", but the executor has " +
             std::to_string(schedules.size()));
    }
    if (tensor.gradients == nullptr && tensor.count != 0) refuse(name + " has no gradients: the pointer is null");
    if (tensor.ready_per_step == 0) refuse(name + " is handed over 0 times in a step: no step would begin");
    check_weights(name, schedules[tensor.schedule], settings, tensor);
  }
  check_channels(schedules, settings.rank, tensors);
}

}  // namespace param_sync::executor
