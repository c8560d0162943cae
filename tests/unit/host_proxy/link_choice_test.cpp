// Which link two peers agree on, when links cannot be set up, and when somebody in between changes what they say.
#include "host_proxy/memory/segment.hpp"
#include "host_proxy/negotiation/handshake.hpp"

#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace gpusock::proxy {
namespace {

/// One end of a byte stream inside the test.
class Pipe final : public ByteStream {
 public:
  std::int64_t read(std::span<const iovec> into) override {
    if (inbox.empty()) return -EAGAIN;
    const std::size_t count = std::min(inbox.size(), into[0].iov_len);
    std::copy_n(inbox.begin(), count, static_cast<char*>(into[0].iov_base));
    inbox.erase(inbox.begin(), inbox.begin() + static_cast<std::ptrdiff_t>(count));
    return static_cast<std::int64_t>(count);
  }
  std::int64_t write(std::span<const iovec> from) override {
    std::string bytes(static_cast<const char*>(from[0].iov_base), from[0].iov_len);
    if (tamper) tamper(++messages, bytes);
    other->inbox.insert(other->inbox.end(), bytes.begin(), bytes.end());
    return static_cast<std::int64_t>(from[0].iov_len);
  }
  int connected() override { return 0; }
  int take_error() override { return 0; }
  void end_writing() override {}
  void reset_on_close() override {}
  Endpoint local() const override { return {}; }
  Endpoint peer() const override { return {}; }

  Pipe* other = nullptr;
  std::deque<char> inbox;
  int messages = 0;
  std::function<void(int, std::string&)> tamper;
};

class NobodyListens final : public ReadySink {
  void on_ready() override {}
};

/// What goes wrong with a fake link.
enum class Fault { none, offer, answer, take };

class FakeSetup final : public LinkSetup {
 public:
  FakeSetup(bool fails, bool takes, std::string message) : fails_(fails), takes_(takes), message_(std::move(message)) {
    failure_ = {ENOBUFS, "out of\nluck"};
  }
  State advance() override { return ++turns_ < 3 ? State::waiting : fails_ ? State::failed : State::ready; }
  std::span<const std::byte> message() const override { return std::as_bytes(std::span(message_)); }
  bool take_answer(std::span<const std::byte> answer) override { return takes_ && answer.size() == 6; }
  std::unique_ptr<Link> make_link(const table::RingPair&, std::unique_ptr<ByteStream>&&, LinkEvents&) override {
    return nullptr;
  }

 private:
  bool fails_;
  bool takes_;
  std::string message_;
  int turns_ = 0;
};

class FakeMaker final : public LinkMaker {
 public:
  FakeMaker(LinkKind kind, Fault fault) : kind_(kind), fault_(fault) {}
  LinkKind kind() const override { return kind_; }
  std::unique_ptr<LinkSetup> start(const LinkRequest& request, std::span<const std::byte> offer, ReadySink&) override {
    if (request.acceptor) {
      return std::make_unique<FakeSetup>(fault_ == Fault::offer, fault_ != Fault::take, "offer");
    }
    offered.assign(reinterpret_cast<const char*>(offer.data()), offer.size());
    return std::make_unique<FakeSetup>(fault_ == Fault::answer, true, "answer");
  }

  std::string offered;

 private:
  LinkKind kind_;
  Fault fault_;
};

struct Side {
  std::vector<std::unique_ptr<FakeMaker>> makers;
  LinkResources resources;
  std::unique_ptr<Handshake> handshake;
  Pipe pipe;

  void add(LinkKind kind, Fault fault = Fault::none) {
    makers.push_back(std::make_unique<FakeMaker>(kind, fault));
    resources.makers.push_back(makers.back().get());
  }
};

class LinkChoice : public testing::Test {
 protected:
  LinkChoice() {
    connector_.pipe.other = &acceptor_.pipe;
    acceptor_.pipe.other = &connector_.pipe;
    connector_.resources.secret = acceptor_.resources.secret = "swordfish";
    connector_.resources.record_ring_bytes = acceptor_.resources.record_ring_bytes = 64 << 10;
  }

  void shake(LinkKind wanted = LinkKind::automatic) {
    Endpoint to, at;
    to.link = wanted;
    acceptor_.handshake = make_acceptor_handshake(acceptor_.pipe, acceptor_.resources, at, nobody_);
    connector_.handshake = make_connector_handshake(connector_.pipe, connector_.resources, to, nobody_);
    for (int i = 0; i < 100; ++i) {
      connected_ = connector_.handshake->advance();
      accepted_ = acceptor_.handshake->advance();
    }
  }

  void expect_agreed(LinkKind kind) {
    ASSERT_EQ(connected_, Handshake::State::done) << strerror(connector_.handshake->error());
    ASSERT_EQ(accepted_, Handshake::State::done) << strerror(acceptor_.handshake->error());
    EXPECT_EQ(connector_.handshake->kind(), kind);
    EXPECT_EQ(acceptor_.handshake->kind(), kind);
    EXPECT_NE(connector_.handshake->take_setup(), nullptr);
    EXPECT_NE(acceptor_.handshake->take_setup(), nullptr);
  }

