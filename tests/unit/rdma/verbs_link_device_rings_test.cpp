// The verbs link with rings in device memory: the NIC reads and writes them, or they are copied.
#include "tests/unit/rdma/verbs_link_fixture.hpp"

namespace gpusock::proxy::verbs::link_test {
namespace {

TEST_F(VerbsLinkTest, WithRingsInDeviceMemoryTheProxyLooksForWhatTheCardWrites) {
  for (const Where& where : {kCopied, kDirect}) {
    connect(4096, 4096, 77, where);
    a_->send(100);
    step_both();
    EXPECT_TRUE(b_->link->watches_memory());
    EXPECT_EQ(b_->receive(4096), 100u);
    a_->link->end_sending();
    step_both();
    EXPECT_EQ(b_->heard.final_position, 77u + 100u);
  }
}

TEST_F(VerbsLinkTest, TheCardGetsRingsInDeviceMemoryUnderTheNamesThatTheProxyHasForThem) {
  connect(4096, 8192, 0, kDirect);
  EXPECT_EQ(fake::nic().regions, 6u);
  EXPECT_EQ(a_->maker->device_rings().why_not(), "");
  auto offer = a_->maker->start(request(true), {}, a_->sink);
  Message message;
  ASSERT_EQ(offer->message().size(), sizeof message);
  std::memcpy(&message, offer->message().data(), sizeof message);
  const Segment& rings = *offer->rings().callers;
  EXPECT_EQ(message.memory.ring_address, reinterpret_cast<std::uint64_t>(rings.proxy_rings().rx.data));
  EXPECT_NE(rings.proxy_rings().rx.data, rings.callers_rings().rx.data) << "the test's device memory is hidden";
  EXPECT_EQ(message.memory.words_address, reinterpret_cast<std::uint64_t>(Words(rings).arrived))
      << "words are in host memory, beside no copy";
}

TEST_F(VerbsLinkTest, WhereThatIsNotWantedRingsAreCopied) {
  connect(4096, 4096, 0, kCopied);
  auto offer = a_->maker->start(request(true), {}, a_->sink);
  Message message;
  std::memcpy(&message, offer->message().data(), sizeof message);
  EXPECT_EQ(offer->rings().callers->placement(), RingPlacement::device);
  EXPECT_NE(message.memory.ring_address,
            reinterpret_cast<std::uint64_t>(offer->rings().callers->proxy_rings().rx.data));
  EXPECT_NE(message.memory.words_address, reinterpret_cast<std::uint64_t>(Words(*offer->rings().callers).arrived));
}

TEST_F(VerbsLinkTest, ACardThatDoesNotTakeDeviceMemoryHasItCopied) {
  fake::nic().naming_fails = EOPNOTSUPP;
  connect(4096, 65536, 0, kDirect);
  EXPECT_NE(a_->maker->device_rings().why_not(), "");
  a_->send(3000);
  step_both();
  EXPECT_EQ(b_->receive(3000), 3000u);
  EXPECT_EQ(b_->wrong, 0u);
}

TEST_F(VerbsLinkTest, AGpuThatNobodyGivesToTheCardHasItsRingsCopiedForBothReasons) {
  rdma::CudaDriver driver = FakeCuda::driver();
  driver.get_handle_for_address_range = nullptr;
  FakeCuda::ordering = rdma::kOrderingOwner;
  connect(4096, 65536, 0, {RingPlacement::device, true, &driver});
  const std::string why = a_->maker->device_rings().why_not();
  EXPECT_NE(why.find("older than 11.7"), std::string::npos) << why;
  EXPECT_NE(why.find("nvidia_peermem"), std::string::npos) << why;
  a_->send(3000);
  step_both();
  EXPECT_EQ(b_->receive(3000), 3000u);
  EXPECT_EQ(b_->wrong, 0u);
}

TEST_F(VerbsLinkTest, AGpuOfWhichNobodySaysWhenItSeesCardsWritesHasItsRingsCopied) {
  const rdma::CudaDriver driver = FakeCuda::driver();  // neither ordered nor flushed
  connect(4096, 65536, 0, {RingPlacement::device, true, &driver, true});
  EXPECT_EQ(calls_of("export", FakeCuda::calls), 0u);
  EXPECT_NE(a_->maker->device_rings().why_not(), "");
  a_->send(100);
  step_both();
  EXPECT_EQ(b_->receive(100), 100u);
}

TEST_F(VerbsLinkTest, HostThreadsOnAGpuHaveRingsInHostMemory) {
  const rdma::CudaDriver driver = FakeCuda::driver();
  FakeCuda::options = rdma::kFlushByHost;
  kernels_ = false;
  connect(4096, 65536, 0, {RingPlacement::device, true, &driver});
  EXPECT_EQ(b_->segment->placement(), RingPlacement::host);
  a_->send(100);
  a_->step();
  EXPECT_FALSE(b_->link->watches_memory());
  step_both();
  EXPECT_EQ(b_->receive(100), 100u);
  EXPECT_TRUE(FakeCuda::calls.empty()) << FakeCuda::calls[0];
}

/// The NIC's writes are in the GPU's memory for sure only after a flush: until then callers know nothing of them.
TEST_F(VerbsLinkTest, ThePositionIsPassedOnAfterTheFlush) {
  const rdma::CudaDriver driver = FakeCuda::driver();
  FakeCuda::options = rdma::kFlushByHost;
  connect(65536, 4096, 500, {RingPlacement::device, true, &driver});
  step_both();
  EXPECT_EQ(calls_of("flush", FakeCuda::calls), 0u) << "nothing was written";
  std::uint64_t seen = ~std::uint64_t{0};
  FakeCuda::on_flush = [&] { seen = b_->rx.readable_at_a_glance(); };
  a_->send(3000);
  a_->step();
  EXPECT_EQ(*words(*b_).arrived, 3500u) << "the NIC has written";
  EXPECT_EQ(b_->rx.readable(), 0u) << "no kernel looks at the NIC's word";
  b_->step();
  EXPECT_EQ(seen, 0u);
  EXPECT_EQ(b_->receive(4096), 3000u);
  EXPECT_EQ(b_->wrong, 0u);
  step_both(4);
  EXPECT_EQ(calls_of("flush 0 100", FakeCuda::calls), 1u) << "once for what has arrived";
}

TEST_F(VerbsLinkTest, AGpuThatSeesCardsWritesInOrderIsNotFlushed) {
  const rdma::CudaDriver driver = FakeCuda::driver();
  FakeCuda::options = rdma::kFlushByHost;
  FakeCuda::ordering = rdma::kOrderingOwner;
  connect(65536, 4096, 0, {RingPlacement::device, true, &driver});
  a_->send(3000);
  step_both();
  EXPECT_EQ(b_->receive(4096), 3000u);
  EXPECT_EQ(b_->wrong, 0u);
  EXPECT_EQ(calls_of("export", FakeCuda::calls), 4u) << "the NIC has the GPU's memory";
  EXPECT_EQ(calls_of("flush", FakeCuda::calls), 0u);
}

TEST_F(VerbsLinkTest, AFlushThatFailsEndsTheConnectionAndTellsCallersNothing) {
  const rdma::CudaDriver driver = FakeCuda::driver();
  FakeCuda::options = rdma::kFlushByHost;
  connect(65536, 4096, 0, {RingPlacement::device, true, &driver});
  FakeCuda::on_flush = [] { FakeCuda::result = 719; };
  a_->send(100);
  step_both(2);
  EXPECT_EQ(b_->heard.failed, EIO);
  EXPECT_EQ(b_->rx.readable(), 0u);
  EXPECT_FALSE(b_->link->watches_memory());
}

TEST_F(VerbsLinkTest, ClosingInTheMiddleRevokesTheKeysBeforeTheGpusMemoryGoes) {
  const rdma::CudaDriver driver = FakeCuda::driver();
  FakeCuda::options = rdma::kFlushByHost;
  connect(4096, 65536, 0, {RingPlacement::device, true, &driver});
  step_both(2);
  fake::nic().holds_work = true;
  a_->send(1000);
  a_->step();
  auto& calls = fake::nic().calls;
  calls.clear();
  a_->segment.reset();  // as a connection gives it up when it is over
  a_->link.reset();
  EXPECT_EQ(calls, (std::vector<std::string>{"destroy_qp", "dereg_mr", "dereg_mr", "dereg_mr", "free_device"}));
  fake::work();
  b_->step();
  EXPECT_EQ(b_->heard.failed, ECONNRESET);
}

TEST_F(VerbsLinkTest, WhatHasArrivedBeforeAFailureIsPassedOn) {
  connect(4096, 65536, 0, kDirect);
  step_both(2);
  a_->send(1000);
  a_->step();
  a_->link.reset();
  b_->step();
  EXPECT_EQ(b_->heard.failed, ECONNRESET);
  EXPECT_EQ(b_->receive(4096), 1000u);
  EXPECT_EQ(b_->wrong, 0u);
}

TEST_F(VerbsLinkTest, APositionThatGoesBackInDeviceMemoryIsNotPassedOn) {
  connect(65536, 4096, 0, kDirect);
  a_->send(100);
  step_both(2);
  *words(*b_).arrived -= 1;
  step_both(1);
  EXPECT_EQ(b_->heard.failed, EPROTO);
  EXPECT_EQ(b_->rx.readable(), 100u);
}

}  // namespace
}  // namespace gpusock::proxy::verbs::link_test
