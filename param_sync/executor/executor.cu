#include "param_sync/executor/executor.hpp"

#include "param_sync/executor/channels.cuh"
#include "param_sync/executor/failure.hpp"
#include "param_sync/executor/in_place.hpp"
#include "param_sync/executor/lane.cuh"
#include "param_sync/executor/resident.cuh"
#include "param_sync/schedule/check.hpp"

#include <algorithm>
#include <chrono>
#include <deque>
#include <limits>
#include <string>
#include <thread>
#include <utility>

namespace param_sync::executor {
namespace {

#if defined(GPUSOCK_DEVICE_CPU)
constexpr unsigned kThreads = 1;  // those of a block share one processor
constexpr std::uint64_t kCopyBlocksMax = 1;
#else
constexpr unsigned kThreads = 256;
constexpr std::uint64_t kCopyBlocksMax = 128;
#endif
constexpr std::uint64_t kUnitBytesDefault = 256 << 10;
constexpr int kBacklog = 512;

/// Lanes that the device keeps resident at the same time where nothing else runs.
template <class Kernel>
std::uint64_t resident_lanes_max([[maybe_unused]] const gpusock::Context& context, [[maybe_unused]] unsigned threads,
                                 [[maybe_unused]] Kernel* kernel) {
#if defined(GPUSOCK_DEVICE_CUDA) && !defined(GPUSOCK_CUDA_DOUBLE)
  int processors = 0, blocks = 0;
  if (cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, context.options().gpu) != cudaSuccess ||
      cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, static_cast<int>(threads), 0) != cudaSuccess) {
    throw gpusock::Error(ENODEV, "asking how many blocks GPU " + std::to_string(context.options().gpu) + " keeps");
  }
  return static_cast<std::uint64_t>(processors) * static_cast<std::uint64_t>(blocks);
#else
  return cpu_device::kResidentBlocksMax;
#endif
}

Settings completed(Settings settings) {
  if (!gpusock::is_ring_size(settings.ring_bytes)) {
    throw gpusock::Error(
        EINVAL, "rings of " + std::to_string(settings.ring_bytes) + " bytes: take a power of two from 4 KiB to 64 MiB");
  }
  const std::uint64_t most = settings.ring_bytes - sizeof(MessageHeader);
  if (settings.unit_bytes == 0) settings.unit_bytes = std::min(most, kUnitBytesDefault) / sizeof(float) * sizeof(float);
  if (settings.unit_bytes > most || settings.unit_bytes % sizeof(float) != 0) {
    throw gpusock::Error(EINVAL, "units of " + std::to_string(settings.unit_bytes) +
                                     " bytes: take a multiple of 4 up to " + std::to_string(most) +
                                     ", so that one fits into a ring with its header");
  }
  if (settings.threads == 0) settings.threads = kThreads;
  return settings;
}

}  // namespace

/// A program in device memory.
struct LoadedProgram {
  gpusock::DeviceBuffer<LaneOps> lanes;
  gpusock::DeviceBuffer<LaneOp> ops;
  gpusock::DeviceBuffer<Reached> after;
  gpusock::DeviceBuffer<int> terms;
  int chunks;
  bool lanes_meet;
  int slots_of_lane;
  std::uint64_t slot_floats;
  gpusock::DeviceBuffer<float> slots;
  std::uint64_t ops_of_lane_max = 0;
  std::uint64_t leading = 0;      ///< lanes whose first op leads()
  bool grants_additions = false;  ///< as many ops let other ranks send as add what these send

