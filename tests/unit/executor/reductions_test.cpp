// Tensors of all types, and all reductions: elements as numbers, and what operations of a group make of them.
#include "trial/local_ranks.hpp"
#include "param_sync/reduction/element.hpp"
#include "tests/support/error_of.hpp"
#include "tests/unit/executor/groups.hpp"
#include "tests/unit/executor/schedules.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <string>
#include <vector>

namespace reductions_test {
namespace {

using gpusock::test::error_of;
using group_test::Groups;
using group_test::kRanks;
using param_sync::DataType;
using param_sync::Group;
using param_sync::GroupOptions;
using param_sync::ReduceOp;
using param_sync::Tensor;
using param_sync::TensorPart;
using param_sync::reduction::Bfloat16;
using param_sync::reduction::bits_as;
using param_sync::reduction::Float16;
using param_sync::reduction::Max;
using param_sync::reduction::Min;

/// A format of IEEE 754, as the standard describes it.
struct Format {
  int mantissa_bits;
  int least_exponent;
  int bias;
  int largest_exponent;
};
constexpr Format kFloat16{10, -14, 15, 15}, kBfloat16{7, -126, 127, 127};

/// The number with these bits; the sign is the bit above them.
double number_of(const Format& format, unsigned bits) {
  const unsigned mantissa = bits & ((1u << format.mantissa_bits) - 1), exponent = bits >> format.mantissa_bits;
  const int unit = -format.mantissa_bits;
  if (exponent == 0) return std::ldexp(mantissa, format.least_exponent + unit);
  return std::ldexp((1u << format.mantissa_bits) + mantissa, static_cast<int>(exponent) - format.bias + unit);
}

/// The nearest number of a format, ties to even.
double rounded_to(const Format& format, double value) {
  if (value == 0 || std::isinf(value)) return value;
  const int exponent = std::max(std::ilogb(value), format.least_exponent);
  const double unit = std::ldexp(1.0, exponent - format.mantissa_bits);
  const double rounded = std::nearbyint(value / unit) * unit;
  if (std::abs(rounded) < std::ldexp(1.0, format.largest_exponent + 1)) return rounded;
  return std::copysign(std::numeric_limits<double>::infinity(), value);
}

template <class Element>
void expect_format(const Format& format) {
  const unsigned infinity = static_cast<unsigned>(format.largest_exponent + format.bias + 1) << format.mantissa_bits;
  for (unsigned bits = 0; bits < 0x8000; ++bits) {
    const float number = Element::number(static_cast<std::uint16_t>(bits));
    const float negative = Element::number(static_cast<std::uint16_t>(bits | 0x8000));
    if (bits > infinity) {
      ASSERT_TRUE(std::isnan(number) && std::isnan(negative)) << bits;
      ASSERT_TRUE(std::isnan(Element::number(Element::bits(number)))) << bits;
      continue;
    }
    const double expected = bits == infinity ? std::numeric_limits<double>::infinity() : number_of(format, bits);
    ASSERT_EQ(number, expected) << bits;
    ASSERT_EQ(negative, -expected) << bits;
    ASSERT_EQ(Element::bits(number), bits);
    ASSERT_EQ(Element::bits(negative), bits | 0x8000);
  }
  for (std::uint64_t wide = 0; wide < std::uint64_t{1} << 32; wide += 16'381) {  // a prime: all low bits in turn
    const float value = bits_as<float>(static_cast<std::uint32_t>(wide));
    if (std::isnan(value)) continue;
    ASSERT_EQ(Element::number(Element::bits(value)), rounded_to(format, value)) << value;
  }
}

TEST(Elements, OfSixteenBitsAreTheStandardsNumbers) {
  expect_format<Float16>(kFloat16);
  expect_format<Bfloat16>(kBfloat16);
}

TEST(Elements, TiesAreRoundedToEven) {
  EXPECT_EQ(Float16::bits(65519.0f), 0x7bff);  // the largest
  EXPECT_EQ(Float16::bits(65520.0f), 0x7c00);  // infinity
  EXPECT_EQ(Float16::bits(0x1p-25f), 0);       // half of the least subnormal
  EXPECT_EQ(Float16::bits(0x3p-25f), 2);
  EXPECT_EQ(Float16::bits(1 + 0x1p-11f), 0x3c00);
  EXPECT_EQ(Float16::bits(1 + 0x3p-11f), 0x3c02);
  EXPECT_EQ(Bfloat16::bits(1 + 0x1p-8f), 0x3f80);
  EXPECT_EQ(Bfloat16::bits(1 + 0x3p-8f), 0x3f82);
}

TEST(Elements, TheLessAndTheLargerDoNotDependOnTheOrder) {
  const float values[] = {0.0f,           -0.0f,          1.0f, -1.0f, std::numeric_limits<float>::infinity(),
                          std::nanf("1"), -std::nanf("2")};
  for (const float a : values) {
    for (const float b : values) {
      EXPECT_EQ(bits_as<std::uint32_t>(Min::of(a, b)), bits_as<std::uint32_t>(Min::of(b, a))) << a << ' ' << b;
      EXPECT_EQ(bits_as<std::uint32_t>(Max::of(a, b)), bits_as<std::uint32_t>(Max::of(b, a))) << a << ' ' << b;
      EXPECT_EQ(std::isnan(Min::of(a, b)), std::isnan(a) || std::isnan(b));
      EXPECT_EQ(std::isnan(Max::of(a, b)), std::isnan(a) || std::isnan(b));
    }
  }
  EXPECT_TRUE(std::signbit(Min::of(0.0f, -0.0f)));
  EXPECT_FALSE(std::signbit(Max::of(-0.0f, 0.0f)));
}

/// The whole number that a rank has at an index: -3 to 3, and never 0, so that all results are exact in all types.
int value_of(int rank, std::size_t i) {
  const int value = static_cast<int>((i * 5 + static_cast<std::size_t>(rank) * 3) % 6);
  return value < 3 ? value - 3 : value - 2;
}

double expected_of(ReduceOp op, std::size_t i) {
  double sum = 0, product = 1;
  int least = value_of(0, i), most = least;
  for (int rank = 0; rank < kRanks; ++rank) {
    const int value = value_of(rank, i);
    sum += value;
    product *= value;
    least = std::min(least, value);
    most = std::max(most, value);
  }
  switch (op) {
    case ReduceOp::sum:
      return sum;
    case ReduceOp::average:
      return sum / kRanks;
    case ReduceOp::product:
      return product;
    case ReduceOp::min:
      return least;
    case ReduceOp::max:
      return most;
  }
  return 0;
}

void put(DataType type, void* at, std::size_t i, double value) {
  const auto store = [&](auto element) {
    std::memcpy(static_cast<char*>(at) + i * sizeof element, &element, sizeof element);
  };
  switch (type) {
    case DataType::float32:
      return store(static_cast<float>(value));
    case DataType::int32:
      return store(static_cast<std::int32_t>(value));
    case DataType::float16:
      return store(Float16::bits(static_cast<float>(value)));
    case DataType::bfloat16:
      return store(Bfloat16::bits(static_cast<float>(value)));
  }
}

double get(DataType type, const void* at, std::size_t i) {
  const auto load = [&](auto element) {
    std::memcpy(&element, static_cast<const char*>(at) + i * sizeof element, sizeof element);
    return element;
  };
  switch (type) {
    case DataType::float32:
      return static_cast<double>(load(float{}));
    case DataType::int32:
      return load(std::int32_t{});
    case DataType::float16:
      return static_cast<double>(Float16::number(load(std::uint16_t{})));
    case DataType::bfloat16:
      return static_cast<double>(Bfloat16::number(load(std::uint16_t{})));
  }
  return 0;
}

/// How far an average may be from the exact one: 1 / ranks and three sums are rounded.
double tolerance_of(DataType type, ReduceOp op) {
  if (op != ReduceOp::average) return 0;
  if (type == DataType::float32) return 1e-6;
  return type == DataType::float16 ? 3e-3 : 2.4e-2;
}

/// All ranks' tensors of one type.
class Tensors {
 public:
  /// `ranks`: what has a buffer tensor(rank) for each rank.
  template <class Ranks>
  Tensors(Ranks& ranks, DataType type, std::size_t count) : type_(type), count_(count) {
    for (int rank = 0; rank < kRanks; ++rank) {
      buffers_.push_back(&ranks.tensor(rank));
      std::vector<float> words(buffers_.back()->size());
      for (std::size_t i = 0; i < count; ++i) put(type, words.data(), i, value_of(rank, i));
      buffers_.back()->copy_in(words);
    }
  }