  void expect_failed(int connector_error, int acceptor_error) {
    EXPECT_EQ(connected_, Handshake::State::failed);
    EXPECT_EQ(accepted_, Handshake::State::failed);
    EXPECT_EQ(connector_.handshake->error(), connector_error) << strerror(connector_.handshake->error());
    EXPECT_EQ(acceptor_.handshake->error(), acceptor_error) << strerror(acceptor_.handshake->error());
  }

  Side connector_, acceptor_;
  NobodyListens nobody_;
  Handshake::State connected_ = Handshake::State::waiting, accepted_ = Handshake::State::waiting;
};

TEST_F(LinkChoice, TheBestThatBothHaveInTheAcceptorsOrder) {
  for (const LinkKind kind : {LinkKind::p2p, LinkKind::verbs, LinkKind::tcp}) acceptor_.add(kind);
  for (const LinkKind kind : {LinkKind::tcp, LinkKind::fabric, LinkKind::verbs}) connector_.add(kind);
  shake();
  expect_agreed(LinkKind::verbs);
  EXPECT_EQ(connector_.makers[2]->offered, "offer");
  EXPECT_EQ(connector_.handshake->reasons(), "");
  EXPECT_FALSE(connector_.handshake->found_no_room());
}

TEST_F(LinkChoice, ANamedLinkAndNoOther) {
  for (const LinkKind kind : {LinkKind::verbs, LinkKind::fabric, LinkKind::tcp}) {
    acceptor_.add(kind);
    connector_.add(kind, kind == LinkKind::fabric ? Fault::answer : Fault::none);
  }
  shake(LinkKind::tcp);
  expect_agreed(LinkKind::tcp);
  shake(LinkKind::fabric);
  expect_failed(ENOBUFS, ENOBUFS);
}

class FallingBack : public LinkChoice, public testing::WithParamInterface<Fault> {};

TEST_P(FallingBack, TheNextBestIsTakenAndBothKnowWhy) {
  acceptor_.add(LinkKind::verbs, GetParam() == Fault::answer ? Fault::none : GetParam());
  acceptor_.add(LinkKind::tcp);
  connector_.add(LinkKind::verbs, GetParam() == Fault::answer ? Fault::answer : Fault::none);
  connector_.add(LinkKind::tcp);
  shake();
  expect_agreed(LinkKind::tcp);
  const std::string own = "verbs: out of\nluck", told = "verbs: the peer: out of?luck";  // a peer's words are made
                                                                                         // printable
  const bool connectors = GetParam() == Fault::answer;
  EXPECT_EQ(connector_.handshake->reasons(), connectors ? own : told);
  EXPECT_EQ(acceptor_.handshake->reasons(), connectors ? told : own);
  EXPECT_TRUE(connector_.handshake->found_no_room()) << "ENOBUFS, of whichever side";
}
INSTANTIATE_TEST_SUITE_P(Faults, FallingBack, testing::Values(Fault::offer, Fault::answer, Fault::take));

TEST_F(LinkChoice, NoneIsLeft) {
  acceptor_.add(LinkKind::verbs, Fault::offer);
  acceptor_.add(LinkKind::fabric);
  connector_.add(LinkKind::verbs);
  connector_.add(LinkKind::fabric, Fault::answer);
  shake();
  expect_failed(ENOBUFS, ENOBUFS);
  EXPECT_EQ(connector_.handshake->reasons(), "verbs: the peer: out of?luck; fabric: out of\nluck");
}

/// Whoever changes a byte of any message, on either way, prevents the connection and changes nothing else.
TEST_F(LinkChoice, AChangedByteIsNoticed) {
  for (const bool from_connector : {true, false}) {
    for (int message = 1; message <= 3; ++message) {
      for (const std::size_t back : {1u, 33u, 48u}) {  // of the proof, of what it proves, of the header
        Side fresh_connector, fresh_acceptor;
        std::swap(connector_.makers, fresh_connector.makers);
        connector_.resources.makers.clear();
        std::swap(acceptor_.makers, fresh_acceptor.makers);
        acceptor_.resources.makers.clear();
        connector_.pipe.inbox.clear();
        acceptor_.pipe.inbox.clear();
        connector_.pipe.messages = acceptor_.pipe.messages = 0;
        for (Side* side : {&connector_, &acceptor_}) {
          side->add(LinkKind::verbs);
          side->add(LinkKind::tcp);
          side->pipe.tamper = nullptr;
        }
        Pipe& pipe = from_connector ? connector_.pipe : acceptor_.pipe;
        pipe.tamper = [&](int which, std::string& bytes) {
          if (which == message && bytes.size() >= back)
            bytes[bytes.size() - back] = static_cast<char>(bytes[bytes.size() - back] ^ 1);
        };
        shake();
        EXPECT_FALSE(connected_ == Handshake::State::done && accepted_ == Handshake::State::done)
            << "message " << message << " of the " << (from_connector ? "connector" : "acceptor") << ", " << back
            << " from its end";
      }
    }
  }
}

}  // namespace
}  // namespace gpusock::proxy