  LoadedProgram(gpusock::Context& context, const Program& program, std::uint64_t unit_floats)
      : lanes(context, program.lanes.size()),
        ops(context, program.ops.size()),
        after(context, program.after.size()),
        terms(context, program.terms.size()),
        chunks(program.chunks),
        lanes_meet(program.lanes_meet),
        slots_of_lane(program.slots),
        slot_floats(static_cast<std::uint64_t>(program.slot_chunks) * unit_floats),
        slots(context, slot_floats * static_cast<std::uint64_t>(slots_of_lane) * program.lanes.size()) {
    lanes.copy_in(program.lanes);
    if (!program.terms.empty()) terms.copy_in(program.terms);
    if (!program.ops.empty()) ops.copy_in(program.ops);
    if (!program.after.empty()) after.copy_in(program.after);
    const auto count_of = [&](const auto& is_one) {
      return std::count_if(program.ops.begin(), program.ops.end(), is_one);
    };
    grants_additions = count_of([](const LaneOp& op) { return op.is_signal() && op.out != schedule::kNobody; }) ==
                       count_of([](const LaneOp& op) { return op.kind == schedule::Kind::recv_reduce; });
    for (const LaneOps& lane : program.lanes) {
      ops_of_lane_max = std::max(ops_of_lane_max, static_cast<std::uint64_t>(lane.end - lane.begin));
      if (lane.begin != lane.end && leads(program.ops[static_cast<std::size_t>(lane.begin)])) ++leading;
    }
  }
};

/// What a tensor needs to keep to a budget.
struct BudgetMemory {
  gpusock::DeviceBuffer<float> withheld, made;
  gpusock::DeviceBuffer<Change> changes;
  gpusock::DeviceBuffer<std::uint32_t> chosen;

  BudgetMemory(gpusock::Context& context, const Cut& cut)
      : withheld(context, cut.floats),
        made(context, cut.floats),
        changes(context, cut.floats),
        chosen(context, cut.chunks * cut.passes()) {}
};

/// What a tensor needs whose sends may be written in place.
struct PlaceMemory {
  gpusock::DeviceBuffer<Place> places;
  gpusock::DeviceBuffer<int> of_op;

  PlaceMemory(gpusock::Context& context, const Program& program, const std::vector<InPlaceSend>& sends)
      : places(context, sends.size()), of_op(context, program.ops.size()) {
    std::vector<Place> all;
    std::vector<int> indices(program.ops.size(), schedule::kNobody);
    for (const InPlaceSend& send : sends) {
      indices[static_cast<std::size_t>(send.op)] = static_cast<int>(all.size());
      all.push_back({.floats = send.floats, .settled = 0, .first = nullptr, .first_floats = 0, .rest = nullptr});
    }
    places.copy_in(all);
    of_op.copy_in(indices);
  }
};

namespace {

/// What the optimizer goes on from.
__global__ void begin_with_weights(const float* weights, float* made, std::uint64_t count) {
  for_own_share(count, [&](std::uint64_t i) { made[i] = weights[i]; });
}

/// One thread.
__global__ void fail_by_argument(Run run) {
  fail(run, {.kind = ExecutionFailureKind::argument, .error = EINVAL, .lost = run.last_words.rank});
}

__global__ void copy_floats(float* to, const float* from, std::uint64_t count) {
  const std::uint64_t threads = std::uint64_t{blockDim.x} * gridDim.x;
  for (std::uint64_t i = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += threads) to[i] = from[i];
}

/// True if ranks send gradients of their own, and owners the weights that they have made of them: nobody sends what it
/// has received.
bool can_keep_budget(const schedule::Schedule& schedule, const Execution& execution, const Exchanged& tensor) {
  if (schedule.result != schedule::Result::parameter_server || !execution.weights_apart || execution.rank_order) {
    return false;
  }
  for (const schedule::Rank& rank : schedule.ranks) {
    for (const schedule::Lane& lane : rank.lanes) {
      if (std::any_of(lane.begin(), lane.end(), [](const schedule::Op& op) { return op.receives() && op.sends(); })) {
        return false;
      }
    }
  }
  return schedule.workers == schedule.nodes() && tensor.optimizing.weights != nullptr &&
         tensor.count <= std::numeric_limits<std::uint32_t>::max();
}

}  // namespace

