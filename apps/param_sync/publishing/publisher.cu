#include "publishing/publisher.hpp"

#include "publishing/snapshots.cuh"
#include "publishing/wire.hpp"

#include "gpusock/launch.hpp"
#include "gpusock/server.cuh"

#include <algorithm>
#include <cerrno>

namespace param_sync {
namespace {

constexpr unsigned kBlocks = 2;           // that answer followers; each is answered by one of them
constexpr unsigned kSlots = kBlocks + 2;  // one is always free: a training never skips a version
constexpr int kSeats = 16;                // followers of a block
constexpr int kBacklog = 32;
constexpr std::int64_t kIdleNs = 60'000'000'000;  // after so long without a question a follower is reset
constexpr std::uint64_t kTurnMs = 100;            // after so long a block looks whether the training has ended
constexpr unsigned kTurnsOfSilence = 10;          // after so many nobody is answered any more, at the end
constexpr std::uint64_t kPatienceMs = 10'000;     // for a follower that does not read, and for all of them at the end
#if defined(GPUSOCK_DEVICE_CPU)
constexpr unsigned kCopyThreads = 1;  // threads of a block share one processor
#else
constexpr unsigned kCopyThreads = 256;
#endif

/// What the kernel that answers followers has.
struct Publishing {
  gpusock::Net net;
  gpusock::Socket listener = -1;
  Snapshots snapshots;
  std::uint64_t model = 0;
  std::uint64_t* last = nullptr;  ///< mapped: 0, or 1 + the last version
};

/// A block that answers followers. Members are block-collective.
template <class Block>
class Answering {
 public:
  __device__ Answering(const Block& block, const Publishing& all, gpusock::PollEntry (&entries)[1 + kSeats],
                       WeightsRequest& request, WeightsAnswer& answer)
      : block_(block), all_(all), entries_(entries), request_(request), answer_(answer) {}

  /// Until the training has ended, and its followers have its last weights; or until the context ends.
  __device__ void run() {
    if (leader()) {
      for (gpusock::PollEntry& entry : entries_) entry = {-1, gpusock::kPollIn, 0};
    }
    unsigned silent = 0;
    for (gpusock::Deadline until = gpusock::Deadline::never();;) {
      if (leader()) entries_[0] = {free_seat() == 0 ? -1 : all_.listener, gpusock::kPollIn, 0};
      block_.sync();
      const int events = all_.net.poll(block_, entries_, 1 + kSeats, gpusock::Deadline::after_ms(kTurnMs));
      if (events < 0) return;
      const bool was_last = last_ != 0;
      read_last();
      if (last_ != 0 && !was_last) until = gpusock::Deadline::after_ms(kPatienceMs).here();
      silent = events == 0 ? silent + 1 : 0;
      if (last_ != 0 && (nobody_is_there() || silent == kTurnsOfSilence || until.passed())) break;
      if (entries_[0].revents != 0) admit();
      for (int seat = 1; seat <= kSeats; ++seat) {
        if (entries_[seat].socket >= 0 && entries_[seat].revents != 0 && !answer(entries_[seat].socket)) leave(seat);
      }
    }
    for (int seat = 1; seat <= kSeats; ++seat) {
      if (entries_[seat].socket >= 0) leave(seat);
    }
  }

 private:
  __device__ bool leader() const { return block_.thread_rank() == 0; }

  /// 0: there is none. All threads get the same number.
  __device__ int free_seat() const {
    int seat = kSeats;
    while (seat > 0 && entries_[seat].socket >= 0) --seat;
    return seat;
  }

  __device__ bool nobody_is_there() const {
    int seat = kSeats;
    while (seat > 0 && entries_[seat].socket < 0) --seat;
    return seat == 0;
  }

  /// last_: 0 while the training goes on, then 1 + its last version.
  __device__ void read_last() {
    // relaxed: the weights come by N2
    const std::uint64_t now = executor::SystemWord(*all_.last).load(cuda::memory_order_relaxed);
    if (__syncthreads_and(now != 0) != 0) last_ = now;
  }

  __device__ void admit() {
    const int seat = free_seat();
    const auto socket = all_.net.accept(block_, all_.listener, gpusock::Deadline::now());
    if (socket < 0) return;  // the other block has taken it
    all_.net.setsockopt(block_, socket, gpusock::SocketOption::idle_timeout_ns, kIdleNs);
    block_.sync();  // all have found the seat
    if (leader()) entries_[seat] = {socket, gpusock::kPollIn, 0};
    block_.sync();
  }

  __device__ void leave(int seat) {
    const auto socket = entries_[seat].socket;
    all_.net.close(block_, socket);
    block_.sync();
    if (leader()) entries_[seat].socket = -1;
    block_.sync();
  }

