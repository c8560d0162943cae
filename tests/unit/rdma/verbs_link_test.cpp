// The verbs link: bytes arrive whatever the sizes of the rings, and nothing is overwritten early.
#include "host_proxy/links/network_probe.hpp"
#include "tests/unit/rdma/verbs_link_fixture.hpp"

namespace gpusock::proxy::verbs::link_test {
namespace {

TEST_F(VerbsLinkTest, BytesArriveBothWaysWhateverTheRingsSizesAndWhereverTheyLie) {
  const rdma::CudaDriver driver = FakeCuda::driver();
  FakeCuda::options = rdma::kFlushByHost;
  rdma::CudaDriver ordered = driver;
  ordered.device_get_attribute = [](int* value, int attribute, int) {
    *value = attribute == rdma::kWritesOrdering ? rdma::kOrderingOwner : 0;
    return 0;
  };
  const Where gpu{RingPlacement::device, true, &driver}, copied_gpu{RingPlacement::device, false, &driver};
  const Where ordered_gpu{RingPlacement::device, true, &ordered};
  struct Case {
    std::uint64_t a_bytes, b_bytes;
    Where a = kHost, b = kHost;
  };
  for (const Case& one : {Case{4096, 65536},
                          {65536, 4096},
                          {8192, 8192},
                          {4096, 65536, kCopied, kCopied},
                          {4096, 65536, kDirect, kDirect},
                          {65536, 8192, gpu, gpu},
                          {8192, 4096, kDirect, kCopied},
                          {4096, 8192, kHost, gpu},
                          {4096, 8192, copied_gpu, gpu},
                          {4096, 65536, ordered_gpu, ordered_gpu},
                          {8192, 4096, ordered_gpu, kHost},
                          {4096, 8192, gpu, ordered_gpu}}) {
    connect(one.a_bytes, one.b_bytes, ~std::uint64_t{0} - 5000, one.a, one.b);  // positions pass 2^64
    EXPECT_EQ(a_->segment->placement(), one.a.placement);
    EXPECT_EQ(b_->segment->placement(), one.b.placement);
    std::uint64_t size = 1;
    constexpr std::uint64_t kTotal = 1 << 20;
    for (int turns = 0; a_->received < kTotal || b_->received < kTotal; ++turns) {
      ASSERT_LT(turns, 100'000) << "stuck at " << a_->received << " and " << b_->received;
      size = size * 31 % 7919 + 1;
      a_->send(std::min(size, kTotal - a_->sent));
      b_->send(std::min(size * 3, kTotal - b_->sent));
      a_->step();
      b_->step();
      a_->receive(size * 2);
      b_->receive(size);
    }
    EXPECT_EQ(a_->wrong + b_->wrong, 0u);
    EXPECT_LE(fake::nic().outstanding_max, rdma::QueuePair::kDepth);
  }
}

TEST_F(VerbsLinkTest, NothingIsGivenBackBeforeItsWriteIsComplete) {
  connect(4096, 65536);
  step_both(2);
  fake::nic().holds_work = true;
  EXPECT_EQ(a_->send(4096), 4096u);
  step_both(4);
  EXPECT_EQ(a_->tx.writable(), 0u);
  EXPECT_TRUE(a_->maker->wants_polling());
  EXPECT_EQ(b_->rx.readable(), 0u);
  const int news = a_->sink.news;
  fake::work();
  EXPECT_EQ(b_->rx.readable(), 4096u) << "without any processor's work there";
  EXPECT_TRUE(a_->step());
  EXPECT_GT(a_->sink.news, news);
  EXPECT_EQ(a_->tx.writable(), 4096u);
  EXPECT_FALSE(a_->maker->wants_polling());
}

/// Its NIC has nothing to send, and so nothing to report.
TEST_F(VerbsLinkTest, ASenderThatWaitsForRoomIsToldOfALostNetwork) {
  for (const Where& where : {kHost, kCopied, kDirect}) {
    connect(4096, 4096, 0, where);
    std::uint64_t now_ns = 1;
    const auto pass = [&](std::uint64_t duration_ns) {
      for (const std::uint64_t until_ns = now_ns + duration_ns; now_ns < until_ns && a_->heard.failed == 0;) {
        step_both();
        now_ns = std::min({until_ns, a_->link->maintain(now_ns), b_->link->maintain(now_ns)});
      }
    };
    while (a_->send(4096) != 0) step_both();
    pass(100 * NetworkProbe::kLastNs);
    EXPECT_EQ(a_->heard.failed, 0) << "the peer does not read";
    out_->lost = true;
    pass(2 * NetworkProbe::kLastNs);
    EXPECT_EQ(a_->heard.failed, ECONNRESET);
    EXPECT_EQ(a_->link->maintain(now_ns), detail::kNever);
  }
}

TEST_F(VerbsLinkTest, TheBytesAreThereBeforeThePosition) {
  connect(65536, 4096);
  step_both(2);
  fake::nic().holds_work = true;
  a_->send(3000);
  b_->receive(0);
  a_->step();
  while (fake::work(1) == 1) b_->receive(4096);  // after each single write
  EXPECT_EQ(b_->received, 3000u);
  EXPECT_EQ(b_->wrong, 0u);
}

TEST_F(VerbsLinkTest, NoMoreIsWrittenThanThePeerHasRoomFor) {
  connect(65536, 4096);
  step_both(2);
  a_->send(10'000);
  step_both();
  EXPECT_EQ(b_->rx.readable(), 4096u);
  EXPECT_TRUE(a_->link->watches_memory()) << "credit wakes nobody";
  b_->receive(1);
  step_both();
  EXPECT_EQ(b_->rx.readable(), 4096u) << "a sender that waits gets credit for one byte";
}

TEST_F(VerbsLinkTest, CreditForLittleIsGivenOnceNothingElseHappens) {
  connect(65536, 65536);
  a_->send(100);
  step_both(3);
  b_->receive(100);
  b_->step();
  EXPECT_EQ(*words(*a_).credit, 0u);
  EXPECT_TRUE(b_->link->watches_memory());
  step_both();
  EXPECT_EQ(*words(*a_).credit, 100u);
  EXPECT_FALSE(b_->link->watches_memory());
}

TEST_F(VerbsLinkTest, CreditForLittleIsGivenAtOnceToAPeerThatHasUsedAllUp) {
  connect(65536, 4096);
  step_both(2);
  EXPECT_EQ(a_->send(4196), 4196u);
  step_both(2);
  b_->receive(100);
  step_both(2);
  EXPECT_EQ(b_->receive(4096), 4096u);
}

/// The NIC writes while the proxy sleeps; nobody but callers can say that there is room again.
TEST_F(VerbsLinkTest, CallersMustSayWhatTheyConsumeBeforeAnythingHasArrived) {
  connect(8192, 8192);
  step_both();
  EXPECT_TRUE(b_->link->waits_for_credit());
  EXPECT_EQ(a_->send(8192), 8192u);
  step_both();
  EXPECT_TRUE(b_->link->waits_for_credit());
  b_->link->end_receiving();
  EXPECT_FALSE(b_->link->waits_for_credit());
}

TEST_F(VerbsLinkTest, AFullSendQueueLosesNothingAndDisturbsNobody) {
  constexpr std::size_t kNeighbours = 20;
  fake::nic().cqe_max = 256;  // four queue pairs to a completion queue
  connect(65536, 65536);
  std::vector<std::unique_ptr<Side>> as, bs;
  for (std::size_t i = 0; i < kNeighbours; ++i) {
    as.push_back(std::make_unique<Side>(65536, i, kHost, &*a_));
    bs.push_back(std::make_unique<Side>(65536, i, kHost, &*b_));
    ASSERT_NO_FATAL_FAILURE(connect(*as[i], *bs[i]));
  }
  step_both();
  for (const std::uint32_t number : fake::pair_numbers()) fake::nic().stuck.insert(number);
  for (int i = 0; i < 200; ++i) {  // of bytes that each go by themselves
    a_->send(1);
    a_->step();
  }
  constexpr std::uint32_t kRequestsPerWrite = 2;  // so many entries a write needs
  EXPECT_GT(fake::nic().outstanding_max, rdma::QueuePair::kDepth - kRequestsPerWrite) << "it is full";
  EXPECT_LE(fake::nic().outstanding_max, rdma::QueuePair::kDepth);
  EXPECT_EQ(a_->heard.failed, 0);
  const std::uint32_t full = *fake::nic().stuck.begin();  // the first that was made is the first acceptor's
  fake::nic().stuck = {full};

  constexpr std::uint64_t kTotal = 30'000;
  const auto done = [&](const std::unique_ptr<Side>& side) { return side->received == kTotal; };
  for (int turns = 0; !std::all_of(as.begin(), as.end(), done) || !std::all_of(bs.begin(), bs.end(), done); ++turns) {
    ASSERT_LT(turns, 10'000);
    fake::work();
    for (std::size_t i = 0; i < kNeighbours; ++i) {
      as[i]->send(std::min<std::uint64_t>(701, kTotal - as[i]->sent));
      bs[i]->send(std::min<std::uint64_t>(307, kTotal - bs[i]->sent));
      as[i]->step();
      bs[i]->step();
      as[i]->receive(1000);
      bs[i]->receive(1000);
    }
  }
  for (std::size_t i = 0; i < kNeighbours; ++i) EXPECT_EQ(as[i]->wrong + bs[i]->wrong, 0u);
  EXPECT_EQ(b_->received, 0u);

  fake::nic().stuck.clear();
  for (int i = 0; i < 20; ++i) {
    fake::work();
    step_both(1);
    b_->receive(65536);
  }
  EXPECT_EQ(b_->received, 200u) << "what found the queue full came later";
  EXPECT_EQ(b_->wrong, 0u);
  EXPECT_LE(fake::nic().outstanding_max, rdma::QueuePair::kDepth);
}

TEST_F(VerbsLinkTest, AFullSendQueueThatBreaksIsItsOwnLoss) {
  connect(65536, 65536);
  Side near(65536, 0, kHost, &*a_), far(65536, 0, kHost, &*b_);
  ASSERT_NO_FATAL_FAILURE(connect(near, far));
  step_both();
  const std::uint32_t full = fake::pair_numbers().front();
  fake::nic().stuck = {full};
  for (int i = 0; i < 200; ++i) {
    a_->send(1);
    a_->step();
  }
  near.send(2000);
  near.step();
  fake::break_pair(full, IBV_WC_RETRY_EXC_ERR);  // and all that it holds is flushed into the queue that they share
  for (int i = 0; i < 40; ++i) {
    a_->step();
    near.step();
    far.step();
    far.receive(4096);
  }
  EXPECT_EQ(a_->heard.failed, ECONNRESET);
  EXPECT_EQ(near.heard.failed, 0);
  EXPECT_EQ(far.received, 2000u);
  EXPECT_EQ(far.wrong, 0u);
}

}  // namespace
}  // namespace gpusock::proxy::verbs::link_test