struct Executor::Impl {
  Impl(gpusock::Context& of, const Settings& given, std::vector<schedule::Schedule> all)
      : context(of),
        settings(completed(given)),
        schedules(std::move(all)),
        channels(channels_with(settings, channels_of(checked(schedules, settings.rank), settings.rank))),
        sockets(context, channels.size()),
        on_device(context, channels.size()),
        progress(context, schedule::kLanesMax),
        words(context, 3),
        failure(context, 1),
        completed_run(context, 1),
        listening(context, 1),
        slots_taken(context, 1),
        addresses(context, static_cast<std::size_t>(nodes())) {
    if (!channels.empty()) {
      on_device.copy_in(channels);
      sockets.copy_in(std::vector<gpusock::Socket>(channels.size(), -1));
    }
    for (const schedule::Schedule& schedule : schedules) {
      const Program program = program_of(schedule, settings.rank, channels, settings.execution);
      const std::uint64_t most = resident_lanes_max(context, settings.threads, run_lanes);
      if (program.lanes.size() > most) {
        throw gpusock::Error(ENOBUFS, schedule.scheme + " has " + std::to_string(program.lanes.size()) +
                                          " lanes on rank " + std::to_string(settings.rank) +
                                          ", but the device keeps " + std::to_string(most) +
                                          " blocks resident: take a schedule with fewer lanes");
      }
      programs.emplace_back(context, program, settings.unit_bytes / sizeof(float));
    }
  }

  static const std::vector<schedule::Schedule>& checked(const std::vector<schedule::Schedule>& all, int rank) {
    if (all.empty()) throw gpusock::Error(EINVAL, "an executor needs a schedule");
    for (const schedule::Schedule& schedule : all) {
      schedule::check(schedule);
      if (schedule.nodes() != all.front().nodes()) {
        throw gpusock::Error(EINVAL, "schedules of one executor have the same ranks: " + schedule.scheme + " has " +
                                         std::to_string(schedule.nodes()) + ", " + all.front().scheme + " has " +
                                         std::to_string(all.front().nodes()));
      }
    }
    if (rank < 0 || rank >= all.front().nodes()) {
      throw gpusock::Error(
          EINVAL, "rank " + std::to_string(rank) + ", but ranks are 0 to " + std::to_string(all.front().nodes() - 1));
    }
    return all;
  }

  static std::vector<Channel> channels_with(const Settings& settings, const std::vector<Channel>& channels) {
    return settings.last_words ? with_last_words(channels) : channels;
  }

  int nodes() const { return schedules.front().nodes(); }

  Run run() const {
    Run run;
    run.net = context.net();
    run.sockets = sockets.data();
    run.socket_count = static_cast<std::int32_t>(channels.size());
    run.progress = progress.data();
    run.lanes_ended = words.data();
    run.failed = words.data() + 1;
    run.failing = words.data() + 2;
    run.failure = failure.data();
    run.completed = completed_run.data();
    if (settings.last_words) {
      run.last_words = {run.net, on_device.data(), run.sockets, run.socket_count, settings.rank, addresses.data()};
    }
    return run;
  }

  /// A run of a schedule, but for what makes it this one.
  Run run_of(std::size_t index, float* data, std::uint64_t count, const Optimizing& optimizing) const {
    const LoadedProgram& program = programs.at(index);
    Run run = this->run();
    run.ops = program.ops.data();
    run.after = program.after.data();
    run.lanes = program.lanes.data();
    run.terms = program.terms.data();
    run.slots = program.slots.data();
    run.slots_of_lane = program.slots_of_lane;
    run.slot_floats = program.slot_floats;
    run.lane_count = static_cast<std::int32_t>(program.lanes.size());
    run.lanes_meet = program.lanes_meet;
    run.data = data;
    run.cut = {count, settings.unit_bytes / sizeof(float), static_cast<std::uint32_t>(program.chunks)};
    run.apply = {optimizing.optimizer, optimizing.velocity, optimizing.weights, settings.execution.weights_apart,
                 optimizing.owned};
    run.schedule = static_cast<std::int32_t>(index);
    run.operation = static_cast<std::uint32_t>(index);
    if (run.cut.passes() > (std::uint64_t{1} << 31) / std::max<std::uint64_t>(1, program.ops_of_lane_max)) {
      throw gpusock::Error(EFBIG, std::to_string(count) + " floats in units of " + std::to_string(settings.unit_bytes) +
                                      " bytes: take larger units");
    }
    return run;
  }

