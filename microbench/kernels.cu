// gpusock between two kernels, one block on each context.
#include "gpusock_pair.hpp"
#include "sides.cuh"

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

template <GroupKind kind>
__global__ void connect_and_ask(Net net, Endpoint to, Job job, Memory memory) {
  play_connector(group_of_kind<kind>(), net, to, job, memory);
}

template <GroupKind kind>
__global__ void accept_and_answer(Net net, Socket listener, Job job, Memory memory) {
  play_acceptor(group_of_kind<kind>(), net, listener, job, memory);
}

/// The kernels of one kind of group.
struct Kernels {
  void (*ask)(Net, Endpoint, Job, Memory);
  void (*answer)(Net, Socket, Job, Memory);
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
  DeviceSide(gpusock::Context& context, const Job& job, std::uint64_t samples)
      : out_(context, words_of(job.bytes)),
        in_(context, words_of(job.bytes)),
        samples_(context, samples),
        account_(context, 1) {}

  Memory memory() const { return {out_.data(), in_.data(), samples_.data(), account_.data()}; }

  Account account() const {
    Account account;
    account_.copy_out({&account, 1});
    return account;
  }
  std::vector<std::uint64_t> samples(std::uint64_t count) const {
    std::vector<std::uint64_t> samples(count);
    samples_.copy_out(samples);
    return samples;
  }

 private:
  gpusock::DeviceBuffer<std::uint64_t> out_, in_, samples_;
  gpusock::DeviceBuffer<Account> account_;
};

class KernelPair final : public Contestant {
 public:
  explicit KernelPair(const BenchOptions& options)
      : pair_(options),
        kernels_(kernels_of(options.group)),
        threads_(options.threads()),
        opened_(pair_.acceptor, 1),
        description_("sockets between kernels of two contexts (one block of " + std::to_string(threads_) +
                     ", calls by " + to_string(options.group) + ")") {
    gpusock::launch(pair_.acceptor, {}, open_listener, pair_.acceptor.net(), pair_.listen_at(), opened_.data());
    pair_.acceptor.synchronize();
    require_listener(opened_[0].listener, pair_.listen_at());
  }

  std::string name() const override { return "gpusock"; }
  std::string description() const override { return description_; }

  Round run(const Job& job) override {
    // All memory is made before a kernel runs: making some may wait for running kernels.
    const DeviceSide answering(pair_.acceptor, job, 1);
    const DeviceSide asking(pair_.connector, job, job.question == Question::latency ? job.messages_max : 1);
    const auto before = pair_.work();
    run_kernels(job, answering, asking);
    const Account account = asking.account();
    require_connection(account, opened_[0].local);
    require_success(account, job, "the measuring kernel");
    require_success(answering.account(), job, "the answering kernel");
    const auto samples = asking.samples(job.question == Question::latency ? account.messages : 1);
    Round round = make_round(job, account, samples.data());
    pair_.add_work(round, before);
    return round;
  }

 private:
  void run_kernels(const Job& job, const DeviceSide& answering, const DeviceSide& asking) {
    gpusock::launch(pair_.acceptor, {.grid = 1, .block = threads_}, kernels_.answer, pair_.acceptor.net(),
                    opened_[0].listener, job, answering.memory());
    Endpoint to = opened_[0].local;
    gpusock::launch(pair_.connector, {.grid = 1, .block = threads_}, kernels_.ask, pair_.connector.net(), to, job,
                    asking.memory());
    pair_.connector.synchronize();
    if (asking.account().failed_step == Step::connect) pair_.acceptor.cancel();  // it would wait for nobody
    pair_.acceptor.synchronize();
  }

  ContextPair pair_;
  Kernels kernels_;
  unsigned threads_;
  gpusock::Mapped<Opened> opened_;
  std::string description_;
};

}  // namespace

std::unique_ptr<Contestant> make_kernel_pair(const BenchOptions& options) {
  return std::make_unique<KernelPair>(options);
}

}  // namespace bench
