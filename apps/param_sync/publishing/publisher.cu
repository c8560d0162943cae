#include "publishing/publisher.hpp"

#include "publishing/snapshots.cuh"
#include "publishing/wire.hpp"

#include "gpusock/launch.hpp"
#include "gpusock/server.cuh"

#include <algorithm>
#include <cerrno>
#include <string>

namespace param_sync {

/// A follower's connection, and what has come of its question. In device memory; only one block uses it.
struct FollowerSeat {
  gpusock::Socket socket;
  std::uint32_t filled;    ///< bytes of the question
  std::uint64_t asked_ns;  ///< when its first bytes came
  WeightsRequest question;
};

namespace {

constexpr unsigned kBlocks = 2;           // that answer followers; each is answered by one of them
constexpr unsigned kSlots = kBlocks + 2;  // one is always free: a training never skips a version
constexpr int kSeats = 16;                // followers of a block
constexpr int kBacklog = 32;
constexpr std::int64_t kIdleNs = 60'000'000'000;  // after so long without a question a follower is reset
constexpr std::uint64_t kTurnMs = 100;            // after so long a block looks whether the training has ended
constexpr unsigned kTurnsOfSilence = 10;          // at the end: so many without a question, and all leave
constexpr std::uint64_t kPatienceMs = 10'000;  // for half a question, for one who does not read, and for all at the end
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
  FollowerSeat* seats = nullptr;  ///< kSeats of each block
};

/// A block that answers followers. Members are block-collective.
template <class Block>
class Answering {
 public:
  __device__ Answering(const Block& block, const Publishing& all, gpusock::PollEntry (&entries)[1 + kSeats],
                       WeightsAnswer& answer)
      : block_(block),
        all_(all),
        seats_(all.seats + std::size_t{blockIdx.x} * kSeats),
        entries_(entries),
        answer_(answer) {}

  /// Until the training has ended, and its followers have its last weights; or until the context ends.
  __device__ void run() {
    for (unsigned i = block_.thread_rank(); i < kSeats; i += block_.size()) seats_[i].socket = -1;
    unsigned silent = 0;
    for (gpusock::Deadline until = gpusock::Deadline::never();;) {
      block_.sync();
      const int free = free_seat();
      for (unsigned i = block_.thread_rank(); i < kSeats; i += block_.size()) {
        entries_[1 + i] = {seats_[i].socket, gpusock::kPollIn, 0};
      }
      if (leader()) entries_[0] = {free < 0 ? -1 : all_.listener, gpusock::kPollIn, 0};
      block_.sync();
      const int events = all_.net.poll(block_, entries_, 1 + kSeats, gpusock::Deadline::after_ms(kTurnMs));
      if (events < 0) return;
      const bool was_last = last_ != 0;
      read_last();
      if (last_ != 0 && !was_last) until = gpusock::Deadline::after_ms(kPatienceMs).here();
      silent = events == 0 ? silent + 1 : 0;
      if (last_ != 0 && (nobody_is_there() || silent == kTurnsOfSilence || until.passed())) break;
      for (int i = 0; i < kSeats; ++i) {
        if (seats_[i].socket >= 0 && !serve(seats_[i], entries_[1 + i].revents != 0)) leave(seats_[i]);
      }
      if (entries_[0].revents != 0) admit(free);
    }
    for (int i = 0; i < kSeats; ++i) {
      if (seats_[i].socket >= 0) leave(seats_[i]);
    }
  }

 private:
  __device__ bool leader() const { return block_.thread_rank() == 0; }

  /// -1: there is none. All threads get the same number.
  __device__ int free_seat() const {
    int seat = kSeats - 1;
    while (seat >= 0 && seats_[seat].socket >= 0) --seat;
    return seat;
  }

  __device__ bool nobody_is_there() const {
    int seat = 0;
    while (seat < kSeats && seats_[seat].socket < 0) ++seat;
    return seat == kSeats;
  }

  /// last_: 0 while the training goes on, then 1 + its last version.
  __device__ void read_last() {
    // relaxed: the weights come by N2
    const std::uint64_t now = executor::SystemWord(*all_.last).load(cuda::memory_order_relaxed);
    if (__syncthreads_and(now != 0) != 0) last_ = now;
  }