  /// The same; where an argument is invalid the other ranks learn of it, which would wait for this one.
  Run run_or_give_up(std::size_t index, float* data, std::uint64_t count, const Optimizing& optimizing) {
    try {
      if (data == nullptr && count != 0) {
        throw gpusock::Error(EINVAL, "a tensor of " + std::to_string(count) + " floats at a null pointer");
      }
      return run_of(index, data, count, optimizing);
    } catch (const gpusock::Error&) {
      give_up();
      throw;
    }
  }

  /// On the context's own stream, since a run may be in flight on the executor's.
  void give_up() {
    if (!channels.empty() && !failed()) gpusock::launch(context, {}, fail_by_argument, run());
  }

  gpusock::Endpoint as_ours(gpusock::Endpoint at) const {
    at.ring_bytes = static_cast<std::uint32_t>(settings.ring_bytes);
    at.type = gpusock::SocketType::stream;
    return at;
  }

  bool failed() { return is_recorded(failure[0]); }
  /// Throws gpusock::Error (EINVAL).
  void check_started(std::uint64_t number) const {
    if (number != 0 && number <= started) return;
    throw gpusock::Error(EINVAL, "run " + std::to_string(number) + " was never started");
  }
  bool ended_well(std::uint64_t number) { return is_completed(completed_run[0], number); }

  /// Throws gpusock::Error (EINVAL).
  void make_budgets(std::span<const Exchanged> tensors, std::vector<Exchange>& made, const Residence& all) {
    Sent sent;
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      const schedule::Schedule& schedule = schedules[tensors[i].schedule];
      if (!can_keep_budget(schedule, settings.execution, tensors[i])) {
        throw gpusock::Error(EINVAL, "the schedule " + schedule.scheme +
                                         " can keep to no budget: take a parameter server whose weights are apart from "
                                         "gradients, and whose sums have any order");
      }
      const Program program = program_of(schedule, settings.rank, channels, settings.execution);
      for (const bool of_weights : {false, true}) sent += sent_in_step(program, made[i].run.cut, of_weights);
    }
    const double each = changes_per_float(sent, all.budget_bytes, settings.rank);
    for (Exchange& exchange : made) {
      const BudgetMemory& memory = budgets.emplace_back(context, exchange.run.cut);
      exchange.run.budget = {
          memory.withheld.data(), memory.made.data(), memory.changes.data(), memory.chosen.data(), each, all.steps - 1};
    }
  }

  /// Those of a tensor that is exchanged in place.
  void make_places(const Exchanged& tensor, Exchange& exchange) {
    const schedule::Schedule& schedule = schedules[tensor.schedule];
    const Program program = program_of(schedule, settings.rank, channels, settings.execution);
    const auto sends = in_place_sends(schedule, settings.rank, program, exchange.run.cut, settings.ring_bytes);
    if (sends.empty()) return;
    const PlaceMemory& memory = places.emplace_back(context, program, sends);
    exchange.run.places = memory.places.data();
    exchange.run.place_of_op = memory.of_op.data();
    exchange.places = static_cast<int>(sends.size());
  }

  /// Of several kernels that fail, the first one finds out which rank is lost before it records that; the others only
  /// end. So the record may come later than the end of a run.
  void await_record() {
    constexpr auto kPatience = std::chrono::seconds(20);  // only a device that has failed takes so long
    const auto until = std::chrono::steady_clock::now() + kPatience;
    while (!failed() && std::chrono::steady_clock::now() < until) {
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  }

  [[noreturn]] void throw_failure() {
    await_record();
    const ExecutionFailure record = failure[0].what;
    const int error = record.error != 0 ? record.error : ECONNRESET;
    throw gpusock::Error::with_cause(error, describe(record, settings.rank, channels, address_texts, schedules));
  }

  gpusock::Context& context;
  Settings settings;
  std::vector<schedule::Schedule> schedules;
  std::vector<Channel> channels;
  gpusock::Stream stream{context};
  gpusock::DeviceBuffer<gpusock::Socket> sockets;
  gpusock::DeviceBuffer<Channel> on_device;
  gpusock::DeviceBuffer<std::uint64_t> progress;
  gpusock::DeviceBuffer<std::uint64_t> words;  // lanes_ended, failed, failing
  gpusock::Mapped<FailureRecord<ExecutionFailure>> failure;
  gpusock::Mapped<std::uint64_t> completed_run;
  gpusock::Mapped<Listening> listening;
  gpusock::DeviceBuffer<std::uint64_t> slots_taken;  // of all resident lanes
  gpusock::DeviceBuffer<gpusock::Endpoint> addresses;
  std::vector<std::string> address_texts;
  std::vector<LoadedProgram> programs;
  gpusock::Socket listener = -1;
  std::optional<gpusock::DeviceBuffer<Exchange>> exchanges;               // of the resident lanes
  std::optional<gpusock::DeviceBuffer<std::uint64_t>> resident_progress;  // by block
  std::optional<gpusock::Mapped<std::uint64_t>> positions;                // by block
  std::optional<gpusock::DeviceBuffer<TracedOp>> trace;
  std::vector<BudgetMemory> budgets;  // by tensor
  std::deque<PlaceMemory> places;     // of some tensors
  std::vector<Exchange> resident;
  Residence residence;
  std::uint64_t started = 0;  // runs
};

