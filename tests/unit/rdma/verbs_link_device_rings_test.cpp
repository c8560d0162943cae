// The verbs link with rings in device memory: the NIC reads and writes them, or they are copied.
#include "tests/unit/rdma/verbs_link_fixture.hpp"

namespace gpusock::proxy::verbs::link_test {
namespace {

TEST_F(VerbsLinkTest, WithRingsInDeviceMemoryTheProxyLooksForWhatTheCardWritesUnlessCallersDo) {
  const rdma::CudaDriver driver = FakeCuda::driver();
  FakeCuda::options = rdma::kFlushByHost;
  for (const Where& where : {kCopied, kDirect, Where{RingPlacement::device, true, &driver}}) {
    connect(4096, 4096, 77, where);
    a_->send(100);
    step_both();
    EXPECT_EQ(b_->link->watches_memory(), !where.gpudirect || where.gpu != nullptr);
    EXPECT_EQ(b_->receive(4096), 100u);
    a_->link->end_sending();
    step_both();
    EXPECT_EQ(b_->heard.final_position, 77u + 100u);
  }
}

TEST_F(VerbsLinkTest, TheCardGetsRingsInDeviceMemoryUnderTheNamesThatTheProxyHasForThem) {
  connect(4096, 8192, 0, kDirect);
  EXPECT_EQ(fake::nic().regions, 8u);
  EXPECT_EQ(a_->maker->device_rings().why_not(), "");
  auto offer = a_->maker->start(request(true), {}, a_->sink);
  Message message;
  ASSERT_EQ(offer->message().size(), sizeof message);
  std::memcpy(&message, offer->message().data(), sizeof message);
  const Segment& rings = *offer->rings().callers;
  EXPECT_EQ(message.memory.ring_address, reinterpret_cast<std::uint64_t>(rings.proxy_rings().rx.data));
  EXPECT_NE(rings.proxy_rings().rx.data, rings.callers_rings().rx.data) << "the test's device memory is hidden";
  EXPECT_EQ(message.memory.words_address, reinterpret_cast<std::uint64_t>(Words(rings).arrived))
      << "the proxy's words are in host memory, beside no copy";
  EXPECT_EQ(message.memory.has_kernels_word, 1u);
  EXPECT_EQ(message.memory.kernels_word_address, reinterpret_cast<std::uint64_t>(rings.proxy_nic_word()));
  EXPECT_NE(message.memory.kernels_word_bias, 0u);
  auto another = a_->maker->start(request(true), {}, a_->sink);
  Message next;
  std::memcpy(&next, another->message().data(), sizeof next);
  EXPECT_NE(next.memory.kernels_word_bias, message.memory.kernels_word_bias) << "nobody is to know it in advance";
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
  EXPECT_EQ(calls_of("export", FakeCuda::calls), 6u) << "the NIC has the GPU's memory";
  EXPECT_EQ(calls_of("flush", FakeCuda::calls), 0u);
}

/// Two rings in the memory of GPUs that see NICs' writes in order: their kernels poll words there.
class VerbsKernelsWordTest : public VerbsLinkTest {
 protected:
  VerbsKernelsWordTest() { FakeCuda::ordering = rdma::kOrderingOwner; }

  Where gpu() const { return {RingPlacement::device, true, &driver_}; }
  void connect_gpus(std::uint64_t a_bytes, std::uint64_t b_bytes, std::uint64_t start = 0) {
    connect(a_bytes, b_bytes, start, gpu());
    step_both(2);
  }
  std::uint64_t& word() const { return *b_->segment->nic_word(); }

