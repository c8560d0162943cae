// Gradients that are written where they are sent from: by whichever of a lane and a block is first, with the same sums.
#include "param_sync/executor/handover.cuh"
#include "param_sync/executor/in_place.hpp"
#include "trial/local_ranks.hpp"
#include "param_sync/executor/in_place_reservation.cuh"
#include "tests/unit/executor/schedules.hpp"

#include <gtest/gtest.h>

#include <deque>
#include <memory>
#include <vector>

namespace in_place_test {
namespace {

using namespace param_sync;
using executor::InPlaceReservation;
using executor::InPlaceReservations;
using executor::InPlaceSend;

constexpr int kNodes = 3;
constexpr std::uint64_t kFloats = 1000;  // a message has 1364 bytes, a ring 4096: it begins at all offsets in its last
                                         // 32 bytes, too
constexpr std::uint64_t kSteps = 80;
constexpr unsigned kBlocks = 4;  // a part of one has floats of two ranks
constexpr float kWeight = 4096, kRate = 0.5f;

enum class First { lane, block, any, each_in_turn };

__device__ inline First first_in(First order, std::uint64_t step) {
  if (order != First::each_in_turn) return order;
  return step % 2 == 0 ? First::lane : First::any;
}

__global__ void fill(float* weights) {
  for (std::uint64_t i = 0; i < kFloats; ++i) weights[i] = kWeight;
}

/// As a block that is first in a step does.
__device__ inline void decide_all(const InPlaceReservations& reservations, std::uint64_t step) {
  for (int i = 0; i < reservations.count; ++i) executor::decide(reservations.all[i], step);
}

__global__ void decide_first_step(InPlaceReservations reservations) { decide_all(reservations, 0); }

__device__ inline void await_reservations(const InPlaceReservations& reservations, std::uint64_t step) {
  for (int i = 0; i < reservations.count; ++i) {
    while (executor::DeviceWord(reservations.all[i].decision).load(cuda::memory_order_relaxed) <
           InPlaceReservation::in_tensor(step)) {
      __nanosleep(1'000);
    }
  }
}

__device__ inline void write_part(const InPlaceReservations& reservations, std::uint64_t step, int rank,
                                  executor::Floats part) {
  const executor::Destination to(reservations, step, part);
  float* together = to.together();
  for (std::uint64_t i = part.begin + threadIdx.x; i < part.end; i += blockDim.x) {
    float& gradient = together != nullptr ? together[i - part.begin] : to[i];
    gradient = static_cast<float>((i + step) % 7) + static_cast<float>(rank);
  }
}

__device__ inline executor::Floats part_of_block() {
  return {kFloats * blockIdx.x / kBlocks, kFloats * (blockIdx.x + 1) / kBlocks};
}

/// Waits until the weights of so many steps are there; false where a lane has failed.
__device__ inline bool await_version(executor::ExchangeWords& words, std::uint64_t& failed, std::uint64_t steps) {
  while (!executor::has_version(words, steps)) {
    if (executor::has_ended(failed, nullptr)) return false;
    __nanosleep(1'000);
  }
  return true;
}

/// A rank's backward kernels of all steps. Where a block shall be first, it decides for the next step before this one
/// is handed over: then no lane can have reserved anything.
__global__ void compute(InPlaceReservations reservations, executor::ExchangeWords* words, std::uint64_t* failed,
                        First order, int rank, std::uint64_t steps) {
  for (std::uint64_t step = 0; step < steps; ++step) {
    bool goes_on = true;
    if (threadIdx.x == 0) {
      goes_on = await_version(*words, *failed, step);
      if (goes_on && first_in(order, step) == First::lane) await_reservations(reservations, step);
    }
    if (__syncthreads_and(goes_on) == 0) return;
    write_part(reservations, step, rank, part_of_block());
    __syncthreads();
    if (threadIdx.x != 0) continue;
    if (order == First::block) decide_all(reservations, step + 1);
    executor::hand_over(*words);
  }
}

__global__ void write_one_step(InPlaceReservations reservations) {
  if (threadIdx.x == 0) await_reservations(reservations, 0);
  __syncthreads();
  write_part(reservations, 0, 0, part_of_block());
}

__global__ void wait_for_reservations(InPlaceReservations reservations) { await_reservations(reservations, 0); }

struct Memory {
  explicit Memory(gpusock::Context& context)
      : weights(context, kFloats),
        velocity(context, kFloats),
        words(context, 1),
        times(context, 1),
        failed(context, 1),
        stop(context, 1) {}
  gpusock::DeviceBuffer<float> weights, velocity;
  gpusock::DeviceBuffer<executor::ExchangeWords> words;
  gpusock::DeviceBuffer<executor::ExchangeTimes> times;
  gpusock::DeviceBuffer<std::uint64_t> failed;
  gpusock::Mapped<std::uint64_t> stop;
};

executor::Settings settings() {
  executor::Settings settings;
  settings.ring_bytes = 4 << 10;
  settings.last_words = executor::LastWordsBy::host;  // as a training has it
  settings.execution = {.rank_order = true, .weights_apart = true};
  return settings;
}

struct Training {
  Training(const char* scheme, gpusock::LinkKind link)
      : ranks({executor_test::make(scheme, kNodes)}, link, settings(), kFloats) {
    for (int rank = 0; rank < kNodes; ++rank) {
      Memory& own = memory.emplace_back(ranks.context(rank));
      gpusock::launch(ranks.context(rank), {}, fill, own.weights.data());
      ranks.context(rank).synchronize();
      executor::Exchanged tensor;
      tensor.gradients = ranks.tensor(rank).data();
      tensor.count = kFloats;
      tensor.optimizing = {Sgd{kRate, 0, 1}, {own.velocity.data(), kFloats}, own.weights.data()};
      tensor.in_place = true;
      tensor.ready_per_step = kBlocks;
      executor::Residence residence;
      residence.steps = kSteps;
      residence.timeout_ns = executor_test::kTimeoutNs;
      residence.words = own.words.data();
      residence.times = own.times.data();
      residence.failed = own.failed.data();
      residence.stop = own.stop.data();
      ranks.executor(rank).prepare_resident({&tensor, 1}, residence);
    }
  }

  InPlaceReservations reservations(int rank) { return ranks.executor(rank).in_place_reservations(0); }

  void start() {
    for (int rank = 0; rank < kNodes; ++rank) ranks.executor(rank).start_resident();
  }

  void train(First order) {
    for (int rank = 0; rank < kNodes; ++rank) {
      if (order == First::block) gpusock::launch(ranks.context(rank), {}, decide_first_step, reservations(rank));
      ranks.context(rank).synchronize();
    }
    start();
    for (int rank = 0; rank < kNodes; ++rank) {
      const Memory& own = memory[static_cast<std::size_t>(rank)];
      gpusock::launch(ranks.context(rank), {.grid = kBlocks, .block = 2}, compute, reservations(rank), own.words.data(),
                      own.failed.data(), order, rank, kSteps);
    }
    for (int rank = 0; rank < kNodes; ++rank) {
      ranks.executor(rank).await_resident();
      ranks.context(rank).synchronize();
      ASSERT_FALSE(ranks.executor(rank).failure().has_value());
    }
  }

  executor::ExchangeWords words(int rank) {
    executor::ExchangeWords words{};
    memory[static_cast<std::size_t>(rank)].words.copy_out({&words, 1});
    return words;
  }

  executor::LocalRanks ranks;
  std::deque<Memory> memory;  // of kernels that have ended before the ranks do
};

/// All numbers are exact.
std::vector<float> expected() {
  std::vector<float> weights(kFloats, kWeight);
  for (std::uint64_t i = 0; i < kFloats; ++i) {
    for (std::uint64_t step = 0; step < kSteps; ++step) {
      weights[i] -= kRate * static_cast<float>(kNodes * ((i + step) % 7) + 3);  // ranks 0, 1 and 2
    }
  }
  return weights;
}

struct Expected {
  const char* scheme;
  gpusock::LinkKind link;
  First first;
  double least, most;  // share of what is pushed
};

TEST(InPlace, TheSumsAreTheSameWhoeverIsFirst) {
  const auto p2p = gpusock::LinkKind::p2p, tcp = gpusock::LinkKind::tcp;
  for (const Expected& trial :
       {Expected{"ps:even", p2p, First::lane, 1, 1}, Expected{"ps:even", p2p, First::block, 0, 0},
        Expected{"ps:even", tcp, First::lane, 1, 1}, Expected{"ps:even", tcp, First::block, 0, 0},
        Expected{"ps:even", p2p, First::each_in_turn, 0.5, 1}, Expected{"ps:even", tcp, First::any, 0, 1},
        Expected{"ring", p2p, First::lane, 0.2, 0.3}}) {
    Training training(trial.scheme, trial.link);
    training.train(trial.first);
    for (int rank = 0; rank < kNodes; ++rank) {
      std::vector<float> weights(kFloats);
      training.memory[static_cast<std::size_t>(rank)].weights.copy_out(weights);
      EXPECT_EQ(weights, expected()) << trial.scheme << " " << rank;
      const executor::ExchangeWords words = training.words(rank);
      EXPECT_GE(static_cast<double>(words.in_place_bytes), trial.least * static_cast<double>(words.pushed_bytes));
      EXPECT_LE(static_cast<double>(words.in_place_bytes), trial.most * static_cast<double>(words.pushed_bytes));
    }
  }
}

/// The training ends while room is reserved, and blocks still write there.
TEST(InPlace, BlocksMayWriteAfterTheLanesHaveEnded) {
  Training training("ps:even", gpusock::LinkKind::p2p);
  training.start();
  for (int rank = 0; rank < kNodes; ++rank) {
    gpusock::Stream stream(training.ranks.context(rank));
    gpusock::launch(training.ranks.context(rank), {.stream = &stream}, wait_for_reservations,
                    training.reservations(rank));
    stream.synchronize();
    executor::SystemWord(training.memory[static_cast<std::size_t>(rank)].stop[0]).store(1, cuda::memory_order_relaxed);
  }
  for (int rank = 0; rank < kNodes; ++rank) {
    training.ranks.executor(rank).await_resident();
    training.ranks.context(rank).cancel();
    gpusock::launch(training.ranks.context(rank), {.grid = kBlocks, .block = 2}, write_one_step,
                    training.reservations(rank));
    training.ranks.context(rank).synchronize();
    EXPECT_EQ(training.words(rank).pushed_bytes, 0u);
  }
}

/// The chunks that a rank may write in place, of as many as there are, and how many messages carry them.
struct Sends {
  std::uint64_t floats = 0;
  std::size_t messages = 0;
  bool operator==(const Sends&) const = default;
};

Sends sends_of(const char* scheme, int rank, std::uint64_t unit_floats = kFloats, std::uint64_t ring_bytes = 64 << 10) {
  const auto schedule = executor_test::make(scheme, 4);
  const auto program = executor::program_of(schedule, rank, executor::channels_of({schedule}, rank));
  const executor::Cut cut{kFloats, unit_floats, static_cast<std::uint32_t>(schedule.chunks)};
  const auto all = executor::in_place_sends(schedule, rank, program, cut, ring_bytes);
  Sends sends;
  for (const InPlaceSend& send : all) {
    EXPECT_GE(send.floats.begin, &send == &all.front() ? 0 : (&send - 1)->floats.end) << "in order, without overlap";
    sends.floats += send.floats.count();
    ++sends.messages;
  }
  return sends;
}

TEST(InPlace, OfEachSchemeWhatNobodyReadsAgain) {
  EXPECT_EQ(sends_of("ps:even", 1), (Sends{750, 3}));               // to each owner its part
  EXPECT_EQ(sends_of("mesh", 1), (Sends{750, 3}));                  // the same
  EXPECT_EQ(sends_of("ring", 1), (Sends{250, 1}));                  // the first one; later ones are sums
  EXPECT_EQ(sends_of("rhd", 1), (Sends{500, 1}));                   // half, to the first partner
  EXPECT_EQ(sends_of("butterfly", 1), (Sends{0, 0}));               // it adds to what it has sent
  EXPECT_EQ(sends_of("ps:even", 1, 100), (Sends{300, 3}));          // of each chunk what the first pass sends
  EXPECT_EQ(sends_of("ps:even", 1, kFloats, 1000), (Sends{0, 0}));  // no ring has room for it
}

}  // namespace
}  // namespace in_place_test