Executor::Executor(gpusock::Context& context, const Settings& settings, std::vector<schedule::Schedule> schedules)
    : impl_(std::make_unique<Impl>(context, settings, std::move(schedules))) {
  impl_->listening[0] = {};
  impl_->failure[0].what = {};
}

Executor::~Executor() {
  // A run may be in flight on the executor's stream: closing ends its calls, from the context's own stream.
  try {
    gpusock::Stream* const free_stream = impl_->stream.idle() ? &impl_->stream : nullptr;
    gpusock::launch(impl_->context, {.stream = free_stream}, close_channels, impl_->run(), impl_->listening[0].socket);
    impl_->stream.synchronize();
    impl_->context.synchronize();
    if (impl_->places.empty()) return;
    gpusock::launch(impl_->context, {.stream = &impl_->stream}, end_reservations, impl_->run());
    impl_->stream.synchronize();
  } catch (const gpusock::Error&) {
    // A kernel has failed, as the last wait() has said; the context's end takes the sockets back.
  }
}

gpusock::Endpoint Executor::listen(const gpusock::Endpoint& at) {
  Impl& rank = *impl_;
  gpusock::launch(rank.context, {.stream = &rank.stream}, open_listener, rank.context.net(), rank.as_ours(at), kBacklog,
                  rank.listening.data());
  rank.stream.synchronize();
  const Listening listening = rank.listening[0];
  if (listening.socket < 0) {
    throw gpusock::Error(-listening.socket,
                         "rank " + std::to_string(rank.settings.rank) + " cannot listen at " + at.to_string());
  }
  rank.listener = listening.socket;
  gpusock::Endpoint bound = listening.at;
  bound.link = at.link;
  return rank.as_ours(bound);
}

void Executor::use_listener(gpusock::Socket listener) { impl_->listener = listener; }

void Executor::begin_connect(const std::vector<gpusock::Endpoint>& addresses) {
  Impl& rank = *impl_;
  if (addresses.size() != static_cast<std::size_t>(rank.nodes())) {
    throw gpusock::Error(EINVAL, std::to_string(addresses.size()) + " addresses for " + std::to_string(rank.nodes()) +
                                     " ranks: give one for each, by rank");
  }
  std::vector<gpusock::Endpoint> to;
  for (const gpusock::Endpoint& address : addresses) {
    to.push_back(rank.as_ours(address));
    rank.address_texts.push_back(address.host_port());
  }
  rank.addresses.copy_in(to);
  Opening opening;
  opening.run = rank.run();
  opening.run.timeout_ns = rank.settings.connect_timeout_ns;
  opening.hello.rank = rank.settings.rank;
  opening.hello[ChannelHelloField::nodes] = static_cast<std::uint64_t>(rank.nodes());
  opening.hello[ChannelHelloField::ring_bytes] = rank.settings.ring_bytes;
  opening.hello[ChannelHelloField::unit_bytes] = rank.settings.unit_bytes;
  opening.hello[ChannelHelloField::schedules] = fingerprint(rank.schedules);
  opening.channels = rank.on_device.data();
  opening.sockets = rank.sockets.data();
  opening.addresses = rank.addresses.data();
  opening.listener = rank.listener;
  gpusock::launch(rank.context, {.grid = 2, .stream = &rank.stream}, open_channels, opening);
}