  const rdma::CudaDriver driver_ = FakeCuda::driver();
};

TEST_F(VerbsKernelsWordTest, KernelsSeeWhatArrivesWithNoProxysWork) {
  connect_gpus(65536, 4096, 500);
  EXPECT_EQ(b_->rx.readable(), 0u);
  for (int round = 1; round <= 5; ++round) {
    a_->send(1000);
    a_->step();
    EXPECT_EQ(b_->rx.readable_at_a_glance(), 1000u);
    EXPECT_EQ(b_->rx.load_committed(), 500u + 1000u * static_cast<unsigned>(round));
    EXPECT_EQ(b_->receive(4096), 1000u);
    step_both();
  }
  EXPECT_EQ(b_->wrong, 0u);
  const table::RingPair& rings = b_->slots->view().setups[0].rings;
  EXPECT_EQ(rings.rx.host_committed(), words(*b_).arrived) << "the proxy does not touch the GPU's memory";
  EXPECT_EQ(*rings.rx.host_committed(), 5500u);
  EXPECT_EQ(b_->link->traffic().rx_bytes, 5000u);
}

/// First the bytes, then the kernels' word, then the proxy's. Kernels may be done before the last has come.
TEST_F(VerbsKernelsWordTest, TheBytesComeFirstAndTheProxysWordLast) {
  for (const std::uint64_t start : {std::uint64_t{0}, ~std::uint64_t{0} - 5000}) {
    connect_gpus(65536, 4096, start);
    fake::nic().holds_work = true;
    a_->send(4096);
    a_->step();
    ASSERT_EQ(fake::work(1), 1u);
    EXPECT_EQ(b_->rx.readable(), 0u);
    ASSERT_EQ(fake::work(1), 1u);
    EXPECT_EQ(*words(*b_).arrived, start);
    EXPECT_EQ(b_->receive(4096), 4096u);
    EXPECT_EQ(b_->wrong, 0u);
    b_->step();
    EXPECT_EQ(b_->heard.failed, 0) << "kernels are ahead of what the proxy knows";
    EXPECT_EQ(*words(*a_).credit, 0u);
    EXPECT_TRUE(b_->link->watches_memory()) << "nobody rings again for this credit";
    ASSERT_EQ(fake::work(1), 1u);
    fake::nic().holds_work = false;
    step_both(2);
    EXPECT_EQ(*words(*a_).credit, 4096u);
    EXPECT_FALSE(b_->link->watches_memory());
    EXPECT_EQ(a_->send(4096), 4096u);
  }
}

/// Nobody can reset the word between two connections, and the old one's peer may have left any value.
TEST_F(VerbsKernelsWordTest, WhatAnEarlierPeerHasLeftIsNoPosition) {
  for (const std::uint64_t start : {std::uint64_t{0}, std::uint64_t{700}, ~std::uint64_t{0} - 5000}) {
    const std::uint64_t half = std::uint64_t{1} << 63;
    for (const std::uint64_t left : {start, start + 1, start + 4096, start - 1, start + half, start + half - 1}) {
      connect_gpus(4096, 4096, start);
      word() = left;
      EXPECT_EQ(b_->rx.readable(), 0u);
      EXPECT_EQ(b_->rx.readable_at_a_glance(), 0u);
      EXPECT_EQ(b_->rx.load_committed(), start);
      a_->send(4096);
      a_->step();
      EXPECT_EQ(b_->receive(4096), 4096u);
      EXPECT_EQ(b_->wrong, 0u);
    }
  }
}

TEST_F(VerbsKernelsWordTest, ALieInTheKernelsWordIsAnErrorOfTheirCalls) {
  for (const std::uint64_t lie : {std::uint64_t{4097}, ~std::uint64_t{0}, std::uint64_t{1} << 63}) {
    connect_gpus(65536, 4096);
    a_->send(100);
    a_->step();
    EXPECT_EQ(b_->receive(100), 100u);
    word() += lie;  // beyond the ring, or back
    EXPECT_EQ(b_->rx.readable(), ringbuf::kRingCorrupt);
    EXPECT_EQ(b_->rx.readable_at_a_glance(), ringbuf::kRingCorrupt);
  }
}

/// Of bytes that are not there: they count for nothing, and more than a ring of them ends the connection.
TEST_F(VerbsKernelsWordTest, AWordThatRunsAheadOfTheProxysGetsNoCreditAndInTheEndNoConnection) {
  connect_gpus(65536, 4096);
  a_->send(100);
  a_->step();
  b_->receive(100);
  word() += 4096;
  b_->rx.release(b_->rx.readable());
  step_both();
  EXPECT_EQ(b_->heard.failed, 0);
  EXPECT_EQ(*words(*a_).credit, 100u);
  word() += 1;
  b_->rx.release(b_->rx.readable());
  step_both();
  EXPECT_EQ(b_->heard.failed, EPROTO);
}

TEST_F(VerbsKernelsWordTest, ALieInTheProxysWordEndsTheConnection) {
  for (const std::uint64_t lie : {std::uint64_t{4097}, ~std::uint64_t{0}}) {
    connect_gpus(65536, 4096);
    a_->send(100);
    step_both(2);
    *words(*b_).arrived += lie;
    b_->step();
    EXPECT_EQ(b_->heard.failed, EPROTO);
  }
}

TEST_F(VerbsKernelsWordTest, EndsAndFailuresComeAfterTheBytes) {
  connect_gpus(4096, 65536, 77);
  a_->send(1000);
  a_->link->end_sending();
  step_both();
  EXPECT_EQ(b_->heard.final_position, 1077u);
  EXPECT_EQ(b_->receive(4096), 1000u);
  connect_gpus(4096, 65536);
  a_->send(1000);
  a_->step();
  a_->link.reset();
  b_->step();
  EXPECT_EQ(b_->heard.failed, ECONNRESET);
  EXPECT_EQ(b_->receive(4096), 1000u);
  EXPECT_EQ(b_->wrong, 0u);
}

TEST_F(VerbsKernelsWordTest, ItsKeyIsNarrowAndGoesWithTheConnection) {
  connect_gpus(4096, 65536);
  auto& calls = fake::nic().calls;
  const std::string access = " access " + std::to_string(int{IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE});
  EXPECT_EQ(std::count_if(calls.begin(), calls.end(),
                          [&](const std::string& call) {
                            return call.find("bytes 8 iova") != call.npos && call.ends_with(access);
                          }),
            2);
  calls.clear();
  a_->segment.reset();
  a_->link.reset();
  EXPECT_EQ(calls, (std::vector<std::string>{"destroy_qp", "dereg_mr", "dereg_mr", "dereg_mr", "dereg_mr",
                                             "free_device", "free_device"}));
}

TEST_F(VerbsKernelsWordTest, WhereTheCardDoesNotGetTheWordTheProxyPassesPositionsOn) {
  static rdma::CudaDriver real;  // of this test
  real = driver_;
  rdma::CudaDriver driver = driver_;
  driver.get_handle_for_address_range = [](void* handle, std::uint64_t address, std::size_t bytes, int type,
                                           unsigned long long flags) {
    const bool third = calls_of("export", FakeCuda::calls) % 3 == 2;
    const int result = real.get_handle_for_address_range(handle, address, bytes, type, flags);
    if (third && result == 0) ::close(*static_cast<int*>(handle));
    return third ? 801 : result;
  };
  connect(4096, 65536, 9, {RingPlacement::device, true, &driver});
  EXPECT_EQ(fake::nic().regions, 6u);
  EXPECT_EQ(b_->segment->placement(), RingPlacement::device);
  a_->send(3000);
  step_both();
  EXPECT_EQ(b_->receive(4096), 3000u);
  EXPECT_EQ(b_->wrong, 0u);
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
  EXPECT_EQ(calls,
            (std::vector<std::string>{"destroy_qp", "dereg_mr", "dereg_mr", "dereg_mr", "free_device", "free_device"}));
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