  Tensor of(int rank) const { return {buffers_[static_cast<std::size_t>(rank)]->data(), count_, type_}; }

  std::vector<float> words(int rank) const {
    std::vector<float> all(buffers_[static_cast<std::size_t>(rank)]->size());
    buffers_[static_cast<std::size_t>(rank)]->copy_out(all);
    return all;
  }

  /// Elements [part.begin, part.end) of a rank's tensor.
  std::vector<double> numbers(int rank, const TensorPart& part) const {
    const std::vector<float> all = words(rank);
    std::vector<double> numbers;
    for (std::size_t i = part.begin; i < part.end; ++i) numbers.push_back(get(type_, all.data(), i));
    return numbers;
  }

  /// Expects the reduction of all tensors on all ranks, the same bits on each.
  void expect_reduced(ReduceOp op) const {
    const std::vector<double> numbers = this->numbers(0, {0, count_});
    for (std::size_t i = 0; i < count_; ++i) {
      ASSERT_NEAR(numbers[i], expected_of(op, i), tolerance_of(type_, op)) << i;
    }
    const std::vector<float> first = words(0);
    for (int rank = 1; rank < kRanks; ++rank) {
      const std::vector<float> other = words(rank);
      EXPECT_EQ(std::memcmp(other.data(), first.data(), first.size() * sizeof(float)), 0) << "rank " << rank;
    }
  }