void Executor::await_connect() {
  impl_->stream.synchronize();
  check();
}

std::uint64_t Executor::start(std::size_t index, float* data, std::uint64_t count, std::uint64_t timeout_ns,
                              const Optimizing& optimizing, std::uint32_t tag) {
  Impl& rank = *impl_;
  if (rank.failed()) rank.throw_failure();
  Run run = rank.run_or_give_up(index, data, count, optimizing);
  run.number = rank.started + 1;
  run.operation ^= tag;
  run.timeout_ns = timeout_ns;
  gpusock::launch(
      rank.context,
      {.grid = static_cast<unsigned>(run.lane_count), .block = rank.settings.threads, .stream = &rank.stream},
      run_lanes, run);
  return ++rank.started;
}

void Executor::give_up() {
  if (!impl_->address_texts.empty()) impl_->give_up();
}

void Executor::copy(float* to, const float* from, std::uint64_t floats) {
  if (floats == 0) return;
  Impl& rank = *impl_;
  const unsigned threads = rank.settings.threads;
  const std::uint64_t blocks = std::min(kCopyBlocksMax, (floats + threads - 1) / threads);
  gpusock::launch(rank.context, {.grid = static_cast<unsigned>(blocks), .block = threads, .stream = &rank.stream},
                  copy_floats, to, from, floats);
}

bool Executor::done(std::uint64_t run) {
  impl_->check_started(run);
  return impl_->ended_well(run) || impl_->failed();
}

void Executor::wait(std::uint64_t run) {
  Impl& rank = *impl_;
  rank.check_started(run);
  if (run == rank.started) {
    rank.stream.synchronize();
  } else {
    while (!done(run)) std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  if (!rank.ended_well(run)) rank.throw_failure();
}

void Executor::await_runs() noexcept {
  try {
    impl_->stream.synchronize();
  } catch (const gpusock::Error&) {
    // A kernel has faulted: nothing runs any more.
  }
}

void Executor::prepare_resident(std::span<const Exchanged> tensors, const Residence& residence) {
  Impl& rank = *impl_;
  std::vector<Exchange> all;
  std::uint64_t trace_of_block = 0;
  int blocks = 0;
  for (const Exchanged& tensor : tensors) {
    Exchange exchange;
    exchange.run = rank.run_of(tensor.schedule, tensor.gradients, tensor.count, tensor.optimizing);
    exchange.run.timeout_ns = residence.timeout_ns;
    exchange.run.failed = residence.failed;
    exchange.run.stop = residence.stop;
    exchange.run.keeps_sockets = residence.keeps_sockets;
    exchange.first_block = blocks;
    exchange.all_apply = rank.schedules[tensor.schedule].result == schedule::Result::all_reduce;
    exchange.ready_per_step = tensor.ready_per_step;
    exchange.words = residence.words + all.size();
    exchange.leading = rank.programs[tensor.schedule].leading;
    exchange.gives_way = residence.in_order && !all.empty();
    if (residence.slots != 0 && !rank.programs[tensor.schedule].grants_additions) {
      throw gpusock::Error(EINVAL, "slots: the schedule " + rank.schedules[tensor.schedule].scheme + " has none");
    }
    exchange.slots = residence.slots;
    exchange.slots_taken = rank.slots_taken.data();
    exchange.traced_steps = std::min(residence.traced_steps, residence.steps);
    const std::uint64_t ops = rank.programs[tensor.schedule].ops_of_lane_max * exchange.run.cut.passes() +
                              (exchange.all_apply ? 1 : 0);
    trace_of_block = std::max(trace_of_block, ops * exchange.traced_steps);
    blocks += exchange.run.lane_count;
    all.push_back(exchange);
  }
  // Half of the device is for the kernels that compute.
  const std::uint64_t most = resident_lanes_max(rank.context, rank.settings.threads, run_exchanges) / 2 /
                             std::max(1u, residence.executors_on_device);
  if (static_cast<std::uint64_t>(blocks) > most) {
    throw gpusock::Error(ENOBUFS, "all layers together have " + std::to_string(blocks) + " lanes on rank " +
                                      std::to_string(rank.settings.rank) + ", but the device keeps only " +
                                      std::to_string(most) +
                                      " blocks of each rank resident beside the kernels that compute: take a scheme "
                                      "with fewer lanes, or fewer layers");
  }
  rank.resident_progress.emplace(rank.context, static_cast<std::size_t>(blocks));
  rank.positions.emplace(rank.context, static_cast<std::size_t>(blocks));
  rank.trace.emplace(rank.context, static_cast<std::size_t>(blocks) * trace_of_block);
  for (Exchange& exchange : all) {
    exchange.run.progress = rank.resident_progress->data() + exchange.first_block;
    exchange.positions = rank.positions->data();
    exchange.trace = rank.trace->data();
    exchange.trace_of_block = trace_of_block;
  }
  if (residence.budget_bytes != 0) rank.make_budgets(tensors, all, residence);
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (tensors[i].in_place && residence.budget_bytes == 0) rank.make_places(tensors[i], all[i]);
  }
  rank.resident = all;
  rank.exchanges.emplace(rank.context, all.size());
  rank.exchanges->copy_in(all);
  rank.residence = residence;
}

