// The public API: what each operation leaves in the tensors.
#include "param_sync/group/connected_group.hpp"
#include "tests/support/error_of.hpp"
#include "tests/support/patience.hpp"
#include "tests/unit/executor/groups.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <deque>
#include <future>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace {

using gpusock::test::error_of;
using group_test::Groups;
using group_test::kRanks;
using param_sync::Group;
using param_sync::GroupOptions;
using param_sync::ReduceOp;
using param_sync::TensorPart;
using param_sync::UnreachableRank;

TEST(GroupOperations, LeaveInTheTensorsWhatTheyPromise) {
  for (const std::size_t floats : {std::size_t{2}, std::size_t{100}, std::size_t{10'000}}) {
    Groups groups(floats);
    for (const auto& result : groups.run([&](Group&group, float*data) { return group.all_reduce({data, floats}); })) {
      for (std::size_t i = 0; i < floats; ++i) ASSERT_EQ(result[i], Groups::sum(i)) << i;
    }
    auto results = groups.run([&](Group& group, float* data) { return group.reduce_scatter({data, floats}); });
    for (int rank = 0; rank < kRanks; ++rank) {
      const TensorPart part = groups.group(rank).part(rank, floats);
      for (std::size_t i = part.begin; i < part.end; ++i) {
        ASSERT_EQ(results[static_cast<std::size_t>(rank)][i], Groups::sum(i)) << i;
      }
    }
    for (const auto& result : groups.run([&](Group&group, float*data) { return group.all_gather({data, floats}); })) {
      for (int rank = 0; rank < kRanks; ++rank) {
        const TensorPart part = groups.group(rank).part(rank, floats);
        for (std::size_t i = part.begin; i < part.end; ++i) ASSERT_EQ(result[i], Groups::value(rank, i)) << i;
      }
    }
    for (int root = 0; root < kRanks; ++root) {
      results = groups.run([&](Group& group, float* data) { return group.broadcast({data, floats}, root); });
      for (const auto& result : results) {
        for (std::size_t i = 0; i < floats; ++i) ASSERT_EQ(result[i], Groups::value(root, i)) << i;
      }
    }
  }
}

TEST(GroupOperations, ABarrierEndsWhenAllHaveStartedIt) {
  Groups groups(1);
  const auto first = groups.group(0).barrier(), second = groups.group(1).barrier();
  EXPECT_FALSE(groups.group(0).done(first));
  EXPECT_FALSE(groups.group(1).done(second));
  groups.group(2).wait(groups.group(2).barrier());
  groups.group(0).wait(first);
  groups.group(1).wait(second);
}

TEST(GroupOperations, ARankThatEndsItsGroupFirstWaitsForItsOperations) {
  constexpr std::size_t kFloats = 300'000;  // more than a ring holds
  Groups groups(kFloats);
  groups.tensor(0).copy_in(std::vector<float>(kFloats, 7));
  groups.group(0).broadcast({groups.tensor(0).data(), kFloats}, 0);
  const auto ending = std::async(std::launch::async, [&] { groups.end(0); });
  EXPECT_EQ(ending.wait_for(std::chrono::milliseconds(100)), std::future_status::timeout)
      << "the others have not begun";
  const auto broadcast = [&](int rank) {
    return groups.group(rank).broadcast({groups.tensor(rank).data(), kFloats}, 0);
  };
  const Group::Operation second = broadcast(1), third = broadcast(2);  // each forwards what it gets
  groups.group(1).wait(second);
  groups.group(2).wait(third);
  for (const int rank : {1, 2}) {
    std::vector<float> result(kFloats);
    groups.tensor(rank).copy_out(result);
    EXPECT_EQ(result, std::vector<float>(kFloats, 7));
  }
}

TEST(GroupOperations, EachErrorAfterAnInvalidArgumentSaysThatThereWasOne) {
  for (int i = 0; i < 20; ++i) {
    Groups groups(1);
    std::vector<std::string> errors(kRanks);
    {
      std::vector<std::jthread> ranks;
      for (int rank = 0; rank < kRanks; ++rank) {
        ranks.emplace_back([&, rank] {
          EXPECT_THROW(groups.group(rank).broadcast({}, kRanks), gpusock::Error);
          errors[static_cast<std::size_t>(rank)] = error_of<gpusock::Error>(
              [&] { groups.group(rank).wait(groups.group(rank).barrier()); });
        });
      }
    }
    for (const std::string& error : errors) EXPECT_NE(error.find("invalid argument"), std::string::npos) << error;
  }
}

/// What `call` does for each rank, side by side.
template <class Call>
void on_each_rank(Call call) {
  std::vector<std::jthread> ranks;
  ranks.reserve(kRanks);
  for (int rank = 0; rank < kRanks; ++rank) ranks.emplace_back([&call, rank] { call(rank); });
}

/// True if making memory waits for kernels, and those of one rank for another rank of this process.
bool ranks_share_a_gpu() {
#if defined(GPUSOCK_DEVICE_CUDA)
  return true;
#else
  const char* const shape = std::getenv("GPUSOCK_CPU_SHAPE");
  return shape != nullptr && shape != std::string("cpu");
#endif
}

TEST(GroupOperations, RanksOfOneColorAreAGroupOfTheirOwn) {
  if (ranks_share_a_gpu()) GTEST_SKIP() << "ranks that share a GPU in one process cannot split";
  constexpr std::size_t kFloats = 1000;
  Groups groups(kFloats);
  on_each_rank([&](int rank) {
    Group half = groups.group(rank).split(rank == 1 ? 9 : 0);  // ranks 0 and 2, and rank 1
    EXPECT_EQ(half.nodes(), rank == 1 ? 1 : 2);
    EXPECT_EQ(half.rank(), rank == 2 ? 1 : 0);
    Group pair = groups.group(rank).split(rank == 0 ? 1 : 2);  // beside it
    EXPECT_EQ(pair.nodes(), rank == 0 ? 1 : 2);
    groups.tensor(rank).copy_in(std::vector<float>(kFloats, static_cast<float>(1 << rank)));
    half.wait(half.all_reduce({groups.tensor(rank).data(), kFloats}));
    std::vector<float> sum(kFloats);
    groups.tensor(rank).copy_out(sum);
    EXPECT_EQ(sum, std::vector<float>(kFloats, rank == 1 ? 2 : 1 + 4));
    half.wait(half.barrier());
  });
  for (const auto& result : groups.run([](Group&group, float*data) { return group.all_reduce({data, kFloats}); })) {
    EXPECT_EQ(result[1], Groups::sum(1)) << "the group of all goes on";
  }
}

TEST(GroupOperations, AColorThatThereIsNotEndsAllRanks) {
  if (ranks_share_a_gpu()) GTEST_SKIP() << "ranks that share a GPU in one process cannot split";
  Groups groups(1);
  std::vector<std::string> errors(kRanks);
  on_each_rank([&](int rank) {
    errors[static_cast<std::size_t>(rank)] = error_of<gpusock::Error>(
        [&] { groups.group(rank).split(rank == 1 ? -1 : 0); });
  });
  EXPECT_NE(errors[1].find("the color -1, but colors are 0 to 16777215"), std::string::npos) << errors[1];
  for (const int rank : {0, 2}) {
    const std::string& error = errors[static_cast<std::size_t>(rank)];
    EXPECT_NE(error.find("rank 1"), std::string::npos) << error;
    EXPECT_NE(error.find("invalid argument"), std::string::npos) << error;
  }
}

std::string error_of_group(const GroupOptions& options, int rank = 0, int nodes = kRanks) {
  gpusock::Context context;
  return error_of<gpusock::Error>([&] { Group group(context, rank, nodes, options); });
}

TEST(GroupOperations, DeterministicSumsAreInRankOrderOrRefused) {
  GroupOptions options;
  options.deterministic = true;
  Groups groups(5, options);
  const auto results = groups.run([](Group& group, float* data) { return group.all_reduce({data, 5}); });
  EXPECT_EQ(results[2][4], Groups::sum(4));
  options.all_reduce = "ring";
  EXPECT_NE(error_of_group(options).find("ring does not add in the order of ranks for 3 ranks: take \"chain\""),
            std::string::npos);
  options.all_reduce = "chain";
  EXPECT_EQ(error_of_group(options), "");
}

TEST(GroupOperations, AllRanksMeasureAndChooseTheSame) {
  Groups groups(100);
  std::vector<std::size_t> chosen(kRanks);
  {
    std::vector<std::jthread> ranks;
    for (int rank = 0; rank < kRanks; ++rank) {
      ranks.emplace_back([&, rank] { chosen[static_cast<std::size_t>(rank)] = groups.group(rank).measure(); });
    }
  }
  EXPECT_EQ(chosen, std::vector<std::size_t>(kRanks, chosen[0]));
  for (const auto& result : groups.run([](Group&group, float*data) { return group.all_reduce({data, 100}); })) {
    EXPECT_EQ(result[99], Groups::sum(99));
  }
}

// Two schemes of few ranks may send alike, so that only measure() tells their options apart.
TEST(GroupOperations, RanksWithOtherChoicesDoNotConnect) {
  const auto of = [](const char* scheme, bool deterministic) {
    GroupOptions options;
    options.all_reduce = scheme;
    options.deterministic = deterministic;
    return options;
  };
  for (const GroupOptions& other : {of("ring", false), of("butterfly", false), of("mesh", false), of("chain", false),
                                    of("rhd", false), of("auto", true)}) {
    gpusock::Context contexts[2];
    Group one(contexts[0], 0, 2), two(contexts[1], 1, 2, other);
    const std::vector<gpusock::Endpoint> addresses{one.listen(gpusock::Endpoint::parse("127.0.0.1:0")),
                                                   two.listen(gpusock::Endpoint::parse("127.0.0.1:0"))};
    std::string errors[2];
    {
      const std::jthread connecting([&] { errors[1] = error_of([&] { two.connect(addresses); }); });
      errors[0] = error_of([&] { one.connect(addresses); });
    }
    EXPECT_NE((errors[0] + errors[1]).find("was started with other settings: schedules"), std::string::npos)
        << other.all_reduce << errors[0] << errors[1];
  }
}

std::string error_of_connecting(Group& group, const std::vector<gpusock::Endpoint>& addresses) {
  return error_of<gpusock::Error>([&] { group.connect(addresses); });
}

// A rank that is not there keeps all above it from going on: none of them is to blame another one that waits.
TEST(GroupOperations, RanksAboveOneThatIsNotThereNameItAndNotEachOther) {
  GroupOptions options;
  options.connect_timeout_ns = 30'000'000;
  for (int turn = 0; turn < 8; ++turn) {
    gpusock::Context contexts[3];
    std::vector<gpusock::Endpoint> addresses;
    std::deque<Group> groups;
    for (int rank = 0; rank < 3; ++rank) {
      groups.emplace_back(contexts[rank], rank, 3, options);
      addresses.push_back(groups.back().listen(gpusock::Endpoint::parse("127.0.0.1:0")));
    }
    groups.pop_front();
    std::string errors[2];
    {
      const std::jthread connecting([&] { errors[1] = error_of_connecting(groups[1], addresses); });
      errors[0] = error_of_connecting(groups[0], addresses);
    }
    for (const std::string& error : errors) EXPECT_NE(error.find("to rank 0"), std::string::npos) << error;
  }
}

// A rank that does not answer may be there, and out of reach. One that does not listen is not.
TEST(GroupOperations, ARankThatDoesNotAnswerIsUnreachable) {
  GroupOptions options;
  options.connect_timeout_ns = 30'000'000;
  for (const bool listens : {true, false}) {
    gpusock::Context contexts[2];
    Group one(contexts[1], 1, 2, options);
    std::optional<Group> other(std::in_place, contexts[0], 0, 2, options);
    const std::vector<gpusock::Endpoint> addresses{other->listen(gpusock::Endpoint::parse("127.0.0.1:0")),
                                                   one.listen(gpusock::Endpoint::parse("127.0.0.1:0"))};
    if (!listens) other.reset();
    int unreachable = -1;
    try {
      one.connect(addresses);
    } catch (const UnreachableRank& error) {
      unreachable = error.rank;
      EXPECT_EQ(error.code().value(), ETIMEDOUT);
    } catch (const gpusock::Error& error) {
      EXPECT_EQ(error.code().value(), ECONNREFUSED);
    }
    EXPECT_EQ(unreachable, listens ? 0 : -1);
  }
}

TEST(GroupOperations, OtherSettingsAreToldBeforeTheConnectTimeout) {
  GroupOptions options, others;
  options.connect_timeout_ns = others.connect_timeout_ns = 2 * gpusock::kPatienceNs;
  others.ring_bytes = 4096;
  gpusock::Context contexts[3];
  Group first(contexts[0], 0, 3, options), other(contexts[1], 1, 3, others), absent(contexts[2], 2, 3, options);
  std::vector<gpusock::Endpoint> addresses;
  for (Group* const group : {&first, &other, &absent})
    addresses.push_back(group->listen(gpusock::Endpoint::parse("127.0.0.1:0")));
  const std::uint64_t start_ns = gpusock::clock_ns();
  std::string errors[2];
  {
    const std::jthread connecting([&] { errors[1] = error_of_connecting(other, addresses); });
    errors[0] = error_of_connecting(first, addresses);
  }
  EXPECT_NE(errors[0].find("rank 1 "), std::string::npos) << errors[0];
  EXPECT_NE(errors[1].find("rank 0 "), std::string::npos) << errors[1];
  for (const std::string& error : errors)
    EXPECT_NE(error.find("other settings: ring size"), std::string::npos) << error;
  EXPECT_LT(gpusock::clock_ns() - start_ns, gpusock::kPatienceNs);
}

// Of ranks that are to measure one has a choice no more than the others; they learn so at once.
TEST(GroupOperations, ARankThatCannotMeasureEndsTheOthersOperations) {
  GroupOptions options;
  options.deterministic = true;
  Groups groups(100, options);
  const auto sum = groups.group(0).all_reduce({groups.tensor(0).data(), 100}, ReduceOp::sum, gpusock::kPatienceNs);
  EXPECT_NE(error_of<gpusock::Error>([&] { groups.group(1).measure(); }).find("has no choice"), std::string::npos);
  const std::uint64_t start_ns = gpusock::clock_ns();
  const std::string error = error_of<gpusock::Error>([&] { groups.group(0).wait(sum); });
  EXPECT_NE(error.find("was given an invalid argument"), std::string::npos) << error;
  EXPECT_LT(gpusock::clock_ns() - start_ns, gpusock::kPatienceNs);
}

TEST(GroupOperations, TheBoundaryBetweenSchemesLosesLeast) {
  const std::vector<std::size_t> sizes{1, 4, 16, 64};
  const auto boundary = [&](std::vector<float> small_s, std::vector<float> large_s) {
    return param_sync::boundary_of(sizes, small_s, large_s);
  };
  EXPECT_EQ(boundary({1, 1, 8, 8}, {2, 2, 4, 4}), 10);  // between 4 and 16
  EXPECT_EQ(boundary({2, 2, 2, 2}, {1, 1, 1, 1}), 0);
  EXPECT_EQ(boundary({1, 1, 1, 1}, {2, 2, 2, 2}), 64);
  EXPECT_EQ(boundary({1, 1.1f, 1, 8}, {2, 1, 2, 4}), 40);  // one bad time does not decide
}

// Schemes send different numbers of bytes.
TEST(GroupOperations, RanksOfOneHostTakeTheSchemeOfSmallSumsForLargerOnes) {
  const auto bytes_of = [](const char* scheme, std::size_t floats) {
    GroupOptions options;
    options.all_reduce = scheme;
    Groups groups(floats, options);
    const auto sent = [&] {
      std::uint64_t bytes = 0;
      for (const auto& link : groups.context(0).stats().traffic) bytes += link.tx_bytes;
      return bytes;
    };
    const std::uint64_t before = sent();
    groups.run([&](Group& group, float* data) { return group.all_reduce({data, floats}); });
    return sent() - before;
  };
  constexpr std::size_t kMost = 64 << 10;
  EXPECT_EQ(bytes_of("auto", kMost), bytes_of("butterfly", kMost));
  EXPECT_EQ(bytes_of("auto", kMost + 1), bytes_of("mesh", kMost + 1));
  EXPECT_NE(bytes_of("butterfly", kMost), bytes_of("mesh", kMost));
}

TEST(GroupOperations, LargeSumsOfFewRanksTakeTheSchemeOfFewSteps) {
  const auto scheme_of = [](int ranks, bool is_small) {
    return param_sync::all_reduce_scheme({}, is_small, param_sync::large_scheme(ranks));
  };
  EXPECT_EQ(scheme_of(6, false), "mesh");
  EXPECT_EQ(scheme_of(7, false), "ring");
  EXPECT_EQ(scheme_of(6, true), "butterfly");
  EXPECT_EQ(scheme_of(7, true), "butterfly");
}

TEST(GroupOperations, RanksOfOneHostListenAtTheSameAddress) {
  const auto most_of = [](const std::vector<const char*>& texts) {
    std::vector<gpusock::Endpoint> addresses;
    for (const char* const text : texts) addresses.push_back(gpusock::Endpoint::parse(text));
    return param_sync::small_floats_of(addresses);
  };
  const std::size_t same = most_of({"10.0.0.1:1", "10.0.0.1:2", "10.0.0.1:3,link=tcp"});
  EXPECT_EQ(same, most_of({"[::1]:1"}));
  const std::size_t other = most_of({"10.0.0.1:1", "10.0.0.1:2", "10.0.0.2:1"});
  EXPECT_LT(other, same);
  EXPECT_EQ(other, most_of({"[fe80::1%1]:1", "[fe80::1%2]:1"}));
  EXPECT_EQ(other, most_of({"10.0.0.1:1", "[::1]:1"}));
}

TEST(GroupOperations, MisuseIsRefused) {
  GroupOptions options;
  options.all_reduce = "sing";
  EXPECT_NE(error_of_group(options).find("there is no scheme \"sing\""), std::string::npos);
  options.all_reduce = "ring";
  EXPECT_NE(error_of<gpusock::Error>([&] {
              gpusock::Context context;
              Group alone(context, 0, 1, options);
              alone.connect({alone.listen(gpusock::Endpoint::parse("127.0.0.1:0"))});
              alone.measure();
            }).find("has no choice"),
            std::string::npos);
  options.all_reduce = "byteps";
  EXPECT_NE(error_of_group(options).find("needs settings of its own"), std::string::npos);
  options.all_reduce = "sfb";
  EXPECT_NE(error_of_group(options).find("it is no all-reduce"), std::string::npos);
  EXPECT_NE(error_of_group({}, 3).find("ranks are 0 to 2"), std::string::npos);
  EXPECT_NE(error_of_group({}, 0, 65).find("65 ranks, not 1 to 64"), std::string::npos);
  gpusock::Context context;
  Group group(context, 0, kRanks);
  EXPECT_THROW(group.barrier(), gpusock::Error);
  EXPECT_THROW((void)group.part(-1, 10), gpusock::Error);
  EXPECT_THROW((void)group.part(kRanks, 10), gpusock::Error);
}

TEST(GroupOperations, ATensorThatNoMemoryHoldsIsRefused) {
  for (const std::size_t count : {SIZE_MAX, SIZE_MAX / sizeof(float), std::size_t{1} << 47}) {
    Groups groups(1);
    int error = 0;
    try {
      groups.group(0).all_reduce({groups.tensor(0).data(), count});
    } catch (const gpusock::Error& refused) {
      error = refused.code().value();
    }
    EXPECT_EQ(error, EFBIG) << count;
  }
}

TEST(GroupOperations, ThePartsOfTheLongestTensorFollowEachOther) {
  Groups groups(1);
  std::size_t end = 0;
  for (int rank = 0; rank < kRanks; ++rank) {
    const TensorPart part = groups.group(0).part(rank, SIZE_MAX);
    EXPECT_EQ(part.begin, end);
    EXPECT_EQ(part.end - part.begin, SIZE_MAX / kRanks);
    end = part.end;
  }
  EXPECT_EQ(end, SIZE_MAX);
}

TEST(GroupOperations, ANumberThatNoOperationHasIsRefused) {
  gpusock::Context context;
  Group alone(context, 0, 1);
  const auto address = alone.listen(gpusock::Endpoint::parse("127.0.0.1:0"));
  alone.connect({address});
  const auto last = alone.barrier();
  alone.wait(last);
  EXPECT_TRUE(alone.done(last));
  for (const Group::Operation number : {Group::Operation{0}, last + 1, Group::Operation{999}}) {
    EXPECT_NE(error_of<gpusock::Error>([&] {
                alone.wait(number);
              }).find("operation " + std::to_string(number) + " was never started"),
              std::string::npos);
    EXPECT_THROW((void)alone.done(number), gpusock::Error);
  }
  EXPECT_NE(error_of<gpusock::Error>([&] { alone.connect({address}); }).find("connected already"), std::string::npos);
}

}  // namespace
