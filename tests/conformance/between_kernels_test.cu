// What every ring between two kernels rests on: who sees a position sees the bytes behind it, and who gives bytes back
// has read them. In each memory that has such rings: a GPU's, two GPUs', and one that both sides map at addresses of
// their own, as two processes do (decision 024 does not prove that).
#include "tests/conformance/bus_litmus.cuh"
#include "tests/conformance/litmus_data.hpp"
#include "tests/conformance/party.cuh"
#include "tests/conformance/two_addresses.hpp"
#include "tests/support/device_kind.hpp"

#include <cerrno>
#include <optional>
#include <ostream>
#include <tuple>
#include <vector>

namespace gpusock::conformance::between_kernels {
namespace {

enum class Topology { one_gpu, two_gpus, two_addresses };
enum class Sides { threads, blocks, warps_of_a_block };
enum class Fence { none, alias };

void PrintTo(Topology topology, std::ostream* out) {
  *out << (topology == Topology::one_gpu ? "one_gpu" : topology == Topology::two_gpus ? "two_gpus" : "two_addresses");
}
void PrintTo(Sides sides, std::ostream* out) {
  *out << (sides == Sides::threads ? "threads" : sides == Sides::blocks ? "blocks" : "warps_of_a_block");
}

/// A context and what a side needs of its GPU's memory.
struct Side {
  explicit Side(int gpu) : context(on(gpu)) { pattern.copy_in(litmus_pattern()); }
  static Options on(int gpu) {
    Options options = from_environment(Options());
    options.gpu = gpu;
    return options;
  }

  Context context;
  DeviceBuffer<std::byte> pattern{context, BusLitmus::kPatternBytes};
  DeviceBuffer<std::byte> scratch{context, BusLitmus::kMessageBytesMax};
  Mapped<std::uint64_t> host{context, 32};  // the copy of its word; what went wrong
  /// A ring, and words behind it.
  DeviceBuffer<std::byte> memory{context, BusLitmus::kCapacity + 2 * ringbuf::kWordStride};
};

/// Where a side finds a ring's bytes and words.
struct Ring {
  std::byte* data;
  std::byte* committed;
  std::byte* consumed;

  static Ring at(std::byte* memory) {
    std::byte* const words = memory + BusLitmus::kCapacity;
    return {memory, words, words + ringbuf::kWordStride};
  }
};

class BetweenKernels : public testing::TestWithParam<std::tuple<Topology, Sides>> {
 protected:
  void SetUp() override {
    if (!test::like_a_gpu()) GTEST_SKIP() << "memory of this device is the host's";
    const auto [topology, sides] = GetParam();
    sender_.emplace(0);
    try {
      receiver_.emplace(topology == Topology::two_gpus ? 1 : 0);
      if (topology == Topology::two_addresses) pages_.emplace(sender_->context, kPageBytes);
    } catch (const Error& error) {
      if (error.code().value() != ENODEV && error.code().value() != ENOTSUP) throw;
      GTEST_SKIP() << error.what();
    }
    const std::string apart = why_apart(sender_->context, receiver_->context);
    if (!apart.empty()) GTEST_SKIP() << apart;
  }

  void pass_messages(Fence fence) {
    const auto [topology, sides] = GetParam();
    Ring sends = Ring::at(receiver_->memory.data()), receives = sends;
    if (topology == Topology::two_gpus) {  // each word is with the one that polls it
      sends.consumed = receives.consumed = Ring::at(sender_->memory.data()).consumed;
    }
    if (topology == Topology::two_addresses) {
      sends = Ring::at(pages_->one());
      receives = Ring::at(pages_->other());
      ASSERT_NE(sends.data, receives.data);
    }
    run(fence, sides, litmus(*sender_, sends), litmus(*receiver_, receives));
    sender_->context.synchronize();
    receiver_->context.synchronize();
    EXPECT_EQ(sender_->host[kWrong], 0u) << "it waited in vain for room";
    EXPECT_EQ(receiver_->host[kWrong], 0u) << "bytes that were not there behind their position";
    EXPECT_EQ(sender_->host[0], receiver_->host[0]) << "the copies of the words, for the host";
    EXPECT_GT(sender_->host[0], litmus_messages());
  }

 private:
  static constexpr std::size_t kWrong = 16;
  static constexpr std::size_t kPageBytes = 4096;

  static BusLitmus litmus(Side& side, const Ring& ring) {
    BusLitmus it;
    it.memory = {ring.data, BusLitmus::kCapacity, 0};
    it.committed = reinterpret_cast<std::uint64_t*>(ring.committed);
    it.consumed = reinterpret_cast<std::uint64_t*>(ring.consumed);
    it.host_copy = &side.host[0];
    it.pattern = side.pattern.data();
    it.scratch = side.scratch.data();
    it.messages = litmus_messages();
    it.wrong = &side.host[kWrong];
    return it;
  }

  void run(Fence fence, Sides sides, const BusLitmus& sends, const BusLitmus& receives) {
    const bool fenced = fence == Fence::alias;
    if (sides == Sides::warps_of_a_block) {
      launch(sender_->context, {.grid = 1, .block = 64}, fenced ? litmus_warps_pass_fenced : litmus_warps_pass, sends,
             receives);
    } else if (sides == Sides::threads) {
      launch(receiver_->context, {}, fenced ? litmus_thread_receives_fenced : litmus_thread_receives, receives);
      launch(sender_->context, {}, fenced ? litmus_thread_sends_fenced : litmus_thread_sends, sends);
    } else {
      const LaunchShape block{.grid = 1, .block = 96};
      launch(receiver_->context, block, fenced ? litmus_block_receives_fenced : litmus_block_receives, receives);
      launch(sender_->context, block, fenced ? litmus_block_sends_fenced : litmus_block_sends, sends);
    }
  }

  std::optional<Side> sender_, receiver_;
  std::optional<TwoAddresses> pages_;  // goes before its context
};

TEST_P(BetweenKernels, BytesComeBeforeTheirPosition) { pass_messages(Fence::none); }

/// Two addresses alone: should BytesComeBeforeTheirPosition fail there on a GPU, this says whether the fence mends it.
class WithAliasFence : public BetweenKernels {};
TEST_P(WithAliasFence, BytesComeBeforeTheirPosition) { pass_messages(Fence::alias); }

const auto kSeparateSides = testing::Values(Sides::threads, Sides::blocks);
const auto kAllSides = testing::Values(Sides::threads, Sides::blocks, Sides::warps_of_a_block);
const auto kNameOf = [](const auto& test) {
  return testing::PrintToString(std::get<0>(test.param)) + "_" + testing::PrintToString(std::get<1>(test.param));
};
INSTANTIATE_TEST_SUITE_P(OneGpu, BetweenKernels, testing::Combine(testing::Values(Topology::one_gpu), kAllSides),
                         kNameOf);
INSTANTIATE_TEST_SUITE_P(TwoGpus, BetweenKernels, testing::Combine(testing::Values(Topology::two_gpus), kSeparateSides),
                         kNameOf);
INSTANTIATE_TEST_SUITE_P(TwoAddresses, BetweenKernels,
                         testing::Combine(testing::Values(Topology::two_addresses), kAllSides), kNameOf);
INSTANTIATE_TEST_SUITE_P(TwoAddresses, WithAliasFence,
                         testing::Combine(testing::Values(Topology::two_addresses), kAllSides), kNameOf);

}  // namespace
}  // namespace gpusock::conformance::between_kernels