  __device__ void admit(int seat) {
    const auto socket = all_.net.accept(block_, all_.listener, gpusock::Deadline::now());
    if (socket < 0) return;  // the other block has taken it
    all_.net.setsockopt(block_, socket, gpusock::SocketOption::idle_timeout_ns, kIdleNs);
    if (leader()) seats_[seat] = {socket, 0, 0, {}};
  }

  __device__ void leave(FollowerSeat& seat) {
    all_.net.close(block_, seat.socket);
    block_.sync();
    if (leader()) seat.socket = -1;
    block_.sync();
  }

  /// Reads what has come of a question, and answers one that is whole. Returns false if the connection is to end: also
  /// if a question takes too long, as a stranger's.
  __device__ bool serve(FollowerSeat& seat, bool has_more) {
    const std::uint32_t before = seat.filled;
    if (!has_more) return before == 0 || gpusock::clock_ns() - seat.asked_ns < kPatienceMs * 1'000'000;
    const auto got = all_.net.recv(block_, seat.socket, reinterpret_cast<char*>(&seat.question) + before,
                                   sizeof seat.question - before, gpusock::kDontWait);
    if (got == -EAGAIN) return true;
    if (got <= 0) return false;
    const auto now = before + static_cast<std::uint32_t>(got);
    block_.sync();  // all have read how many there were
    if (leader()) {
      if (before == 0) seat.asked_ns = gpusock::clock_ns();
      seat.filled = now == sizeof seat.question ? 0 : now;
    }
    block_.sync();
    return now != sizeof seat.question || answer(seat);
  }

  /// Returns false if the connection is to end.
  __device__ bool answer(const FollowerSeat& seat) {
    __shared__ int slot;
    if (leader()) {
      slot = all_.snapshots.begin_read();
      const std::uint64_t version = all_.snapshots.versions[slot];
      const bool fits = seat.question.magic == kWeightsMagic && seat.question.model == all_.model;
      const bool is_new = fits && version != seat.question.have;
      answer_ = {kWeightsMagic, fits ? 0 : EPROTO, version, is_new ? all_.snapshots.floats : 0,
                 version + 1 == last_ ? 1u : 0u};
    }
    block_.sync();
    const auto until = gpusock::Deadline::after_ms(kPatienceMs).here();
    std::int64_t sent = all_.net.send(block_, seat.socket, &answer_, sizeof answer_, gpusock::kWaitAll, until);
    if (sent > 0 && answer_.floats != 0) {
      sent = all_.net.send(block_, seat.socket, all_.snapshots.of(slot), answer_.floats * sizeof(float),
                           gpusock::kWaitAll, until);
    }
    const bool goes_on = sent > 0 && answer_.error == 0 && (answer_.is_last == 0 || answer_.floats != 0);
    block_.sync();  // all have sent their part, and read the answer
    if (leader()) all_.snapshots.end_read(slot);
    return goes_on;
  }

  const Block& block_;
  const Publishing& all_;
  FollowerSeat* seats_;
  gpusock::PollEntry (&entries_)[1 + kSeats];
  WeightsAnswer& answer_;
  std::uint64_t last_ = 0;
};

__global__ void answer_followers(Publishing all) {
  __shared__ gpusock::PollEntry entries[1 + kSeats];
  __shared__ WeightsAnswer answer;
  const auto block = gpusock::this_block();
  Answering(block, all, entries, answer).run();
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

gpusock::Listener listener_at(gpusock::Context& context, const gpusock::Endpoint& at) try {
  return gpusock::open_listener(context, at, kBacklog);
} catch (const gpusock::Error& error) {
  if (error.code().value() != EADDRINUSE) throw;
  throw gpusock::Error(EADDRINUSE,
                       "--publish " + at.to_string() + ": another program listens there; take another port");
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
        seats(of, std::size_t{kBlocks} * kSeats),
        listener(listener_at(of, at)),
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
  gpusock::DeviceBuffer<FollowerSeat> seats;
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
  all.seats = impl_->seats.data();
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