  /// Answers a question, if it has come. Returns false if the connection is to end.
  __device__ bool answer(gpusock::Socket follower) {
    __shared__ int slot;
    const auto got = all_.net.recv(block_, follower, &request_, sizeof request_,
                                   gpusock::kWaitAll | gpusock::kDontWait);
    if (got == -EAGAIN) return true;  // a part of it
    if (got != static_cast<std::int64_t>(sizeof request_)) return false;
    block_.sync();
    if (leader()) {
      slot = all_.snapshots.begin_read();
      const std::uint64_t version = all_.snapshots.versions[slot];
      const bool fits = request_.magic == kWeightsMagic && request_.model == all_.model;
      const bool is_new = fits && version != request_.have;
      answer_ = {kWeightsMagic, fits ? 0 : EPROTO, version, is_new ? all_.snapshots.floats : 0,
                 version + 1 == last_ ? 1u : 0u};
    }
    block_.sync();
    const auto until = gpusock::Deadline::after_ms(kPatienceMs);
    std::int64_t sent = all_.net.send(block_, follower, &answer_, sizeof answer_, gpusock::kWaitAll, until);
    if (sent > 0 && answer_.floats != 0) {
      sent = all_.net.send(block_, follower, all_.snapshots.of(slot), answer_.floats * sizeof(float), gpusock::kWaitAll,
                           until);
    }
    const bool goes_on = sent > 0 && answer_.error == 0 && (answer_.is_last == 0 || answer_.floats != 0);
    block_.sync();  // all have sent their part, and read the answer
    if (leader()) all_.snapshots.end_read(slot);
    return goes_on;
  }

  const Block& block_;
  const Publishing& all_;
  gpusock::PollEntry (&entries_)[1 + kSeats];
  WeightsRequest& request_;
  WeightsAnswer& answer_;
  std::uint64_t last_ = 0;
};

__global__ void answer_followers(Publishing all) {
  __shared__ gpusock::PollEntry entries[1 + kSeats];
  __shared__ WeightsRequest request;
  __shared__ WeightsAnswer answer;
  const auto block = gpusock::this_block();
  Answering(block, all, entries, request, answer).run();
}

/// One thread.
__global__ void choose_slot(Snapshots snapshots, int* chosen) { *chosen = snapshots.begin_write(); }

__global__ void copy_to_slot(Snapshots snapshots, const int* chosen, const float* weights) {
  if (*chosen < 0) return;
  float* const to = snapshots.of(*chosen);
  const std::uint64_t first = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  for (std::uint64_t i = first; i < snapshots.floats; i += std::uint64_t{gridDim.x} * blockDim.x) to[i] = weights[i];
}

/// One thread. Weights are not published if a kernel has failed: some may be of another step.
__global__ void publish_slot(Snapshots snapshots, const int* chosen, std::uint64_t version,
                             const std::uint64_t* failed) {
  if (*chosen < 0 || *failed != 0) return;
  snapshots.versions[*chosen] = version;
  snapshots.publish(*chosen);
}

}  // namespace

struct Publisher::Impl {
  Impl(gpusock::Context& of, const gpusock::Endpoint& at, std::uint64_t floats, std::uint64_t model_number)
      : context(of),
        stream(of),
        word(of, 1),
        slots(of, kSlots * floats),
        versions(of, kSlots),
        chosen(of, 1),
        last(of, 1),
        listener(gpusock::open_listener(of, at, kBacklog)),
        model(model_number),
        blocks(static_cast<unsigned>(std::clamp<std::uint64_t>(floats / (16 << 10), 1, 32))) {
    last[0] = 0;
    snapshots = {word.data(), slots.data(), versions.data(), floats, kSlots};
  }

  gpusock::Context& context;
  gpusock::Stream stream;
  gpusock::DeviceBuffer<std::uint64_t> word;
  gpusock::DeviceBuffer<float> slots;
  gpusock::DeviceBuffer<std::uint64_t> versions;
  gpusock::DeviceBuffer<int> chosen;
  gpusock::Mapped<std::uint64_t> last;
  gpusock::Listener listener;
  std::uint64_t model;
  unsigned blocks;  // of the kernel that copies weights
  Snapshots snapshots;
};

Publisher::Publisher(gpusock::Context& context, const gpusock::Endpoint& at, std::uint64_t floats, std::uint64_t model)
    : impl_(std::make_unique<Impl>(context, at, floats, model)) {}

Publisher::~Publisher() {
  impl_->context.cancel();
  try {
    impl_->stream.synchronize();
  } catch (const gpusock::Error&) {
    // a kernel has faulted, which the training reports
  }
}

const gpusock::Endpoint& Publisher::where() const { return impl_->listener.where; }

void Publisher::start() {
  Publishing all;
  all.net = impl_->context.net();
  all.listener = impl_->listener.socket;
  all.snapshots = impl_->snapshots;
  all.model = impl_->model;
  all.last = impl_->last.data();
  gpusock::launch(impl_->context, {.grid = kBlocks, .block = kCopyThreads, .stream = &impl_->stream}, answer_followers,
                  all);
}

void Publisher::offer(gpusock::Stream& stream, const float* weights, std::uint64_t version,
                      const std::uint64_t* failed) {
  const gpusock::LaunchShape one{.grid = 1, .block = 1, .stream = &stream};
  const gpusock::LaunchShape many{.grid = impl_->blocks, .block = kCopyThreads, .stream = &stream};
  gpusock::launch(impl_->context, one, choose_slot, impl_->snapshots, impl_->chosen.data());
  gpusock::launch(impl_->context, many, copy_to_slot, impl_->snapshots, impl_->chosen.data(), weights);
  gpusock::launch(impl_->context, one, publish_slot, impl_->snapshots, impl_->chosen.data(), version, failed);
}

void Publisher::finish(std::uint64_t last_version) {
  // relaxed: see last_of()
  executor::SystemWord(impl_->last[0]).store(last_version + 1, cuda::memory_order_relaxed);
  impl_->stream.synchronize();
}

}  // namespace param_sync
