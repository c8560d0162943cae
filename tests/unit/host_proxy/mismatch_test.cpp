// One end speaks gpusock and the other plain TCP: the errors, and what is said of it.
#include "host_proxy/links/tcp/maker.hpp"
#include "tests/fuzz/node.hpp"

#include <gtest/gtest.h>

#include <cerrno>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace gpusock::proxy::mismatch {
namespace {

struct Nobody final : ReadySink {
  void on_ready() override {}
};

/// One end of a connection in its handshake; the test plays the other end.
class Mismatch : public testing::Test {
 protected:
  Mismatch() : platform_(std::make_shared<HostPlatform>()), segments_(platform_, {4096, 4096}, 0), tcp_(segments_) {}

  void connect() { handshake_ = make_connector_handshake(stream_, resources_, at_, nobody_); }
  void accept() { handshake_ = make_acceptor_handshake(stream_, resources_, at_, nobody_); }
  /// What the handshake says once the peer has said this.
  std::string hear(const std::string& said) {
    wire_->to_node += said;
    stream_.readable = true;
    handshake_->advance();
    return handshake_->mismatch();
  }

  std::shared_ptr<Platform> platform_;
  SegmentPool segments_;
  TcpMaker tcp_;
  LinkResources resources_{{&tcp_}, nullptr, 4096, ""};
  Nobody nobody_;
  Endpoint at_ = fuzz::WireStream::here();
  std::shared_ptr<fuzz::Wire> wire_ = std::make_shared<fuzz::Wire>();
  fuzz::WireStream stream_{wire_};
  std::unique_ptr<Handshake> handshake_;
};

TEST_F(Mismatch, AServerThatSaysNothingMayNotSpeakGpusock) {
  connect();
  EXPECT_EQ(hear(""), "the peer has said nothing so far; if it does not speak gpusock, add link=tcp");
  EXPECT_FALSE(handshake_->is_foreign());
}

TEST_F(Mismatch, AnAnswerInAnotherProtocolIsShown) {
  connect();
  EXPECT_EQ(hear("HTTP/1.1 400 Bad Request\r\nServer: x\r\n"),
            "the peer does not speak gpusock: add link=tcp (it sent 'HTTP/1.1 400 Bad Request')");
  EXPECT_EQ(handshake_->error(), EPROTO);
  EXPECT_TRUE(handshake_->is_foreign());
}

TEST_F(Mismatch, WhatIsShownIsShortAndInPrint) {
  connect();
  EXPECT_EQ(hear("\x1b[2J" + std::string(500, 'x')),
            "the peer does not speak gpusock: add link=tcp (it sent '?[2Jxxxxxxxxxxxxxxxxxxxx')");
}

TEST_F(Mismatch, AServerThatEchoesIsRecognizedHoweverItsBytesCome) {
  for (const std::size_t piece : {std::size_t{1}, std::size_t{10}, std::size_t{1000}}) {
    *wire_ = {};
    connect();
    handshake_->advance();
    const std::string hello = wire_->from_node;
    ASSERT_FALSE(hello.empty());
    for (std::size_t at = 0; at < hello.size(); at += piece) hear(hello.substr(at, piece));
    EXPECT_EQ(handshake_->mismatch(), "the peer does not speak gpusock: add link=tcp (it sent back what it was sent)");
    EXPECT_EQ(handshake_->error(), EPROTO) << "at once, not after a timeout";
  }
}

TEST_F(Mismatch, AServerThatHangsUpMayNotSpeakGpusock) {
  connect();
  wire_->ended = true;
  EXPECT_EQ(hear(""), "the peer hung up before it said anything; if it does not speak gpusock, add link=tcp");
  EXPECT_EQ(handshake_->error(), ECONNRESET);
}

TEST_F(Mismatch, AnotherVersionIsNamedAsSuch) {
  connect();
  EXPECT_EQ(hear("GPUSOCK1" + std::string(80, '\0')),
            "the peer speaks another version of gpusock: build both ends alike");
}

TEST_F(Mismatch, AListenerSaysWhatAPlainClientNeeds) {
  accept();
  EXPECT_EQ(hear(""), "the peer has said nothing so far; plain TCP clients need link=tcp on this listener");
  EXPECT_EQ(hear("GET / HTTP/1.1\r\n"),
            "the peer does not speak gpusock: listen with link=tcp to serve plain TCP (it sent 'GET / HTTP/1.1')");
}

TEST_F(Mismatch, APeerThatSpeaksGpusockIsNotDoubted) {
  connect();
  handshake_->advance();
  const auto near = std::move(handshake_);
  fuzz::WireStream far(wire_, true);
  const auto acceptor = make_acceptor_handshake(far, resources_, at_, nobody_);
  far.readable = true;
  acceptor->advance();
  EXPECT_EQ(acceptor->mismatch(), "");
  stream_.readable = true;
  near->advance();
  EXPECT_EQ(near->mismatch(), "");
}

/// What a connector says that meets this acceptor.
std::string heard_by_connector(fuzz::WireStream& near, const Endpoint& asked, const LinkResources& resources,
                               fuzz::WireStream& far, const Endpoint& offered, const LinkResources& others) {
  Nobody nobody;
  const auto connector = make_connector_handshake(near, resources, asked, nobody);
  const auto acceptor = make_acceptor_handshake(far, others, offered, nobody);
  for (int turn = 0; turn < 3; ++turn) {
    connector->advance();
    far.readable = true;
    acceptor->advance();
    near.readable = true;
  }
  EXPECT_EQ(acceptor->mismatch(), "") << "whoever connects is told; a listener's log is not filled by strangers";
  return connector->mismatch();
}

TEST_F(Mismatch, WhoConnectsIsToldWhatToSetAlike) {
  fuzz::WireStream far(wire_, true);
  LinkResources others = resources_;
  others.secret = "another";
  EXPECT_EQ(heard_by_connector(stream_, at_, resources_, far, at_, others),
            "the two sides have different secrets: set the same GPUSOCK_SECRET for both");
  Endpoint records = at_;
  records.type = SocketType::seqpacket;
  *wire_ = {};
  EXPECT_EQ(heard_by_connector(stream_, at_, resources_, far, records, resources_),
            "that listener's connections carry records: add type=seqpacket");
  *wire_ = {};
  EXPECT_EQ(heard_by_connector(stream_, records, resources_, far, at_, resources_),
            "that listener's connections are streams: leave out type=seqpacket");
}

template <class Message>
std::string bytes_of(const Message& message) {
  return {reinterpret_cast<const char*>(&message), sizeof message};
}

TEST_F(Mismatch, PeersWithoutACommonLinkAreToldWhatThereIs) {
  accept();
  Hello hello;
  hello.links = link_bit(LinkKind::p2p) | link_bit(LinkKind::verbs);
  EXPECT_EQ(hear(bytes_of(hello)), "the peers have no link in common (here: tcp; the peer: p2p verbs)");
  EXPECT_EQ(handshake_->error(), EPROTONOSUPPORT);

  *wire_ = {};
  connect();
  Reply reply;
  reply.error = EPROTONOSUPPORT;
  EXPECT_EQ(hear(bytes_of(reply)), "the peers have no link in common (here: tcp)");
  EXPECT_EQ(handshake_->error(), EPROTONOSUPPORT);
}

/// A context's caller and its peers, by a clock that is a number.
class MismatchedContext : public testing::Test {
 protected:
  void SetUp() override { node_.start(); }
  Socket connect() { return node_.net.connect(this_thread(), fuzz::WireStream::here(), Deadline::never()); }

