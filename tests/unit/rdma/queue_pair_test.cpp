// Queue pairs never post more than fits, hear of errors by name, and share completion queues that cannot overflow.
#include "rdma/queue_pair.hpp"
#include "rdma/registration.hpp"
#include "tests/unit/rdma/fake_verbs.hpp"

#include <gtest/gtest.h>

#include <arpa/inet.h>
#include <netinet/in.h>

#include <array>

namespace gpusock::rdma {
namespace {

class QueuePairTest : public testing::Test {
 protected:
  QueuePairTest() { fake::reset(); }
  ~QueuePairTest() override {
    EXPECT_FALSE(fake::nic().overflowed);
    device_.reset();
    EXPECT_EQ(fake::nic().queues, 0u);
  }

  std::shared_ptr<Device> device() {
    if (device_ == nullptr) {
      sockaddr_in local{};
      local.sin_family = AF_INET;
      inet_pton(AF_INET, "10.77.0.1", &local.sin_addr);
      device_ = std::make_shared<Device>(PortId{"fake0", 1, 0}, reinterpret_cast<const sockaddr&>(local));
    }
    return device_;
  }

  struct Ends {
    explicit Ends(const std::shared_ptr<Device>& opened)
        : a(opened),
          b(opened),
          source(register_host(opened->domain(), from.data(), from.size(), Access::read_by_nic)),
          target(register_host(opened->domain(), to.data(), to.size(), Access::written_by_peers)) {
      a.connect(b.address());
      b.connect(a.address());
    }
    Write write(std::uint32_t bytes, bool copied = false) {
      return {from.data(),         bytes, copied ? 0 : source.local_key(), reinterpret_cast<std::uint64_t>(to.data()),
              target.remote_key(), copied};
    }
    std::array<char, 512> from{"from"};
    std::array<char, 512> to{};
    QueuePair a, b;
    Registration source, target;
  };

