#include "param_sync/executor/executor.hpp"

#include "param_sync/codec/top_k.cuh"
#include "param_sync/executor/channels.cuh"
#include "param_sync/executor/failure.hpp"
#include "param_sync/executor/in_place.hpp"
#include "param_sync/executor/lane.cuh"
#include "param_sync/executor/loaded_program.cuh"
#include "param_sync/executor/policies.cuh"
#include "param_sync/executor/resident.cuh"
#include "param_sync/executor/resident_arguments.hpp"
#include "param_sync/schedule/check.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <deque>
#include <limits>
#include <set>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <variant>

namespace param_sync::executor {
namespace {

#if defined(GPUSOCK_DEVICE_CPU)
constexpr unsigned kThreads = 1;  // threads of a block share one processor
constexpr std::uint64_t kCopyBlocksMax = 1;
#else
constexpr unsigned kThreads = 256;
constexpr std::uint64_t kCopyBlocksMax = 128;
#endif
constexpr std::uint64_t kUnitBytesDefault = 256 << 10;
constexpr int kBacklog = 512;
/// The most floats of a tensor (2^48 bytes). With it, products that give the positions of its parts do not overflow.
constexpr std::uint64_t kFloatsMax = std::uint64_t{1} << 46;

/// Returns how many lanes the device keeps resident at the same time if nothing else runs.
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

/// The policies whose resident lanes the constructor counts, before a run names its own.
using FirstPolicies = Policies<std::variant_alternative_t<0, AnyUpdate>>;
/// The policies of runs that are not sums of floats. They have no update.
using ReductionPolicies = Policies<std::variant_alternative_t<0, AnyUpdate>, codec::Dense, reduction::AnyReduction>;

/// The bits of Run::operation above the index of a schedule.
constexpr int kReductionShift = 24;

/// Returns a number that is 0 for sums of floats, and different for each other reduction.
std::uint32_t code_of(const Reduction& reduction) {
  return static_cast<std::uint32_t>(reduction.type) << 4 | static_cast<std::uint32_t>(reduction.op);
}

/// Calls `call` with the type of the policies for an update and a codec, and with the codec's settings.
template <class Call>
auto with_policies(const AnyUpdate& update, const codec::AnyCodec& codec, Call call) {
  const auto both = [&](const auto& one, const auto& settings) {
    using P = Policies<std::decay_t<decltype(one)>, typename std::decay_t<decltype(settings)>::Codec>;
    return call(std::type_identity<P>(), settings);
  };
  return std::visit(both, update, codec);
}

/// Runs as one thread.
__global__ void fail_by_argument(Run run) {
  fail(run, {.kind = ExecutionFailureKind::argument, .error = EINVAL, .lost = run.last_words.rank});
}

/// Multiplies the elements of `count` words by a factor, before they are summed.
__global__ void scale_words(float* data, std::uint64_t count, reduction::AnyReduction reduction, float factor) {
  const std::uint64_t threads = std::uint64_t{blockDim.x} * gridDim.x;
  reduction.with_element([&](auto element) {
    using Number = typename decltype(element)::Number;
    const auto scaled = [&](Number number) { return static_cast<Number>(static_cast<float>(number) * factor); };
    for (std::uint64_t i = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += threads) {
      data[i] = reduction::on_elements<decltype(element)>(data[i], scaled);
    }
  });
}

__global__ void copy_floats(float* to, const float* from, std::uint64_t count) {
  const std::uint64_t threads = std::uint64_t{blockDim.x} * gridDim.x;
  for (std::uint64_t i = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += threads) to[i] = from[i];
}

/// True if ranks send only their own gradients, and owners only the weights that they have made: no rank forwards what
/// it has received.
bool can_be_encoded(const schedule::Schedule& schedule, const Execution& execution, const Exchanged& tensor) {
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
        channels(channels_for(settings, checked(schedules, settings.rank))),
        sockets(context, channels.size()),
        on_device(context, channels.size()),
        progress(context, schedule::kLanesMax),
        words(context, 3),
        failure(context, 1),
        completed_run(context, 1),
        listening(context, 1),
        credits_taken(context, 1),
        addresses(context, static_cast<std::size_t>(nodes())) {
    if (!channels.empty()) {
      on_device.copy_in(channels);
      sockets.copy_in(std::vector<gpusock::Socket>(channels.size(), -1));
    }
    for (const schedule::Schedule& schedule : schedules) {
      const Program program = program_of(schedule, settings.rank, channels, settings.execution);
      const std::uint64_t most = std::min(resident_lanes_max(context, settings.threads, run_lanes<FirstPolicies>),
                                          resident_lanes_max(context, settings.threads, run_lanes<ReductionPolicies>));
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

  static std::vector<Channel> channels_for(const Settings& settings, const std::vector<schedule::Schedule>& all) {
    const std::vector<Channel> of_schedules = channels_of(all, settings.rank);
    std::set<Channel> channels(of_schedules.begin(), of_schedules.end());
    if (settings.last_words == LastWordsBy::lanes) {
      for (const Channel& channel : of_schedules) channels.insert({channel.peer, kLastWordsChannel});
    }
    if (settings.last_words == LastWordsBy::host) {
      for (int peer = 0; peer < all.front().nodes(); ++peer) {
        if (peer != settings.rank) channels.insert({peer, kLastWordsChannel});
      }
    }
    return {channels.begin(), channels.end()};
  }

  int nodes() const { return schedules.front().nodes(); }

  LastWords last_words() const {
    if (settings.last_words == LastWordsBy::nobody) return {};
    return {context.net(), on_device.data(), sockets.data(), static_cast<std::int32_t>(channels.size()),
            settings.rank, addresses.data()};
  }

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
    if (settings.last_words == LastWordsBy::lanes) run.last_words = last_words();
    run.keeps_sockets = settings.last_words == LastWordsBy::host;
    return run;
  }

  /// Returns a run of a schedule, without number, timeout and tag.
  Run run_of(std::size_t index, float* data, std::uint64_t count, const Optimizing& optimizing) const {
    if (count > kFloatsMax) {
      throw gpusock::Error(EFBIG, std::to_string(count) + " floats: no memory holds more than 2^46");
    }
    if (index >= programs.size()) {
      throw gpusock::Error(
          EINVAL, "schedule " + std::to_string(index) + ": the executor has " + std::to_string(programs.size()));
    }
    const LoadedProgram& program = programs[index];
    Run run = this->run();
    run.ops = program.ops.data();
    run.after = program.after.data();
    run.lanes = program.lanes.data();
    run.operands = program.operands.data();
    run.reorder_buffers = program.reorder_buffers.data();
    run.reorder_entries = program.reorder_entries;
    run.reorder_floats = program.reorder_floats;
    run.lane_count = static_cast<std::int32_t>(program.lanes.size());
    run.lanes_meet = program.lanes_meet;
    run.data = data;
    run.cut = {count, settings.unit_bytes / sizeof(float), static_cast<std::uint32_t>(program.chunks)};
    run.apply = {optimizing.states, optimizing.weights, settings.execution.weights_apart, optimizing.owned};
    run.schedule = static_cast<std::int32_t>(index);
    run.operation = static_cast<std::uint32_t>(index);
    if (run.cut.passes() > (std::uint64_t{1} << 31) / std::max<std::uint64_t>(1, program.ops_of_lane_max)) {
      throw gpusock::Error(EFBIG, std::to_string(count) + " floats in units of " + std::to_string(settings.unit_bytes) +
                                      " bytes: take larger units");
    }
    return run;
  }

  /// As run_of(). If an argument is invalid, it tells the other ranks, which would wait for this one.
  Run run_or_give_up(std::size_t index, float* data, std::uint64_t count, const Optimizing& optimizing,
                     const Reduction& reduction = {}) {
    try {
      if (data == nullptr && count != 0) {
        throw gpusock::Error(EINVAL, "a tensor of " + std::to_string(count) + " floats at a null pointer");
      }
      if (reinterpret_cast<std::uintptr_t>(data) % sizeof(float) != 0) {
        throw gpusock::Error(EINVAL, "a tensor at an address that is no multiple of 4");
      }
      if (reduction.type > DataType::int32 || reduction.op > ReduceOp::max) {
        throw gpusock::Error(EINVAL, "a reduction of a type, or by an operation, that does not exist");
      }
      if (reduction.type == DataType::int32 && reduction.op == ReduceOp::average) {
        throw gpusock::Error(EINVAL, "an average of int32: take a sum, and divide it");
      }
      return run_of(index, data, count, optimizing);
    } catch (const gpusock::Error&) {
      give_up();
      throw;
    }
  }

  /// Starts the lanes of a run on the executor's stream, and returns the run's number.
  template <class P>
  std::uint64_t launch(Run& run, std::uint64_t timeout_ns, const P& with) {
    run.number = started + 1;
    run.timeout_ns = timeout_ns;
    // After give_up() all runs fail. The lanes of this one might end before the kernel that says so begins.
    while (gave_up && !failed()) std::this_thread::sleep_for(std::chrono::microseconds(50));
    gpusock::launch(context,
                    {.grid = static_cast<unsigned>(run.lane_count),
                     .block = settings.threads,
                     .stream = &stream,
                     .blocks_share_threads = true},
                    run_lanes<P>, run, with);
    return ++started;
  }

  /// Starts a kernel on the executor's stream whose threads share `count` floats.
  template <class Kernel, class... Arguments>
  void launch_over(std::uint64_t count, Kernel* kernel, const Arguments&... arguments) {
    if (count == 0) return;
    const std::uint64_t blocks = std::min(kCopyBlocksMax, (count + settings.threads - 1) / settings.threads);
    gpusock::launch(context, {.grid = static_cast<unsigned>(blocks), .block = settings.threads, .stream = &stream},
                    kernel, arguments...);
  }

  /// Uses the context's own stream, since a run may be in flight on the executor's.
  void give_up() {
    if (channels.empty() || failed()) return;
    gave_up = true;
    gpusock::launch(context, {}, fail_by_argument, run());
  }

  gpusock::Endpoint as_ours(gpusock::Endpoint at) const {
    at.ring_bytes = static_cast<std::uint32_t>(settings.ring_bytes);
    at.type = gpusock::SocketType::stream;
    return at;
  }

  const Exchange& exchange_of(std::size_t tensor) const {
    if (tensor < resident.size()) return resident[tensor];
    throw gpusock::Error(EINVAL, "tensor " + std::to_string(tensor) + ": " + std::to_string(resident.size()) +
                                     " are prepared for resident lanes");
  }

  bool failed() { return is_recorded(failure[0]); }
  /// Throws gpusock::Error (EINVAL).
  void check_started(std::uint64_t number) const {
    if (number != 0 && number <= started) return;
    throw gpusock::Error(EINVAL, "operation " + std::to_string(number) + " was never started");
  }
  bool ended_well(std::uint64_t number) { return is_completed(completed_run[0], number); }

  /// Returns the first update of a tensor with weights. Throws gpusock::Error (EINVAL) if another one has another type.
  static AnyUpdate update_of(std::span<const Exchanged> tensors) {
    const Optimizing* first = nullptr;
    for (const Exchanged& tensor : tensors) {
      const Optimizing& own = tensor.optimizing;
      if (own.weights == nullptr) continue;
      if (first == nullptr) first = &own;
      if (own.update.index() == first->update.index()) continue;
      throw gpusock::Error(EINVAL, std::string("tensors of one executor have the same update: not ") +
                                       name_of(first->update) + " and " + name_of(own.update));
    }
    return first != nullptr ? first->update : AnyUpdate();
  }

  /// Returns what this rank sends in a step, for a codec. Throws gpusock::Error (EINVAL) if a schedule suits no codec.
  codec::StepTraffic encoded_traffic(std::span<const Exchanged> tensors, const std::vector<Exchange>& made,
                                     std::uint64_t steps) {
    Sent sent;
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      const schedule::Schedule& schedule = schedules[tensors[i].schedule];
      if (!can_be_encoded(schedule, settings.execution, tensors[i])) {
        throw gpusock::Error(EINVAL, "the schedule " + schedule.scheme +
                                         " can keep to no budget: take a parameter server whose weights are apart from "
                                         "gradients, and whose sums have any order");
      }
      const Program program = program_of(schedule, settings.rank, channels, settings.execution);
      for (const bool of_weights : {false, true}) sent += sent_in_step(program, made[i].run.cut, of_weights);
    }
    return {sent.messages, sent.floats, sizeof(MessageHeader), steps, settings.rank};
  }

  /// Makes the resident lanes' policies, and the memory of their codecs.
  template <class P, class CodecSettings>
  void make_policies(std::span<const Exchanged> tensors, const std::vector<Exchange>& made,
                     [[maybe_unused]] const CodecSettings& codec_settings, [[maybe_unused]] std::uint64_t steps) {
    std::vector<P> all;
    codec::StepTraffic sent;
    if constexpr (!P::Codec::kDense) sent = encoded_traffic(tensors, made, steps);
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      const auto* const given = std::get_if<typename P::Update>(&tensors[i].optimizing.update);
      const auto own = given != nullptr ? *given : typename P::Update();  // default: no weights
      if constexpr (P::Codec::kDense) {
        all.push_back({own, {}, {}});
      } else {
        const Cut& cut = made[i].run.cut;
        const codec::Tensor tensor{cut.floats, cut.chunks * cut.passes()};
        const auto memory = std::make_shared<typename P::Codec::Memory>(context, tensor);
        all.push_back({own, typename P::Codec(codec_settings, sent, *memory), {}});
        codec_memory.push_back(memory);
      }
    }
    policies.emplace(context, all.size() * sizeof(P));
    policies->copy_in(std::as_bytes(std::span(all)));
  }