  fuzz::Node node_;
};

TEST_F(MismatchedContext, AnEchoingServerIsAnErrorAtOnce) {
  node_.beside = [&] { std::exchange(node_.network.last()->from_node, "").swap(node_.network.last()->to_node); };
  EXPECT_EQ(connect(), -EPROTO);
  EXPECT_LT(node_.now_ns, 1'000'000'000u);
}

TEST_F(MismatchedContext, ALinkThatThisContextLacksIsNamedAndThePeerIsNotBlamed) {
  Endpoint to = fuzz::WireStream::here();
  to.link = LinkKind::verbs;
  testing::internal::CaptureStderr();
  EXPECT_EQ(node_.net.connect(this_thread(), to, Deadline::never()), -EPROTONOSUPPORT);
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_NE(log.find("this context has no link verbs; gpusock-doctor says why"), std::string::npos) << log;
  EXPECT_EQ(log.find("add link=tcp"), std::string::npos) << log;
}

TEST_F(MismatchedContext, ASilentServerIsDoubtedWhileItIsWaitedFor) {
  std::vector<std::string> reasons;
  node_.beside = [&] {
    for (const SocketInfo& info : node_.proxy->sockets(node_.now_ns)) reasons.push_back(info.link_reason);
  };
  EXPECT_EQ(connect(), -ETIMEDOUT);
  ASSERT_FALSE(reasons.empty());
  EXPECT_NE(reasons[reasons.size() / 2].find("add link=tcp"), std::string::npos) << reasons[reasons.size() / 2];
}

TEST_F(MismatchedContext, APlainClientIsDoubtedAndSentAway) {
  ASSERT_GE(node_.net.listen(this_thread(), fuzz::WireStream::here(), 4, Deadline::now()), 0);
  const auto plain = node_.network.arrive();
  node_.turn(2);
  const auto all = node_.proxy->sockets(node_.now_ns);
  ASSERT_EQ(all.size(), 2u);
  EXPECT_NE(all[1].link_reason.find("link=tcp on this listener"), std::string::npos) << all[1].link_reason;
  plain->to_node = "GET / HTTP/1.1\r\n\r\n";
  node_.turn(2);
  EXPECT_TRUE(plain->node_gone);
}

}  // namespace
}  // namespace gpusock::proxy::mismatch