  std::shared_ptr<Device> device_;
};

TEST_F(QueuePairTest, WritesArriveAndAreCompleteWhenAsked) {
  Ends ends(device());
  const Write both[] = {ends.write(512), ends.write(8, true)};
  ASSERT_EQ(ends.a.post(both, true), 0);
  EXPECT_STREQ(ends.to.data(), "from");
  EXPECT_EQ(ends.a.outstanding(), 2u);
  EXPECT_TRUE(device()->completions().poll());
  EXPECT_EQ(ends.a.completed(), 2u);
  EXPECT_EQ(ends.a.room(), QueuePair::kDepth);
  EXPECT_FALSE(device()->completions().poll());
}

TEST_F(QueuePairTest, NothingIsPostedThatDoesNotFit) {
  Ends ends(device());
  fake::nic().holds_work = true;
  const std::array<Write, 3> writes = {ends.write(8), ends.write(8), ends.write(8)};
  while (ends.a.post(writes, false) == 0) {
  }
  EXPECT_EQ(ends.a.post(writes, false), -EAGAIN);
  EXPECT_EQ(ends.a.outstanding(), 63u);
  EXPECT_EQ(ends.a.post(std::span(writes).first(1), false), 0);
  EXPECT_EQ(ends.a.room(), 0u);
  EXPECT_EQ(ends.a.post(std::span(writes).first(1), false), -EAGAIN);
  fake::work();
  device()->completions().poll();
  EXPECT_GE(ends.a.room(), QueuePair::kDepth * 3 / 4) << "entries are told of although nobody asked";
}

TEST_F(QueuePairTest, ALongRunOfUnannouncedWritesNeverStalls) {
  Ends ends(device());
  const Write write = ends.write(8, true);
  for (int i = 0; i < 10'000; ++i) {
    if (ends.a.room() == 0) device()->completions().poll();
    ASSERT_EQ(ends.a.post({&write, 1}, false), 0) << i;
  }
  EXPECT_LE(fake::nic().outstanding_max, QueuePair::kDepth);
  EXPECT_EQ(fake::nic().writes, 10'000u);
}

TEST_F(QueuePairTest, AWriteOutsideTheKeysRangeBreaksThatPairAlone) {
  Ends ends(device()), others(device());
  Write outside = ends.write(8);
  outside.remote_address += 512 - 7;
  EXPECT_EQ(ends.a.post({&outside, 1}, true), 0);
  device()->completions().poll();
  EXPECT_TRUE(ends.a.failed());
  EXPECT_EQ(ends.a.post({&outside, 1}, true), -ECONNRESET);
  const Write fine = others.write(8);
  EXPECT_EQ(others.a.post({&fine, 1}, true), 0);
  device()->completions().poll();
  EXPECT_FALSE(others.a.failed());
}

TEST_F(QueuePairTest, ARevokedKeyIsOfNoUse) {
  Ends ends(device());
  const Write write = ends.write(8);
  ends.target.revoke();
  EXPECT_EQ(ends.a.post({&write, 1}, true), 0);
  device()->completions().poll();
  EXPECT_TRUE(ends.a.failed());
  EXPECT_EQ(ends.to[0], 0);
}

TEST_F(QueuePairTest, TheFirstErrorIsTheReason) {
  Ends ends(device());
  fake::nic().holds_work = true;
  const std::array<Write, 3> writes = {ends.write(8), ends.write(8), ends.write(8)};
  ASSERT_EQ(ends.a.post(writes, true), 0);
  fake::break_pair(ends.a.address().number, IBV_WC_RETRY_EXC_ERR);
  device()->completions().poll();
  EXPECT_EQ(ends.a.failure(), "transport retry counter exceeded");
}

TEST_F(QueuePairTest, ThousandsShareCompletionQueuesThatHoldThemAll) {
  fake::nic().cqe_max = 4096;
  std::vector<std::unique_ptr<Ends>> all;
  for (int i = 0; i < 100; ++i) all.push_back(std::make_unique<Ends>(device()));
  EXPECT_EQ(device()->completions().count(), 4u);  // 200 pairs of 64, 64 pairs in a queue
  fake::nic().holds_work = true;
  for (auto& ends : all) {
    const Write write = ends->write(8);
    while (ends->a.room() > 0) ASSERT_EQ(ends->a.post({&write, 1}, false), 0);
  }
  for (auto& ends : all) fake::break_pair(ends->a.address().number, IBV_WC_RETRY_EXC_ERR);  // all are flushed at once
  EXPECT_EQ(fake::nic().completions_max, 2048u);
  device()->completions().poll();
  all.clear();
  Ends again(device());
  EXPECT_EQ(device()->completions().count(), 4u) << "entries are used again";
}

TEST_F(QueuePairTest, WhatAPairLeftInTheQueueReachesNobody) {
  auto ends = std::make_unique<Ends>(device());
  const Write write = ends->write(8);
  ASSERT_EQ(ends->a.post({&write, 1}, true), 0);
  ends.reset();
  EXPECT_FALSE(device()->completions().poll());
}

TEST_F(QueuePairTest, TheSmallerMtuIsUsedAndInlineIsWhatTheCardGives) {
  fake::nic().inline_max = 64;
  QueuePair a(device()), b(device());
  EXPECT_EQ(a.inline_bytes(), 64u);
  QueuePairAddress peer = b.address();
  peer.mtu = IBV_MTU_512;
  a.connect(peer);
  EXPECT_EQ(fake::nic().calls.back(), "path_mtu 2");
  peer.ethernet = false;
  EXPECT_THROW(b.connect(peer), std::system_error);
}

TEST_F(QueuePairTest, WhatCannotBeMadeTakesNoPlaces) {
  fake::nic().making_pairs_fails = ENOMEM;
  for (int i = 0; i < 1000; ++i) EXPECT_THROW(QueuePair pair(device()), std::system_error);
  fake::nic().making_pairs_fails = 0;
  QueuePair pair(device());
  EXPECT_EQ(device()->completions().count(), 1u);
}

}  // namespace
}  // namespace gpusock::rdma
