// Measures gpusock between two kernels, with one block for each socket.
#include "bounds.hpp"
#include "context_side.hpp"
#include "sides.cuh"

#if defined(GPUSOCK_DEVICE_CPU)
#include "cpu_device/device_shape.hpp"
#endif

#include <cerrno>
#include <optional>
#include <string>
#include <vector>

namespace bench {
namespace {

using gpusock::Endpoint;
using gpusock::Net;
using gpusock::Socket;

struct Opened {
  Socket listener;
  Endpoint local;
};

__global__ void open_listener(Net net, Endpoint at, Opened* opened) {
  opened->listener = net.listen(gpusock::this_thread(), at);
  if (opened->listener >= 0) net.getsockname(opened->listener, opened->local);
}

template <GroupKind kind>
__device__ auto group_of_kind() {
  if constexpr (kind == GroupKind::thread) {
    return gpusock::this_thread();
  } else if constexpr (kind == GroupKind::warp) {
    return gpusock::this_warp();
  } else {
    return gpusock::this_block();
  }
}

/// The largest block, which nvcc must know: else it may use more registers per thread than a GPU has for so many. The
/// CPU device does not ask.
[[maybe_unused]] constexpr unsigned threads_max(GroupKind kind) {
  return kind == GroupKind::block ? kBlockThreadsMax : 32;
}

template <GroupKind kind>
__global__ void __launch_bounds__(threads_max(kind), 1)
    connect_and_ask(Net net, Endpoint to, Job job, SideMemory memory) {
  SocketNetwork network(net, to, -1, job);
  play_connector(group_of_kind<kind>(), network, job, blockIdx.x, memory.of(blockIdx.x, job));
}

template <GroupKind kind>
__global__ void __launch_bounds__(threads_max(kind), 1)
    accept_and_answer(Net net, Endpoint at, Socket listener, Job job, SideMemory memory) {
  SocketNetwork network(net, at, listener, job);
  play_acceptor(group_of_kind<kind>(), network, job, memory.of(blockIdx.x, job));
}

/// The kernels of one kind of group.
struct Kernels {
  void (*ask)(Net, Endpoint, Job, SideMemory);
  void (*answer)(Net, Endpoint, Socket, Job, SideMemory);
};

template <GroupKind kind>
Kernels kernels_of_kind() {
  return {connect_and_ask<kind>, accept_and_answer<kind>};
}

Kernels kernels_of(GroupKind kind) {
  switch (kind) {
    case GroupKind::warp:
      return kernels_of_kind<GroupKind::warp>();
    case GroupKind::block:
      return kernels_of_kind<GroupKind::block>();
    default:
      return kernels_of_kind<GroupKind::thread>();
  }
}

/// One side's buffers in device memory.
class DeviceSide {
 public:
  DeviceSide(gpusock::Context& context, const Job& job, bool asks)
      : out_(context, buffer_words(job.bytes) * job.sockets()),
        in_(context, out_.size()),
        samples_(context, asks ? job.samples_max * job.sockets() : 1),
        accounts_(context, job.sockets()),
        gate_(context, 1),
        asks_(asks) {}

  SideMemory memory(const Crowd& crowd = {}) const {
    return {{out_.data(), in_.data(), samples_.data(), accounts_.data(), asks_ ? gate_.data() : nullptr, crowd}};
  }
  std::vector<Account> accounts() const {
    std::vector<Account> accounts(accounts_.size());
    accounts_.copy_out(accounts);
    return accounts;
  }
  std::vector<std::uint64_t> samples() const {
    std::vector<std::uint64_t> samples(samples_.size());
    samples_.copy_out(samples);
    return samples;
  }

 private:
  gpusock::DeviceBuffer<std::uint64_t> out_, in_, samples_;
  gpusock::DeviceBuffer<Account> accounts_;
  gpusock::DeviceBuffer<std::uint64_t> gate_;
  bool asks_;
};

/// What a group of Question::scale keeps in device memory from round to round.
class DeviceCrowd {
 public:
  DeviceCrowd(gpusock::Context& context, const BenchOptions& options)
      : state_(context, 1), sockets_(context, options.sockets) {}
  Crowd get() const { return {state_.data(), sockets_.data()}; }

