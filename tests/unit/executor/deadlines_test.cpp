// Every call of a group ends by its deadline, whoever else connects, and whatever becomes of a peer: silent, slow,
// sending garbage, gone.
#include "param_sync/parameters.hpp"
#include "tests/support/patience.hpp"
#include "tests/support/relay.hpp"
#include "tests/unit/executor/groups.hpp"

#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace deadlines_test {
namespace {

using gpusock::Endpoint;
using gpusock::kPatienceNs;
using gpusock::test::Manner;
using gpusock::test::MannerName;
using gpusock::test::Relay;
using gpusock::test::strangers_at;
using param_sync::Group;
using param_sync::GroupOptions;
using param_sync::ReduceOp;

constexpr std::uint64_t kShortNs = 50'000'000;
/// What a call with that deadline may take on a slow machine. Waiting for one stranger after the other takes 100 s.
constexpr std::uint64_t kMostNs = 15'000'000'000;
constexpr std::size_t kFloats = 20'000;
constexpr const char* kHere = "127.0.0.1:0,link=tcp";

/// Runs it; whether it threw a gpusock::Error, and within a time that says that nothing waited for long.
bool fails_in_time(const std::function<void()>& call) {
  const std::uint64_t start_ns = gpusock::clock_ns();
  bool failed = false;
  try {
    call();
  } catch (const gpusock::Error&) {
    failed = true;
  }
  EXPECT_LT(gpusock::clock_ns() - start_ns, kMostNs);
  return failed;
}

class GroupDeadlines : public testing::TestWithParam<Manner> {};

TEST_P(GroupDeadlines, HoldWhileItConnects) {
  gpusock::Context context;
  GroupOptions options;
  options.connect_timeout_ns = kShortNs;
  Group group(context, 0, 2, options);
  const Endpoint at = group.listen(Endpoint::parse(kHere));
  const auto strangers = strangers_at(at, GetParam(), 20);
  EXPECT_TRUE(fails_in_time([&] { group.connect({at, at}); }));
}

TEST_P(GroupDeadlines, SufficeForRanksThatComeAfterStrangers) {
  std::array<gpusock::Context, 2> contexts;
  GroupOptions options;
  options.connect_timeout_ns = kPatienceNs;
  Group one(contexts[0], 0, 2, options), other(contexts[1], 1, 2, options);
  const std::vector<Endpoint> all{one.listen(Endpoint::parse(kHere)), other.listen(Endpoint::parse(kHere))};
  const auto strangers = strangers_at(all[0], GetParam(), 20);
  const std::jthread connecting([&] { EXPECT_NO_THROW(other.connect(all)); });
  EXPECT_NO_THROW(one.connect(all));
}

/// Two ranks whose connections pass through a relay.
struct Pair {
  std::array<gpusock::Context, 2> contexts;
  Group one{contexts[0], 0, 2}, other{contexts[1], 1, 2};
  gpusock::DeviceBuffer<float> ones{contexts[0], kFloats}, others{contexts[1], kFloats};
  std::vector<Endpoint> all{one.listen(Endpoint::parse(kHere)), other.listen(Endpoint::parse(kHere))};
  Relay relay{all[0]};

  Pair() {
    const std::jthread connecting([&] { other.connect({relay.at(), all[1]}); });
    one.connect(all);
  }
};

using Call = std::function<void(Group&, float*)>;

struct NamedCall {
  const char* name;
  Call call;
};

const NamedCall kCalls[] = {
    {"all_reduce",
     [](Group& group, float* data) {
       group.wait(group.all_reduce({data, kFloats}, ReduceOp::sum, kShortNs));
     }},
    {"reduce_scatter",
     [](Group& group, float* data) {
       group.wait(group.reduce_scatter({data, kFloats}, ReduceOp::sum, kShortNs));
     }},
    {"all_gather",
     [](Group& group, float* data) {
       group.wait(group.all_gather({data, kFloats}, kShortNs));
     }},
    {"broadcast",
     [](Group& group, float* data) {
       group.wait(group.broadcast({data, kFloats}, 1, kShortNs));
     }},
    {"barrier", [](Group& group, float*) { group.wait(group.barrier(kShortNs)); }},
    {"measure", [](Group& group, float*) { group.measure(kShortNs); }},
};

TEST_P(GroupDeadlines, HoldWhateverBecomesOfThePeer) {
  for (const auto& [name, call] : kCalls) {
    Pair pair;
    pair.relay.become(GetParam());
    std::jthread others([&, &run = call] {
      try {
        run(pair.other, pair.others.data());
      } catch (const gpusock::Error&) {
        // It has lost its peer, too; but the root of a broadcast may have sent all.
      }
    });
    EXPECT_TRUE(fails_in_time([&, &run = call] { run(pair.one, pair.ones.data()); })) << name;
    others.join();
  }
}

INSTANTIATE_TEST_SUITE_P(With, GroupDeadlines,
                         testing::Values(Manner::silent, Manner::slow, Manner::garbage, Manner::hangs_up),
                         [](const auto& each) { return MannerName::of(each.param); });

}  // namespace
}  // namespace deadlines_test
