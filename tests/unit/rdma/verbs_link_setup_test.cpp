// What the verbs link needs before it carries bytes, and what it says if that is not there.
#include "tests/unit/rdma/verbs_link_fixture.hpp"

namespace gpusock::proxy::verbs::link_test {
namespace {

TEST_F(VerbsLinkTest, ALinkThatCarriesNothingFailsInTime) {
  a_.emplace(4096);
  b_.emplace(4096);
  fake::nic().holds_work = true;
  ASSERT_NO_FATAL_FAILURE(agree(*a_, *b_));
  EXPECT_EQ(offer_->advance(), LinkSetup::State::waiting);
  EXPECT_TRUE(a_->maker->wants_polling()) << "the NIC tells nobody";
  test_time_ns += kTrialNs - 1;
  a_->maker->poll(test_time_ns);
  EXPECT_EQ(a_->sink.news, 0);
  test_time_ns += 1;
  a_->maker->poll(test_time_ns);
  EXPECT_EQ(a_->sink.news, 1);
  EXPECT_EQ(offer_->advance(), LinkSetup::State::failed);
  EXPECT_EQ(offer_->failure().error, EHOSTUNREACH);
  EXPECT_NE(offer_->failure().reason.find("no acknowledgement for 2000 ms"), std::string::npos)
      << offer_->failure().reason;
  EXPECT_FALSE(a_->maker->wants_polling());
}

TEST_F(VerbsLinkTest, ALinkWhosePathIsBrokenFailsAtOnce) {
  a_.emplace(4096);
  b_.emplace(4096);
  fake::nic().holds_work = true;
  ASSERT_NO_FATAL_FAILURE(agree(*a_, *b_));
  fake::break_pair(fake::pair_numbers().front(), IBV_WC_RETRY_EXC_ERR);
  a_->maker->poll(test_time_ns);
  EXPECT_EQ(a_->sink.news, 1);
  EXPECT_EQ(offer_->advance(), LinkSetup::State::failed);
  EXPECT_NE(offer_->failure().reason.find("transport retry counter exceeded"), std::string::npos)
      << offer_->failure().reason;
}

TEST_F(VerbsLinkTest, WhatCannotBeSetUpSaysWhy) {
  a_.emplace(65536);
  fake::nic().registering_fails = ENOMEM;
  auto offer = a_->maker->start(request(true), {}, a_->sink);
  EXPECT_EQ(offer->advance(), LinkSetup::State::failed);
  EXPECT_EQ(offer->failure().error, ENOMEM);
  EXPECT_NE(offer->failure().reason.find("ulimit -l"), std::string::npos) << offer->failure().reason;
  LinkRequest elsewhere = request(true);
  elsewhere.local = Endpoint::parse("10.77.0.2:7");
  offer = a_->maker->start(elsewhere, {}, a_->sink);
  EXPECT_EQ(offer->failure().error, EADDRNOTAVAIL);
}

/// What a lying peer may say, and whether it is taken.
TEST_F(VerbsLinkTest, WhatCannotBeIsNotTaken) {
  b_.emplace(65536);
  a_.emplace(65536);
  const auto offer = a_->maker->start(request(true), {}, a_->sink);
  Message good;
  std::memcpy(&good, offer->message().data(), sizeof good);
  const auto refused = [&](auto change, std::size_t bytes = sizeof(Message)) {
    Message bad = good;
    change(bad);
    const auto view = std::as_bytes(std::span(&bad, 1));
    auto answer = b_->maker->start(request(false), view.first(bytes), b_->sink);
    return answer->advance() == LinkSetup::State::failed && answer->failure().error == EPROTO &&
           !answer->failure().reason.empty();
  };
  EXPECT_FALSE(refused([](Message&) {}));
  EXPECT_TRUE(refused([](Message&) {}, sizeof(Message) - 1));
  EXPECT_TRUE(refused([](Message&) {}, 0));
  EXPECT_TRUE(refused([](Message& m) { m.version = Message::kVersion + 1; }));
  EXPECT_TRUE(refused([](Message& m) { m.pair_number = 0; }));
  EXPECT_TRUE(refused([](Message& m) { m.pair_number = 1 << 24; }));
  EXPECT_TRUE(refused([](Message& m) { m.psn = 1 << 24; }));
  EXPECT_TRUE(refused([](Message& m) { m.mtu = 0; }));
  EXPECT_TRUE(refused([](Message& m) { m.mtu = 6; }));
  EXPECT_TRUE(refused([](Message& m) { m.ethernet = 2; }));
  EXPECT_TRUE(refused([](Message& m) { m.gid = {}; }));
  EXPECT_TRUE(refused([](Message& m) { m.gid[0] = 0xff; }));
  EXPECT_TRUE(refused([](Message& m) { m.memory.ring_bytes = 0; }));
  EXPECT_TRUE(refused([](Message& m) { m.memory.ring_bytes = 65537; }));
  EXPECT_TRUE(refused([](Message& m) { m.memory.ring_bytes = kRingBytesMax * 2; }));
  EXPECT_TRUE(refused([](Message& m) { m.memory.ring_address = ~std::uint64_t{0} - 65534; }));
  EXPECT_TRUE(refused([](Message& m) { m.memory.words_address += 4; }));
  EXPECT_TRUE(refused([](Message& m) { m.memory.words_address = ~std::uint64_t{0} - 7; }));
  EXPECT_EQ(good.memory.has_kernels_word, 0u) << "kernels poll host memory here";
  EXPECT_FALSE(refused([](Message& m) { m.memory.has_kernels_word = 1, m.memory.kernels_word_address = 64; }));
  EXPECT_TRUE(refused([](Message& m) { m.memory.has_kernels_word = 2; }));
  EXPECT_TRUE(refused([](Message& m) { m.memory.has_kernels_word = 1, m.memory.kernels_word_address = 4; }));
  EXPECT_TRUE(refused([](Message& m) { m.memory.has_kernels_word = 1, m.memory.kernels_word_address -= 8; }));
  EXPECT_TRUE(refused([](Message& m) { m.memory.kernels_word_address = 64; }));
  EXPECT_TRUE(refused([](Message& m) { m.memory.kernels_word_bias = 1; }));
  EXPECT_TRUE(refused([](Message& m) { m.memory.kernels_word_key = 1; }));
}

TEST_F(VerbsLinkTest, RecordsNeedRingsOfTheSameSize) {
  a_.emplace(65536);
  b_.emplace(65536);
  const auto offer = a_->maker->start(request(true), {}, a_->sink);
  LinkRequest records = request(false);
  records.type = SocketType::seqpacket;
  records.record_ring_bytes = 4096;
  EXPECT_EQ(b_->maker->start(records, offer->message(), b_->sink)->advance(), LinkSetup::State::failed);
  records.record_ring_bytes = 65536;
  EXPECT_EQ(b_->maker->start(records, offer->message(), b_->sink)->advance(), LinkSetup::State::ready);
}

}  // namespace
}  // namespace gpusock::proxy::verbs::link_test
