// A kernel hands RDMA writes to a NIC (tests/support/mlx5), which a host thread is: each message's bytes arrive whole,
// before the number that follows them, and are not overwritten before they were sent. On a GPU this shows whether the
// orders G1 to G4 hold across the bus.
#include "tests/conformance/party.cuh"

#include "tests/support/mlx5/send_queue.hpp"
#include "tests/support/mlx5_nic.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <thread>
#include <vector>

namespace gpusock::conformance::nic {
namespace {

constexpr std::uint32_t kBlocks = 16, kSlots = 4, kSlotWords = 12, kNumber = 77, kKey = 5;
constexpr std::uint64_t kRemote = 0x10000, kStuck = ~std::uint64_t{0};
constexpr int kMessages = GPUSOCK_KERNELS_ON_CPU ? 200 : 20'000;  // a CPU's caches: see bus_test.cu

struct Posts {
  rdma::mlx5::SendQueueMemory send;
  rdma::mlx5::CompletionQueueMemory completions;
  std::uint64_t* slots = nullptr;  ///< messages, of kSlotWords each; the NIC reads them here
  std::uint64_t messages = 0;
  std::uint64_t* ended = nullptr;  ///< how many were posted; kStuck: waited too long, or an error
};

/// One thread of a kernel and its queues.
class Poster {
 public:
  __device__ explicit Poster(const Posts& it)
      : queue_(it.send), done_(it.completions), until_ns_(clock_ns() + kPatienceNs) {}

  /// Waits until entries before `position` are complete; false where that fails.
  __device__ bool complete(std::uint64_t position) {
    while (static_cast<std::int64_t>(queue_.completed() - position) < 0) {
      if (!take()) return false;
    }
    return true;
  }
  __device__ bool append(const rdma::mlx5::Write& write, bool notify) {
    int error = 0;
    while ((error = queue_.append(write, notify)) == -EAGAIN) {
      if (!take()) return false;
    }
    return error == 0;
  }
  __device__ std::uint64_t ring() {
    queue_.ring();
    return queue_.appended();
  }

 private:
  __device__ bool take() {
    rdma::mlx5::Completion completion;
    const int got = done_.poll(completion);
    if (got == 0) __nanosleep(100);
    return clock_ns() < until_ns_ && (got == 0 || (got == 1 && queue_.take(completion) == 0));
  }

  rdma::mlx5::SendQueue queue_;
  rdma::mlx5::CompletionQueue done_;
  std::uint64_t until_ns_;
};

__global__ void posts_to_a_nic(Posts it) {
  Poster poster(it);
  std::uint64_t free_at[kSlots] = {};
  std::uint64_t ended = 0;
  for (std::uint64_t message = 1; message <= it.messages; ++message) {
    const std::uint64_t slot = message % kSlots;
    if (!poster.complete(free_at[slot])) break;
    std::uint64_t* const words = it.slots + slot * kSlotWords;
    for (std::uint32_t i = 0; i < kSlotWords; ++i) words[i] = message * 1000 + i;
    const std::uint64_t to = kRemote + (1 + slot * kSlotWords) * sizeof(std::uint64_t);
    constexpr auto kBytes = static_cast<std::uint32_t>(kSlotWords * sizeof(std::uint64_t));
    if (!poster.append({words, kBytes, message % 3 == 0 ? 0 : kKey, to, kKey, message % 3 == 0}, false)) break;
    if (!poster.append({&message, sizeof message, 0, kRemote, kKey, true}, true)) break;
    free_at[slot] = poster.ring();
    ended = message;
  }
  *it.ended = ended == it.messages ? ended : kStuck;
}

TEST(BusToNic, BytesComeWholeAndBeforeTheirNumber) {
  Context context(from_environment(Options()));
  Mapped<std::uint64_t> entries(context, kBlocks * 8), completions(context, kBlocks * 8),
      slots(context, kSlots * kSlotWords);
  Mapped<std::uint64_t> words(context, 4 * 16);  // each on a line of its own
  std::fill_n(completions.data(), kBlocks * 8, ~std::uint64_t{0});
  std::fill_n(words.data(), 4 * 16, 0);
  Posts it{{entries.data(), kBlocks, &words[0], &words[16], kNumber, 220},
           {completions.data(), kBlocks, &words[32]},
           slots.data(),
           static_cast<std::uint64_t>(scaled(kMessages, 100)),
           &words[48]};

  std::vector<std::uint64_t> arrived(1 + kSlots * kSlotWords);
  test::Mlx5Nic nic(
      {reinterpret_cast<std::byte*>(entries.data()), kBlocks, &words[0], &words[16], kNumber,
       reinterpret_cast<std::byte*>(completions.data()), kBlocks, &words[32]},
      {{kKey, reinterpret_cast<std::uint64_t>(slots.data()), reinterpret_cast<std::byte*>(slots.data()),
        kSlots * kSlotWords * sizeof(std::uint64_t)}},
      {{kKey, kRemote, reinterpret_cast<std::byte*>(arrived.data()), arrived.size() * sizeof(std::uint64_t)}});
  launch(context, {.grid = 1, .block = 1}, posts_to_a_nic, it);
  const auto until = std::chrono::steady_clock::now() + std::chrono::nanoseconds(kPatienceNs);
  std::uint64_t seen = 0, different = 0;
  while (seen < it.messages && nic.error() == nullptr && std::chrono::steady_clock::now() < until) {
    if (!nic.step()) std::this_thread::yield();
    if (arrived[0] == seen) continue;
    ASSERT_EQ(arrived[0], ++seen);
    const std::uint64_t* const message = &arrived[1 + seen % kSlots * kSlotWords];
    for (std::uint32_t i = 0; i < kSlotWords; ++i) different += message[i] != seen * 1000 + i ? 1 : 0;
  }
  context.synchronize();
  EXPECT_STREQ(nic.error(), nullptr);
  EXPECT_EQ(seen, it.messages);
  EXPECT_EQ(different, 0u) << "words that came after their number";
  EXPECT_EQ(words[48], it.messages);
}

}  // namespace
}  // namespace gpusock::conformance::nic