 private:
  DataType type_;
  std::size_t count_;
  std::vector<gpusock::DeviceBuffer<float>*> buffers_;
};

/// Starts an operation on all ranks, and waits for it.
void run(Groups& groups, const Tensors& tensors, const std::function<Group::Operation(Group&, const Tensor&)>& start) {
  std::vector<Group::Operation> operations;
  for (int rank = 0; rank < kRanks; ++rank) operations.push_back(start(groups.group(rank), tensors.of(rank)));
  groups.wait(operations);
}

constexpr DataType kTypes[] = {DataType::float32, DataType::float16, DataType::bfloat16, DataType::int32};
constexpr ReduceOp kOps[] = {ReduceOp::sum, ReduceOp::average, ReduceOp::product, ReduceOp::min, ReduceOp::max};

template <class Call>
void for_each_reduction(Call call) {
  for (const DataType type : kTypes) {
    for (const ReduceOp op : kOps) {
      if (type == DataType::int32 && op == ReduceOp::average) continue;
      SCOPED_TRACE(std::string(param_sync::name_of(type)) + ", operation " + std::to_string(static_cast<int>(op)));
      call(type, op);
    }
  }
}

void expect_all_reduced(Groups& groups, std::size_t count) {
  for_each_reduction([&](DataType type, ReduceOp op) {
    const Tensors tensors(groups, type, count);
    run(groups, tensors, [&](Group& group, const Tensor& tensor) { return group.all_reduce(tensor, op); });
    tensors.expect_reduced(op);
  });
}

TEST(Reductions, AllRanksGetTheReductionOfAllTensors) {
  for (const std::size_t count : {std::size_t{2}, std::size_t{1'002}, std::size_t{40'000}}) {  // by both schemes
    Groups groups(count);
    expect_all_reduced(groups, count);
  }
}

TEST(Reductions, InTheOrderOfRanks) {
  GroupOptions options;
  options.deterministic = true;
  Groups groups(1'002, options);
  expect_all_reduced(groups, 1'002);
}

TEST(Reductions, OfDataThatWaitsInAReorderBuffer) {
  constexpr std::size_t kCount = 1'002;
  param_sync::executor::Settings settings;
  settings.execution.rank_order = true;
  settings.unit_bytes = 100;
  param_sync::executor::LocalRanks ranks({executor_test::make("ps:even", kRanks)}, gpusock::LinkKind::p2p, settings,
                                         kCount);
  for_each_reduction([&](DataType type, ReduceOp op) {
    const Tensors tensors(ranks, type, kCount);
    std::vector<std::uint64_t> runs;
    for (int rank = 0; rank < kRanks; ++rank) {
      const std::size_t words = kCount * param_sync::size_of(type) / sizeof(float);
      runs.push_back(
          ranks.executor(rank).start_reduction(0, tensors.of(rank).data, words, executor_test::kTimeoutNs, {type, op}));
    }
    for (int rank = 0; rank < kRanks; ++rank) ranks.executor(rank).wait(runs[static_cast<std::size_t>(rank)]);
    tensors.expect_reduced(op);
  });
}

TEST(Reductions, EachRankGetsItsPart) {
  constexpr std::size_t kCount = 1'006;  // 503 words of two elements: parts are not equal
  Groups groups(kCount);
  for_each_reduction([&](DataType type, ReduceOp op) {
    const Tensors tensors(groups, type, kCount);
    run(groups, tensors, [&](Group& group, const Tensor& tensor) { return group.reduce_scatter(tensor, op); });
    std::size_t end = 0;
    for (int rank = 0; rank < kRanks; ++rank) {
      const TensorPart part = groups.group(rank).part(rank, kCount, type);
      EXPECT_EQ(part.begin, end);
      end = part.end;
      const std::vector<double> numbers = tensors.numbers(rank, part);
      for (std::size_t i = part.begin; i < part.end; ++i) {
        ASSERT_NEAR(numbers[i - part.begin], expected_of(op, i), tolerance_of(type, op)) << i;
      }
    }
    EXPECT_EQ(end, kCount);
  });
}

TEST(Reductions, CopiesTakeAllTypes) {
  constexpr std::size_t kCount = 1'006;
  Groups groups(kCount);
  for (const DataType type : kTypes) {
    const Tensors gathered(groups, type, kCount);
    run(groups, gathered, [](Group& group, const Tensor& tensor) { return group.all_gather(tensor); });
    for (int owner = 0; owner < kRanks; ++owner) {
      const TensorPart part = groups.group(0).part(owner, kCount, type);
      const std::vector<double> numbers = gathered.numbers((owner + 1) % kRanks, part);
      for (std::size_t i = part.begin; i < part.end; ++i) ASSERT_EQ(numbers[i - part.begin], value_of(owner, i)) << i;
    }
    const Tensors same(groups, type, kCount);
    run(groups, same, [](Group& group, const Tensor& tensor) { return group.broadcast(tensor, 1); });
    const std::vector<double> numbers = same.numbers(2, {0, kCount});
    for (std::size_t i = 0; i < kCount; ++i) ASSERT_EQ(numbers[i], value_of(1, i)) << i;
  }
}

TEST(Reductions, SumsOfInt32Wrap) {
  Groups groups(1);
  const std::int32_t most = std::numeric_limits<std::int32_t>::max();
  for (int rank = 0; rank < kRanks; ++rank) groups.tensor(rank).copy_in(std::vector<float>{bits_as<float>(most)});
  std::vector<Group::Operation> sums;
  for (int rank = 0; rank < kRanks; ++rank) {
    sums.push_back(groups.group(rank).all_reduce({reinterpret_cast<std::int32_t*>(groups.tensor(rank).data()), 1}));
  }
  groups.wait(sums);
  std::vector<float> word(1);
  groups.tensor(0).copy_out(word);
  EXPECT_EQ(bits_as<std::int32_t>(word[0]), static_cast<std::int32_t>(std::int64_t{most} * kRanks));
}

/// The error of an invalid operation of rank 0, and that of a valid one of rank 1.
struct Refused {
  std::string of_0;
  std::string of_1;
};

template <class Start>
Refused refused(Start start) {
  Groups groups(8);
  const auto other = groups.group(1).all_reduce({groups.tensor(1).data(), 8});
  Refused errors;
  errors.of_0 = error_of<gpusock::Error>([&] { start(groups.group(0), groups.tensor(0).data()); });
  errors.of_1 = error_of<gpusock::Error>([&] { groups.group(1).wait(other); });
  return errors;
}

void expect_refused(const Refused& errors, const std::string& why) {
  EXPECT_NE(errors.of_0.find(why), std::string::npos) << errors.of_0;
  EXPECT_NE(errors.of_1.find("was given an invalid argument"), std::string::npos) << errors.of_1;
}

TEST(Reductions, WhatCannotBeReducedIsRefusedOnAllRanks) {
  expect_refused(refused([](Group& group, float* data) {
                   group.all_reduce({data, 5, DataType::bfloat16});
                 }),
                 "5 elements of bfloat16");
  expect_refused(refused([](Group& group, float* data) {
                   group.all_reduce({data, 8, DataType::int32}, ReduceOp::average);
                 }),
                 "an average of int32");
  expect_refused(refused([](Group& group, float* data) {
                   group.all_reduce({data, 8, DataType{4}});
                 }),
                 "does not exist");
  expect_refused(refused([](Group& group, float* data) {
                   group.all_reduce({data, 8}, ReduceOp{5});
                 }),
                 "does not exist");
  expect_refused(refused([](Group& group, float* data) {
                   group.all_reduce({reinterpret_cast<char*>(data) + 2, 2, DataType::float16});
                 }),
                 "no multiple of 4");
}

TEST(Reductions, AnOddNumberOfHalvesHasNoParts) {
  Groups groups(1);
  EXPECT_THROW(groups.group(0).part(1, 5, DataType::float16), gpusock::Error);
}

TEST(Reductions, RanksThatReduceDifferentlyFail) {
  const auto sum = [](Group& group, float* data) { return group.all_reduce({data, 8}); };
  const auto least = [](Group& group, float* data) { return group.all_reduce({data, 8}, ReduceOp::min); };
  const auto whole = [](Group& group, float* data) { return group.all_reduce({data, 8, DataType::int32}); };
  for (const auto& other : std::vector<std::function<Group::Operation(Group&, float*)>>{least, whole}) {
    Groups groups(8);
    std::vector<Group::Operation> operations;
    for (int rank = 0; rank < kRanks; ++rank) {
      operations.push_back((rank == 1 ? other : sum)(groups.group(rank), groups.tensor(rank).data()));
    }
    std::string errors;
    for (int rank = 0; rank < kRanks; ++rank) {
      const std::string error = error_of<gpusock::Error>(
          [&] { groups.group(rank).wait(operations[static_cast<std::size_t>(rank)]); });
      EXPECT_NE(error, "") << rank;
      errors += error;
    }
    EXPECT_NE(errors.find("on tensors of one type"), std::string::npos) << errors;
  }
}

}  // namespace
}  // namespace reductions_test
