#include "param_sync/resident.hpp"

#include "param_sync/group/connected_group.hpp"
#include "param_sync/executor/failure.hpp"
#include "param_sync/executor/handover.cuh"

#include <cerrno>
#include <limits>
#include <optional>
#include <string>

namespace param_sync {
namespace {

[[noreturn]] void refuse_sums(const std::string& why) { throw gpusock::Error(EINVAL, "resident sums: " + why); }

std::vector<schedule::Schedule> schedules_of(const std::vector<ResidentTensor>& tensors, int nodes,
                                             const GroupOptions& options, std::size_t small_floats_max) {
  if (tensors.empty()) refuse_sums("no tensor");
  std::vector<schedule::Schedule> all;
  int channels = 0;
  for (const ResidentTensor& tensor : tensors) {
    if (tensor.data == nullptr && tensor.count != 0)
      refuse_sums("a tensor of " + std::to_string(tensor.count) + " floats at a null pointer");
    if (tensor.starting_blocks == 0)
      refuse_sums("a tensor that 0 blocks hand over: give the number of blocks of the kernel");
    // Each tensor has connections of its own, and `ring` has the fewest.
    const std::string scheme = all_reduce_scheme(options, tensor.count <= small_floats_max, "ring");
    all.push_back(all_reduce_of(scheme, nodes, options.deterministic));
    channels = schedule::shift_channels(all.back(), channels);
  }
  return all;
}

std::vector<std::uint32_t> starting_blocks_of(const std::vector<ResidentTensor>& tensors) {
  std::vector<std::uint32_t> all;
  for (const ResidentTensor& tensor : tensors) all.push_back(tensor.starting_blocks);
  return all;
}

}  // namespace

struct ResidentSums::Impl {
  Impl(Group& with, const std::vector<ResidentTensor>& tensors, std::uint64_t timeout_ns)
      : of((static_cast<void>(with.impl_->ready()), *with.impl_)),
        words(of.context, tensors.size()),
        starting(of.context, tensors.size()),
        times(of.context, 1),
        failed(of.context, 1),
        stop(of.context, 1),
        ports(of.context, of.executor, of.addresses, of.nodes) {
    executor.emplace(of.context, settings_of(of.rank, of.options),
                     schedules_of(tensors, of.nodes, of.options, of.small_floats_max));
    starting.copy_in(starting_blocks_of(tensors));
    words.copy_in(std::vector<executor::ExchangeWords>(tensors.size()));
    times.copy_in(std::vector<executor::ExchangeTimes>(1));
    failed.copy_in(std::vector<std::uint64_t>(1));
    stop[0] = 0;
    prepare(tensors, timeout_ns);
    ports.set(of.rank, executor->listen(of.listens_at.with_port(0)).port);
  }

  void prepare(const std::vector<ResidentTensor>& tensors, std::uint64_t timeout_ns) {
    std::vector<executor::Exchanged> exchanged(tensors.size());
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      exchanged[i].schedule = i;
      exchanged[i].gradients = tensors[i].data;
      exchanged[i].count = tensors[i].count;
      exchanged[i].ready_per_step = tensors[i].starting_blocks;
    }
    executor::Residence residence;
    residence.steps = std::numeric_limits<std::uint32_t>::max();
    residence.timeout_ns = timeout_ns;
    residence.words = words.data();
    residence.times = times.data();
    residence.failed = failed.data();
    residence.stop = stop.data();
    residence.in_order = false;
    executor->prepare_resident(exchanged, residence);
  }

  Group::Impl& of;
  gpusock::DeviceBuffer<executor::ExchangeWords> words;
  gpusock::DeviceBuffer<std::uint32_t> starting;
  gpusock::DeviceBuffer<executor::ExchangeTimes> times;
  gpusock::DeviceBuffer<std::uint64_t> failed;
  gpusock::Mapped<std::uint64_t> stop;
  PortExchange ports;
  std::optional<executor::Executor> executor;  // destroyed before the memory that it uses
  bool started = false;
};

ResidentSums::ResidentSums(Group& group, std::vector<ResidentTensor> tensors, std::uint64_t timeout_ns) try
    : impl_(std::make_unique<Impl>(group, tensors, timeout_ns)) {
} catch (const gpusock::Error&) {
  group.impl_->executor.give_up();  // other ranks would wait for this one in start()
}

ResidentSums::~ResidentSums() = default;  // ~Executor sets `stop`

SumsHandle ResidentSums::start() {
  if (impl_->started) refuse_sums("start() was called before");
  impl_->started = true;
  impl_->executor->begin_connect(impl_->ports.exchange(impl_->of.options.connect_timeout_ns));
  impl_->executor->await_connect();
  impl_->executor->start_resident();
  return {impl_->words.data(), impl_->starting.data(), impl_->failed.data(), impl_->stop.data()};
}

void ResidentSums::check() { impl_->executor->check(); }

}  // namespace param_sync