Places Executor::places(std::size_t tensor) const {
  const Exchange& exchange = impl_->resident.at(tensor);
  return {exchange.run.places, exchange.places, exchange.run.data};
}

void Executor::start_resident() {
  Impl& rank = *impl_;
  const auto blocks = static_cast<unsigned>(rank.resident_progress->size());
  for (const Exchange& exchange : rank.resident) {
    if (!exchange.run.budget.holds()) continue;
    gpusock::launch(rank.context, {.block = rank.settings.threads, .stream = &rank.stream}, begin_with_weights,
                    exchange.run.apply.weights, exchange.run.budget.made, exchange.run.cut.floats);
  }
  gpusock::launch(rank.context, {.grid = blocks, .block = rank.settings.threads, .stream = &rank.stream}, run_exchanges,
                  rank.exchanges->data(), static_cast<int>(rank.resident.size()), rank.residence.steps,
                  rank.residence.times);
}

void Executor::await_resident() { impl_->stream.synchronize(); }

void Executor::check() {
  if (impl_->failed()) impl_->throw_failure();
}

std::optional<ExecutionFailure> Executor::failure() {
  if (!impl_->failed()) return std::nullopt;
  return impl_->failure[0].what;
}

std::vector<std::uint64_t> Executor::positions() {
  Impl& rank = *impl_;
  std::vector<std::uint64_t> all;
  for (std::size_t block = 0; rank.positions && block < rank.positions->size(); ++block) {
    all.push_back(SystemWord((*rank.positions)[block]).load(cuda::memory_order_relaxed));  // relaxed: it is only told
  }
  return all;
}

std::vector<std::vector<TracedOp>> Executor::trace(std::size_t tensor) const {
  const Impl& rank = *impl_;
  const Exchange& exchange = rank.resident.at(tensor);
  std::vector<TracedOp> all(rank.trace->size());
  if (!all.empty()) rank.trace->copy_out(all);
  std::vector<std::vector<TracedOp>> lanes;
  for (int lane = 0; lane < exchange.run.lane_count; ++lane) {
    const auto block = static_cast<std::size_t>(exchange.first_block + lane);
    const auto first = all.begin() + static_cast<std::ptrdiff_t>(block * exchange.trace_of_block);
    const auto last = first + static_cast<std::ptrdiff_t>(exchange.trace_of_block);
    lanes.emplace_back(first, std::find_if(first, last, [](const TracedOp& op) { return op.end_ns == 0; }));
  }
  return lanes;
}

const std::vector<Channel>& Executor::channels() const { return impl_->channels; }
const schedule::Schedule& Executor::schedule(std::size_t index) const { return impl_->schedules.at(index); }

}  // namespace param_sync::executor