  /// Makes the in-place reservations of a tensor that is exchanged in place.
  void make_reservations(const Exchanged& tensor, Exchange& exchange) {
    const schedule::Schedule& schedule = schedules[tensor.schedule];
    const Program program = program_of(schedule, settings.rank, channels, settings.execution);
    const auto sends = in_place_sends(schedule, settings.rank, program, exchange.run.cut, settings.ring_bytes);
    if (sends.empty()) return;
    const ReservationMemory& memory = reservations.emplace_back(context, program, sends);
    exchange.run.reservations = memory.reservations.data();
    exchange.run.reservation_of_op = memory.of_op.data();
    exchange.reservations = static_cast<int>(sends.size());
  }

  /// Waits for the record of a failure. Of several kernels that fail, the first one finds out which rank is lost, and
  /// then records that; the others only end. So the record may come after the end of a run.
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
  std::unique_ptr<gpusock::Stream> own_stream = settings.stream == nullptr ? std::make_unique<gpusock::Stream>(context)
                                                                           : nullptr;
  gpusock::Stream& stream = own_stream != nullptr ? *own_stream : *settings.stream;
  gpusock::DeviceBuffer<gpusock::Socket> sockets;
  gpusock::DeviceBuffer<Channel> on_device;
  gpusock::DeviceBuffer<std::uint64_t> progress;
  gpusock::DeviceBuffer<std::uint64_t> words;  // lanes_ended, failed, failing
  gpusock::Mapped<FailureRecord<ExecutionFailure>> failure;
  gpusock::Mapped<std::uint64_t> completed_run;
  gpusock::Mapped<Listening> listening;
  gpusock::DeviceBuffer<std::uint64_t> credits_taken;  // credits that all resident lanes have taken
  gpusock::DeviceBuffer<gpusock::Endpoint> addresses;
  std::vector<std::string> address_texts;
  std::vector<LoadedProgram> programs;
  gpusock::Socket listener = -1;
  std::optional<gpusock::DeviceBuffer<Exchange>> exchanges;  // of the resident lanes
  std::optional<gpusock::DeviceBuffer<std::byte>> policies;  // by exchange, of the type for `update` and the codec
  AnyUpdate update;                                          // of tensors with weights
  std::optional<gpusock::DeviceBuffer<std::uint64_t>> resident_progress;  // by block
  std::optional<gpusock::Mapped<std::uint64_t>> positions;                // by block
  std::optional<gpusock::DeviceBuffer<TracedOp>> trace;
  std::vector<std::shared_ptr<void>> codec_memory;  // by tensor
  std::deque<ReservationMemory> reservations;       // of some tensors
  std::vector<Exchange> resident;
  Residence residence;
  bool resident_started = false;
  bool gave_up = false;       // give_up() has launched its kernel
  std::uint64_t started = 0;  // how many runs
};

Executor::Executor(gpusock::Context& context, const Settings& settings, std::vector<schedule::Schedule> schedules)
    : impl_(std::make_unique<Impl>(context, settings, std::move(schedules))) {
  impl_->listening[0] = {};
  impl_->failure[0].what = {};
}

Executor::~Executor() {
  // If a run is in flight on the executor's stream, the context's own stream closes the sockets, which ends its calls.
  // So does it after give_up(), whose kernel tells the peers there: the sockets close after the last words.
  try {
    gpusock::Stream* const free_stream = impl_->stream.idle() && !impl_->gave_up ? &impl_->stream : nullptr;
    if (impl_->resident_started && free_stream == nullptr) {  // relaxed: it only ends waits
      SystemWord(*impl_->residence.stop).store(1, cuda::memory_order_relaxed);
    }
    gpusock::launch(impl_->context, {.stream = free_stream}, close_channels, impl_->run(), impl_->listening[0].socket);
    impl_->stream.synchronize();
    impl_->context.synchronize();
    if (impl_->reservations.empty()) return;
    gpusock::launch(impl_->context, {.stream = &impl_->stream}, end_reservations, impl_->run());
    impl_->stream.synchronize();
  } catch (const gpusock::Error&) {
    // A kernel has failed, as the last wait() has said. The context's end takes back the sockets.
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

void Executor::begin_connect(const std::vector<gpusock::Endpoint>& addresses, std::span<const std::uint64_t> program) {
  Impl& rank = *impl_;
  if (!rank.address_texts.empty()) throw gpusock::Error(EINVAL, "begin_connect() was called before");
  if (program.size() > kProgramSettingsMax) {
    throw gpusock::Error(EINVAL, std::to_string(program.size()) + " settings of a program: at most " +
                                     std::to_string(kProgramSettingsMax) + " are compared");
  }
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
  std::copy(program.begin(), program.end(), opening.hello.value + static_cast<int>(ChannelHelloField::program));
  opening.hello[ChannelHelloField::ring_bytes] = rank.settings.ring_bytes;
  opening.hello[ChannelHelloField::unit_bytes] = rank.settings.unit_bytes;
  opening.hello[ChannelHelloField::schedules] = fingerprint(rank.schedules, rank.settings);
  opening.channels = rank.on_device.data();
  opening.sockets = rank.sockets.data();
  opening.addresses = rank.addresses.data();
  opening.listener = rank.listener;
  gpusock::launch(rank.context, {.grid = 2, .stream = &rank.stream}, open_channels, opening);
}

bool Executor::is_connecting() { return !impl_->stream.idle(); }

void Executor::await_connect() {
  impl_->stream.synchronize();
  check();
}

int Executor::unreachable_rank() const {
  const ExecutionFailure& why = impl_->failure[0].what;
  const bool is_unreachable = why.error == ETIMEDOUT || why.error == EHOSTUNREACH || why.error == ENETUNREACH;
  if (why.kind != ExecutionFailureKind::connect || !is_unreachable || why.channel < 0) return -1;
  return impl_->channels[static_cast<std::size_t>(why.channel)].peer;
}

std::uint64_t Executor::start(std::size_t index, float* data, std::uint64_t count, std::uint64_t timeout_ns,
                              const Optimizing& optimizing, std::uint32_t tag) {
  Impl& rank = *impl_;
  if (rank.failed()) rank.throw_failure();
  Run run = rank.run_or_give_up(index, data, count, optimizing);
  run.operation ^= tag;
  const auto launch = [&](const auto& update) {
    return rank.launch(run, timeout_ns, Policies<std::decay_t<decltype(update)>>{update, {}, {}});
  };
  return std::visit(launch, optimizing.update);
}

std::uint64_t Executor::start_reduction(std::size_t index, void* data, std::uint64_t words, std::uint64_t timeout_ns,
                                        const Reduction& reduction) {
  Impl& rank = *impl_;
  if (rank.failed()) rank.throw_failure();
  Run run = rank.run_or_give_up(index, static_cast<float*>(data), words, {}, reduction);
  run.operation ^= code_of(reduction) << kReductionShift;
  if (reduction.op == ReduceOp::average) {
    const float factor = 1.0f / static_cast<float>(rank.nodes());
    rank.launch_over(words, scale_words, run.data, words, reduction::AnyReduction{reduction}, factor);
  }
  if (reduction.adds_floats()) return rank.launch(run, timeout_ns, FirstPolicies());
  return rank.launch(run, timeout_ns, ReductionPolicies{{}, {}, {reduction}});
}

void Executor::give_up() {
  if (!impl_->address_texts.empty()) impl_->give_up();
}

void Executor::copy(float* to, const float* from, std::uint64_t floats) {
  impl_->launch_over(floats, copy_floats, to, from, floats);
}

bool Executor::done(std::uint64_t run) {
  impl_->check_started(run);
  return impl_->ended_well(run) || impl_->failed();
}

void Executor::wait(std::uint64_t run) {
  Impl& rank = *impl_;
  rank.check_started(run);
  if (run == rank.started && rank.own_stream != nullptr) {
    rank.stream.synchronize();
  } else {  // later launches of the stream are not waited for
    while (!done(run) && !rank.stream.idle()) std::this_thread::sleep_for(std::chrono::microseconds(50));
    if (!done(run)) rank.stream.synchronize();  // throws if a kernel has faulted
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
  if (!rank.resident.empty()) throw gpusock::Error(EINVAL, "prepare_resident() was called before");
  check_resident(rank.schedules, rank.settings, tensors, residence);
  std::vector<Exchange> all;
  std::uint64_t trace_of_block = 0;
  int blocks = 0;
  for (const Exchanged& tensor : tensors) {
    Exchange exchange;
    exchange.run = rank.run_of(tensor.schedule, tensor.gradients, tensor.count, tensor.optimizing);
    exchange.run.timeout_ns = residence.timeout_ns;
    exchange.run.failed = residence.failed;
    exchange.run.stop = residence.stop;
    exchange.first_block = blocks;
    exchange.all_apply = rank.schedules[tensor.schedule].result == schedule::Result::all_reduce;
    exchange.ready_per_step = tensor.ready_per_step;
    exchange.words = residence.words + all.size();
    exchange.leading = rank.programs[tensor.schedule].leading;
    exchange.gives_way = residence.in_order && !all.empty();
    if (residence.credits != 0 && !rank.programs[tensor.schedule].grants_additions) {
      throw gpusock::Error(EINVAL, "credits: the schedule " + rank.schedules[tensor.schedule].scheme + " has none");
    }
    exchange.credits = residence.credits;
    exchange.credits_taken = rank.credits_taken.data();
    exchange.traced_steps = std::min(residence.traced_steps, residence.steps);
    const std::uint64_t ops = rank.programs[tensor.schedule].ops_of_lane_max * exchange.run.cut.passes() +
                              (exchange.all_apply ? 1 : 0);
    trace_of_block = std::max(trace_of_block, ops * exchange.traced_steps);
    blocks += exchange.run.lane_count;
    all.push_back(exchange);
  }
  // Half of the device is for the kernels that compute.
  const auto max_of = [&]<class P>(std::type_identity<P>, const auto&) {
    return resident_lanes_max(rank.context, rank.settings.threads, run_exchanges<P>);
  };
  rank.update = rank.update_of(tensors);
  const std::uint64_t resident_max = with_policies(rank.update, residence.codec, max_of);
  const std::uint64_t most = resident_max / 2 / std::max(1u, residence.executors_on_device);
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
  const auto make = [&]<class P>(std::type_identity<P>, const auto& settings) {
    rank.make_policies<P>(tensors, all, settings, residence.steps);
  };
  with_policies(rank.update, residence.codec, make);
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (tensors[i].in_place && codec::is_dense(residence.codec)) rank.make_reservations(tensors[i], all[i]);
  }
  rank.resident = all;
  rank.exchanges.emplace(rank.context, all.size());
  rank.exchanges->copy_in(all);
  rank.residence = residence;
}

InPlaceReservations Executor::in_place_reservations(std::size_t tensor) const {
  const Exchange& exchange = impl_->exchange_of(tensor);
  return {exchange.run.reservations, exchange.reservations, exchange.run.data};
}

void Executor::start_resident() {
  Impl& rank = *impl_;
  if (rank.resident.empty()) throw gpusock::Error(EINVAL, "start_resident() before prepare_resident()");
  if (rank.address_texts.empty()) throw gpusock::Error(EINVAL, "start_resident() before begin_connect()");
  if (rank.resident_started) throw gpusock::Error(EINVAL, "start_resident() was called before");
  rank.resident_started = true;
  const auto blocks = static_cast<unsigned>(rank.resident_progress->size());
  const auto count = static_cast<unsigned>(rank.resident.size());
  const auto launch = [&]<class P>(std::type_identity<P>, const auto&) {
    const P* const policies = reinterpret_cast<const P*>(rank.policies->data());
    if constexpr (!P::Codec::kDense) {
      gpusock::launch(rank.context, {.grid = count, .block = rank.settings.threads, .stream = &rank.stream},
                      begin_codecs<P>, rank.exchanges->data(), policies);
    }
    gpusock::launch(
        rank.context,
        {.grid = blocks, .block = rank.settings.threads, .stream = &rank.stream, .blocks_share_threads = true},
        run_exchanges<P>, rank.exchanges->data(), policies, static_cast<int>(count), rank.residence.steps,
        rank.residence.times);
  };
  with_policies(rank.update, rank.residence.codec, launch);
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
    all.push_back(SystemWord((*rank.positions)[block]).load(cuda::memory_order_relaxed));  // relaxed: it is only shown
                                                                                           // to users
  }
  return all;
}

std::vector<std::vector<TracedOp>> Executor::trace(std::size_t tensor) const {
  const Impl& rank = *impl_;
  const Exchange& exchange = rank.exchange_of(tensor);
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

LastWords Executor::last_words() const { return impl_->last_words(); }
const std::vector<Channel>& Executor::channels() const { return impl_->channels; }
const schedule::Schedule& Executor::schedule(std::size_t index) const { return impl_->schedules.at(index); }

}  // namespace param_sync::executor
