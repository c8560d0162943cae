// The formats in which stores send floats: what becomes of numbers, wherever messages are cut, and what owners and
// workers compute with.
#include "param_sync/codec/packed.cuh"
#include "tests/unit/store/stores.cuh"

#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <tuple>

namespace store_test {
namespace {

using param_sync::WireFormat;
using param_sync::codec::BeforePiece;
using param_sync::codec::MessageRows;

constexpr WireFormat kFormats[] = {WireFormat::float32, WireFormat::bfloat16, WireFormat::float16, WireFormat::int8};

/// A number as it is received that is rounded to so many bits, with an exponent of at least `least`. Ties go to the
/// even one, as the machine rounds.
float rounded(float value, int bits, int least) {
  if (value == 0 || !std::isfinite(value)) return value;
  const int exponent = std::max(std::ilogb(value), least) - bits + 1;
  return static_cast<float>(std::ldexp(std::nearbyint(std::ldexp(static_cast<double>(value), -exponent)), exponent));
}

/// What is received of a row.
std::vector<float> received(std::vector<float> row, WireFormat format) {
  if (format == WireFormat::int8) {
    for (std::size_t begin = 0; begin < row.size(); begin += 64) {
      const std::size_t end = std::min(row.size(), begin + 64);
      float largest = 0;
      for (std::size_t i = begin; i < end; ++i) largest = std::max(largest, std::fabs(row[i]));
      const float scale = largest / 127;
      for (std::size_t i = begin; i < end; ++i) row[i] = scale == 0 ? 0 : std::nearbyint(row[i] / scale) * scale;
    }
    return row;
  }
  for (float& value : row) {
    if (format == WireFormat::bfloat16) value = rounded(value, 8, -126);
    if (format == WireFormat::float16) value = rounded(value, 11, -14);
  }
  return row;
}

std::size_t words_of(WireFormat format, std::size_t floats) {
  switch (format) {
    case WireFormat::float32:
      return floats;
    case WireFormat::bfloat16:
    case WireFormat::float16:
      return (floats + 1) / 2;
    case WireFormat::int8:
      return (floats + 63) / 64 + (floats + 3) / 4;
  }
  return 0;
}

/// Packs and unpacks a message. Both are cut into pieces.
struct PackJob {
  WireFormat format = WireFormat::float32;
  MessageRows of;
  const float* values = nullptr;
  const std::uint64_t* packed_pieces = nullptr;  ///< words of each
  const std::uint64_t* unpacked_pieces = nullptr;
  bool keeps = false;  ///< what was packed is what counts for the next piece
  std::uint32_t* words = nullptr;
  float* sent = nullptr;
  float* unpacked = nullptr;
  std::uint64_t* count = nullptr;
};

template <class Format>
__device__ void pack_and_unpack(const PackJob& job) {
  const param_sync::codec::Packed<Format> packed(job.of);
  if (threadIdx.x == 0) *job.count = packed.words();
  BeforePiece before;
  for (std::uint64_t done = 0, piece = 0; done < packed.words(); done += job.packed_pieces[piece++]) {
    packed.pack(
        done, job.packed_pieces[piece], job.words + done, threadIdx.x, blockDim.x, job.keeps ? &before : nullptr,
        [&](std::uint64_t row, std::uint64_t i) { return job.values[row * job.of.floats + i]; },
        [&](std::uint64_t row, std::uint64_t i, float sent) { job.sent[row * job.of.floats + i] = sent; });
    __syncthreads();
    before = packed.after(job.words + done, done, job.packed_pieces[piece], before);
  }
  before = {};
  for (std::uint64_t done = 0, piece = 0; done < packed.words(); done += job.unpacked_pieces[piece++]) {
    const std::uint32_t* const words = job.words + done;
    for (std::uint64_t i = threadIdx.x; i < job.unpacked_pieces[piece]; i += blockDim.x) {
      packed.unpack(words, done, i, before, [&](std::uint64_t row, std::uint64_t k, float value) {
        job.unpacked[row * job.of.floats + k] = value;
      });
    }
    before = packed.after(words, done, job.unpacked_pieces[piece], before);
  }
}

__global__ void pack_and_unpack_as(PackJob job) {
  param_sync::codec::with_format(job.format, [&]<class Format>(const Format&) { pack_and_unpack<Format>(job); });
}

/// Cuts words into pieces.
std::vector<std::uint64_t> cut(std::uint64_t words, std::mt19937& random) {
  std::vector<std::uint64_t> pieces;
  const std::uint64_t most = random() % 3 == 0 ? 3 : 90;
  for (std::uint64_t left = words; left != 0; left -= pieces.back()) {
    pieces.push_back(std::min<std::uint64_t>(left, 1 + random() % most));
  }
  pieces.push_back(0);
  return pieces;
}

template <class T>
gpusock::DeviceBuffer<T> in_device(gpusock::Context& context, const std::vector<T>& values) {
  gpusock::DeviceBuffer<T> buffer(context, std::max<std::size_t>(1, values.size()));
  if (!values.empty()) buffer.copy_in(values);
  return buffer;
}

/// Packs rows, and returns what is unpacked.
std::vector<float> moved(gpusock::Context& context, WireFormat format, const MessageRows& of,
                         const std::vector<float>& values, std::mt19937& random) {
  const std::size_t words = of.rows * words_of(format, of.floats);
  const auto in_values = in_device(context, values);
  const auto packed_pieces = in_device(context, cut(words, random));
  const auto unpacked_pieces = in_device(context, cut(words, random));
  gpusock::DeviceBuffer<std::uint32_t> message(context, words + 1);
  gpusock::DeviceBuffer<float> sent(context, values.size() + 1), unpacked(context, values.size() + 1);
  gpusock::Mapped<std::uint64_t> count(context, 1);
  PackJob job;
  job.format = format;
  job.of = of;
  job.values = in_values.data();
  job.packed_pieces = packed_pieces.data();
  job.unpacked_pieces = unpacked_pieces.data();
  job.keeps = random() % 2 == 0;
  job.words = message.data();
  job.sent = sent.data();
  job.unpacked = unpacked.data();
  job.count = count.data();
  gpusock::Stream stream(context);
  gpusock::launch(context, {.block = 1 + static_cast<unsigned>(random() % 5), .stream = &stream}, pack_and_unpack_as,
                  job);
  stream.synchronize();
  EXPECT_EQ(count[0], words);
  std::vector<float> of_sent(values.size() + 1), found(values.size() + 1);
  sent.copy_out(of_sent);
  unpacked.copy_out(found);
  found.pop_back();
  of_sent.pop_back();
  for (std::size_t i = 0; i < found.size(); ++i) {
    EXPECT_EQ(std::bit_cast<std::uint32_t>(found[i]), std::bit_cast<std::uint32_t>(of_sent[i]))
        << i << ": a sender knows what is received";
  }
  return found;
}

TEST(Formats, MessagesThatAreCutAnywhereHaveTheRoundedNumbers) {
  gpusock::Context context;
  std::mt19937 random(7);
  for (int trial = 0; trial < 300; ++trial) {
    const WireFormat format = kFormats[trial % 4];
    MessageRows of;
    of.rows = trial % 3 == 0 ? 1 : 1 + random() % 9;
    of.floats = trial % 3 == 0 ? 1 + random() % 700 : 1 + random() % 150;
    std::vector<float> values(of.rows * of.floats), expected;
    for (float& value : values) {
      value = std::ldexp(static_cast<float>(static_cast<int>(random() % 4001) - 2000),
                         -static_cast<int>(random() % 30));
    }
    for (std::uint64_t row = 0; row < of.rows; ++row) {
      const auto begin = values.begin() + static_cast<std::ptrdiff_t>(row * of.floats);
      const std::vector<float> of_row = received({begin, begin + static_cast<std::ptrdiff_t>(of.floats)}, format);
      expected.insert(expected.end(), of_row.begin(), of_row.end());
    }
    ASSERT_EQ(moved(context, format, of, values, random), expected)
        << "trial " << trial << ": " << of.rows << " rows of " << of.floats;
  }
}

/// A number that is none must not become one: a training that has diverged would go on.
TEST(Formats, WhatIsNotFiniteIsReceivedAsNotFinite) {
  gpusock::Context context;
  std::mt19937 random(8);
  for (const WireFormat format : kFormats) {
    for (const float bad : {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
                            std::numeric_limits<float>::quiet_NaN()}) {
      std::vector<float> values(100, 1.0f);
      values[70] = bad;
      const std::vector<float> found = moved(context, format, {1, 100}, values, random);
      EXPECT_FALSE(std::isfinite(found[70])) << static_cast<int>(format);
      for (std::size_t i = 0; i < 64; ++i) EXPECT_NEAR(found[i], 1.0f, 1e-6f) << "another block";
    }
    const std::vector<float> found = moved(context, format, {1, 2}, {1e-45f, -0.0f}, random);
    EXPECT_LE(std::fabs(found[0]), 1e-40f);
    EXPECT_EQ(found[1], 0);
  }
  EXPECT_EQ(moved(context, WireFormat::float16, {1, 2}, {65'519, 65'520}, random),
            (std::vector<float>{65'504, std::numeric_limits<float>::infinity()}));
}

TEST(Formats, HaveNames) {
  for (const auto& [name, format] : {std::pair{"fp32", WireFormat::float32}, std::pair{"bf16", WireFormat::bfloat16},
                                     std::pair{"fp16", WireFormat::float16}, std::pair{"int8", WireFormat::int8}}) {
    EXPECT_EQ(param_sync::wire_format_of(name), format);
  }
  EXPECT_NE(error_of<gpusock::Error>([] { param_sync::wire_format_of("int4"); }).find("take fp32, bf16, fp16 or int8"),
            std::string::npos);
}

constexpr std::size_t kLengths[] = {5, 1, 0, 1'001, 40'000};  // the last one is longer than a ring in each format
constexpr int kRoundedSteps = 4;

/// A bulk-synchronous run, one step after the other: owners have float32, and the numbers on the wire are rounded.
std::vector<float> rounded_serial(WireFormat push, WireFormat pull, const Update& update) {
  const Sgd sgd = Sgd::of({update.learning_rate, update.momentum, update.scale, update.nesterov});
  std::vector<float> all;
  for (const std::size_t length : kLengths) {
    std::vector<float> weights(length, 0.5f), velocity(length), pushed(length);
    for (int step = 0; step < kRoundedSteps; ++step) {
      const std::vector<float> read = received(weights, pull);
      std::vector<float> sum(length);
      for (int rank = 0; rank < kRanks; ++rank) {
        for (std::size_t i = 0; i < length; ++i) pushed[i] = gradient_of(rank, step, i, read[i]);
        const std::vector<float> taken = received(pushed, push);
        for (std::size_t i = 0; i < length; ++i) sum[i] = rank == 0 ? taken[i] : sum[i] + taken[i];
      }
      for (std::size_t i = 0; i < length; ++i) sgd.apply(sum[i], {&velocity[i], 1}, weights[i]);
    }
    const std::vector<float> last = received(weights, pull);
    all.insert(all.end(), last.begin(), last.end());
  }
  return all;
}

TEST(Formats, BspIsTheSerialRunWithRoundedNumbersBitForBit) {
  Weights initial;
  for (const std::size_t length : kLengths) initial.emplace_back(length, 0.5f);
  for (const auto& [push, pull] :
       {std::pair{WireFormat::bfloat16, WireFormat::float32}, std::pair{WireFormat::int8, WireFormat::bfloat16},
        std::pair{WireFormat::float16, WireFormat::float16}, std::pair{WireFormat::float32, WireFormat::int8}}) {
    StoreOptions options{.clock = Bsp(), .update = Update::sgd(0.05f, 0.9f, 1.0f / kRanks)};
    options.push_format = push;
    options.pull_format = pull;
    Stores stores(options, initial);
    for (int rank = 0; rank < kRanks; ++rank) stores[rank].train(kRoundedSteps);
    for (int rank = 0; rank < kRanks; ++rank) ASSERT_EQ(stores[rank].wait(), 0) << "rank " << rank;
    const std::vector<float> expected = rounded_serial(push, pull, options.update);
    for (int rank = 0; rank < kRanks; ++rank) EXPECT_EQ(stores[rank].weights_now(), expected) << "rank " << rank;
  }
}

/// Each rank reads while others push, and a block of an answer may be cut when weights change: what is read stays
/// within what the weights were.
TEST(Formats, AnAnswerKeepsTheScaleOfABlockThatIsCut) {
  StoreOptions options{.clock = Async()};
  options.pull_format = WireFormat::int8;
  constexpr int kPushes = 30;
  const Weights initial{std::vector<float>(40'000, 1.0f)};
  Stores stores(options, initial);
  for (int rank = 0; rank < kRanks; ++rank) {
    stores[rank].job.adds_ones = true;
    stores[rank].train(kPushes);
  }
  for (int turn = 0; turn < 2; ++turn) {
    for (int rank = 0; rank < kRanks; ++rank) {
      for (const float weight : stores[rank].weights_now()) {
        ASSERT_GT(weight, 0.99f);
        ASSERT_LT(weight, kRanks * kPushes + 1.01f);
      }
    }
  }
  stores.meet();
  for (const float weight : stores[0].weights_now()) ASSERT_NEAR(weight, kRanks * kPushes + 1, 0.01f);
}

}  // namespace
}  // namespace store_test