 private:
  gpusock::DeviceBuffer<CrowdState> state_;
  gpusock::DeviceBuffer<std::int32_t> sockets_;
};

/// Throws gpusock::Error (ENOBUFS) if the CPU device cannot run all blocks of this process side by side: each block
/// waits for its peer, so a round would never end.
void require_resident([[maybe_unused]] const BenchOptions& options) {
#if defined(GPUSOCK_DEVICE_CPU)
  const unsigned sides = options.to.empty() ? 2 : 1;
  const unsigned most = cpu_device::device_shape().resident_blocks_max;
  if (sides * options.callers() <= most) return;
  throw gpusock::Error(ENOBUFS, "--sockets: the kernels have " + std::to_string(sides * options.callers()) +
                                    " blocks in this process, which wait for each other, but the device keeps " +
                                    std::to_string(most) + " resident at one time: take fewer sockets");
#endif
}

class KernelAnswerer final : public Answerer {
 public:
  explicit KernelAnswerer(const BenchOptions& options)
      : context_(context_options(options, true)),
        kernel_(kernels_of(options.group).answer),
        threads_(options.threads()),
        opened_(context_, 1),
        crowd_(context_, options) {
    gpusock::launch(context_, {}, open_listener, context_.net(), listen_at(options), opened_.data());
    context_.synchronize();
    require_listener(opened_[0].listener, listen_at(options));
  }
  ~KernelAnswerer() override {
    context_.cancel();
    try {
      context_.synchronize();          // a kernel may use memory that is freed before the context
    } catch (const gpusock::Error&) {  // finish() reports it
    }
  }

  Endpoint where() const override { return opened_[0].local; }
  void start(const Job& job) override {
    side_.emplace(context_, job, false);
    work_.emplace(context_);
    gpusock::launch(context_, {.grid = job.sockets(), .block = threads_}, kernel_, context_.net(), opened_[0].local,
                    opened_[0].listener, job, side_->memory(crowd_.get()));
  }
  Answer finish() override {
    context_.synchronize();
    Answer answer{sum_of(side_->accounts())};
    work_->add_to(answer);
    return answer;
  }
  void cancel() noexcept override { context_.cancel(); }

 private:
  gpusock::Context context_;
  decltype(Kernels::answer) kernel_;
  unsigned threads_;
  gpusock::Mapped<Opened> opened_;
  DeviceCrowd crowd_;
  std::optional<DeviceSide> side_;
  std::optional<ProxyWork> work_;
};

class KernelAsker final : public Asker {
 public:
  explicit KernelAsker(const BenchOptions& options)
      : context_(context_options(options, false)),
        kernel_(kernels_of(options.group).ask),
        threads_(options.threads()),
        description_("sockets between kernels of two contexts (blocks of " + std::to_string(threads_) + ", calls by " +
                     to_string(options.group) + ")"),
        crowd_(context_, options) {
    require_resident(options);
  }

  std::string name() const override { return "gpusock"; }
  std::string description() const override { return description_; }
  void prepare(const Job& job) override { side_.emplace(context_, job, true); }

  Round ask(const Endpoint& where, const Job& job) override {
    const ProxyWork work(context_);
    gpusock::launch(context_, {.grid = job.sockets(), .block = threads_}, kernel_, context_.net(), where, job,
                    side_->memory(crowd_.get()));
    context_.synchronize();
    const auto accounts = side_->accounts();
    const Account all = sum_of(accounts);
    require_connection(all, where);
    require_success(all, job, "the measuring kernel");
    Round round = make_round(job, accounts, side_->samples().data());
    work.add_to(round);
    return round;
  }

 private:
  gpusock::Context context_;
  decltype(Kernels::ask) kernel_;
  unsigned threads_;
  std::string description_;
  DeviceCrowd crowd_;
  std::optional<DeviceSide> side_;
};

}  // namespace

std::unique_ptr<Answerer> make_kernel_answerer(const BenchOptions& options) {
  return std::make_unique<KernelAnswerer>(options);
}
std::unique_ptr<Asker> make_kernel_asker(const BenchOptions& options) { return std::make_unique<KernelAsker>(options); }

}  // namespace bench
