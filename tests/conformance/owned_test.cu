// What OwnedSocket promises: calls as by any Net, -EBADF once another group has closed the socket, and no lost socket.
#include <gpusock/owned_socket.cuh>

#include "tests/conformance/party.cuh"

namespace gpusock::conformance::owned {
namespace {

Options few_sockets() {
  Options options;
  options.ring_bytes = 4 << 10;
  options.sockets_max = 2;
  options.connections_max = 4;
  return options;
}

template <class Kind>
class Owned : public PartiesOnLink<Kind> {
 protected:
  Owned() : PartiesOnLink<Kind>(few_sockets()) {}

  Mapped<std::uint8_t> buffer_{this->party_.context, 64};
  Mapped<std::uint8_t> other_buffer_{this->other_.context, 64};
};

using Cases = testing::Types<OnLink<BlockScope, LinkKind::tcp>,
#if !defined(__CUDACC__)
                             OnLink<WarpScope, LinkKind::p2p>, OnLink<ThreadScope, LinkKind::p2p>,
#endif
                             OnLink<BlockScope, LinkKind::p2p>>;
TYPED_TEST_SUITE(Owned, Cases, OnLinkName);

constexpr int kConnections = 5;  // more than there are sockets: each is given back
constexpr int kMessages = 40;

/// Accepts one connection after another, owns it, and sends back what comes; sometimes from the ring itself.
struct EchoOwned {
  Endpoint at;
  Report* report;
  std::uint8_t* buffer;

  template <class Group>
  GPUSOCK_FN std::int64_t echo(const Group& group, OwnedSocket<Group>& client) {
    const gpusock::Net& net = client.net();
    for (std::int64_t count = 0;; ++count) {
      if (count % 3 == 0) {
        const Span arrived = net.peek(group, client.socket(), 8, patience());
        if (arrived.size <= 0) return arrived.size == 0 ? count : arrived.size;
        const std::uint8_t byte = *static_cast<const std::uint8_t*>(arrived.data);
        const Span room = net.reserve(group, client.socket(), 1, patience());
        if (room.size != 1) return room.size;
        if (group.thread_rank() == 0) *static_cast<std::uint8_t*>(room.data) = byte;
        if (const int error = net.commit(group, client.socket(), 1); error != 0) return error;
        if (const int error = net.release(group, client.socket(), 1); error != 0) return error;
      } else {
        const auto got = net.recv(group, client.socket(), buffer, 1, 0, patience());
        if (got <= 0) return got == 0 ? count : got;
        if (const auto sent = net.send(group, client.socket(), buffer, 1, 0, patience()); sent != 1) return sent;
      }
    }
  }

  template <class Group>
  GPUSOCK_FN void operator()(const Group& group, const gpusock::Net& net) {
    const Socket listener = net.listen(group, at, 16, patience());
    if (group.thread_rank() == 0) {
      net.getsockname(listener, report->where);
      report->listening.raise();
    }
    for (int i = 0; i < kConnections; ++i) {
      OwnedSocket client(group, net, net.accept(group, listener, patience()));
      note(group, report, i, client.error() != 0 ? client.error() : echo(group, client));
    }
    OwnedSocket own_listener(group, net, listener);
    note(group, report, 5, own_listener.release() == listener && own_listener.error() == -EBADF);
    OwnedSocket none(group, net, -ETIMEDOUT);
    note(group, report, 6, none.error());
    OwnedSocket closed(group, net, listener);
    const Socket nested = OwnedSocket(group, closed.net(), listener).error();
    note(group, report, 7, 1000 * nested + closed.close());
  }
};

struct AskOwner {
  Endpoint to;
  Report* report;
  std::uint8_t* buffer;
  void operator()(const ThisThread& group, const gpusock::Net& net) {
    for (int i = 0; i < kConnections; ++i) {
      OwnedSocket server(group, net, net.connect(group, to, patience()));
      std::int64_t right = server.error();
      for (int message = 0; message < kMessages; ++message) {
        *buffer = byte_at(static_cast<std::uint64_t>(message));
        server.net().send(group, server.socket(), buffer, 1, 0, patience());
        buffer[1] = 0;
        server.net().recv(group, server.socket(), buffer + 1, 1, 0, patience());
        right += buffer[1] == buffer[0];
      }
      report->result[i] = right;
    }
  }
};

TYPED_TEST(Owned, EachConnectionIsServedAndItsSocketGivenBack) {
  this->party_.start(EchoOwned{loopback(TypeParam::kLink), &this->party_.report(), this->buffer_.data()});
  ASSERT_TRUE(this->party_.report().listening.wait());
  this->other_.start(AskOwner{this->party_.report().where, &this->other_.report(), this->other_buffer_.data()});
  this->other_.join();
  this->party_.join();
  for (int i = 0; i < kConnections; ++i) {
    EXPECT_EQ(this->party_.result(i), kMessages) << "messages that the owner sent back, or its error";
    EXPECT_EQ(this->other_.result(i), kMessages) << "that came back right";
  }
  EXPECT_EQ(this->party_.result(5), 1) << "release returns the socket";
  EXPECT_EQ(this->party_.result(6), -ETIMEDOUT) << "instead of a socket";
  EXPECT_EQ(this->party_.result(7), 1000 * -EINVAL) << "owned by its owner's Net; closed by the owner";
}

/// Two connected sockets of host threads.
class OwnedPair : public testing::Test {
 protected:
  void SetUp() override {
    Endpoint where;
    listener_ = net_.listen(group_, loopback(LinkKind::p2p), 4, patience());
    ASSERT_EQ(net_.getsockname(listener_, where), 0);
    socket_ = other_net_.connect(group_, where, patience());
    peer_ = net_.accept(group_, listener_, patience());
    ASSERT_GE(socket_, 0);
    ASSERT_GE(peer_, 0);
  }

  bool peer_sees_the_end() {
    char byte;
    return net_.recv(group_, peer_, &byte, 1, 0, patience()) <= 0;
  }

  ThisThread group_ = this_thread();
  Context context_{few_sockets()}, other_{few_sockets()};
  gpusock::Net net_ = context_.net(), other_net_ = other_.net();
  Socket listener_ = -1, socket_ = -1, peer_ = -1;
};

TEST_F(OwnedPair, IsClosedByOthersAtOnceForItsOwnerAndForThePeerWhenTheOwnerEnds) {
  char byte = 0;
  {
    OwnedSocket owned(group_, other_net_, socket_);
    ASSERT_EQ(owned.net().send(group_, socket_, "a", 1, 0, patience()), 1);
    ASSERT_EQ(other_net_.send(group_, socket_, "b", 1, 0, patience()), 1) << "others use it as well";
    ASSERT_EQ(other_net_.close(group_, socket_), 0);
    EXPECT_EQ(owned.net().send(group_, socket_, "c", 1, 0, patience()), -EBADF);
    EXPECT_EQ(owned.net().recv(group_, socket_, &byte, 1, 0, patience()), -EBADF);
    char got[3] = {};
    EXPECT_EQ(net_.recv(group_, peer_, got, 2, kWaitAll, patience()), 2);
    EXPECT_STREQ(got, "ab");
    EXPECT_EQ(net_.recv(group_, peer_, &byte, 1, kDontWait), -EAGAIN) << "the connection lasts as long as the owner";
    EXPECT_EQ(owned.close(), -EBADF);
  }
  EXPECT_TRUE(peer_sees_the_end());
}

TEST_F(OwnedPair, WhatTheOwnerStillHoldsIsGivenUp) {
  ASSERT_EQ(net_.send(group_, peer_, "hello", 5, 0, patience()), 5);
  {
    OwnedSocket owned(group_, other_net_, socket_);
    ASSERT_GT(owned.net().reserve(group_, socket_, 100, patience()).size, 0);
    ASSERT_GT(owned.net().peek(group_, socket_, 5, patience()).size, 0);
    EXPECT_EQ(owned.release(), socket_);
    EXPECT_EQ(owned.net().commit(group_, socket_, 1), -EINVAL) << "nothing is reserved any more";
  }
  char got[6] = {};
  EXPECT_EQ(other_net_.recv(group_, socket_, got, 5, kWaitAll, patience()), 5) << "nothing was taken";
  EXPECT_STREQ(got, "hello");
  EXPECT_EQ(other_net_.send(group_, socket_, "x", 1, 0, patience()), 1);
  EXPECT_EQ(other_net_.close(group_, socket_), 0);
  EXPECT_EQ(net_.recv(group_, peer_, got, 1, 0, patience()), 1);
  EXPECT_TRUE(peer_sees_the_end()) << "nobody is counted in";
}

TEST_F(OwnedPair, OfTwoOwnersEachGivesUpWhatItHolds) {
  ASSERT_EQ(net_.send(group_, peer_, "hello", 5, 0, patience()), 5);
  {
    OwnedSocket receiver(group_, other_net_, socket_);
    ASSERT_EQ(receiver.net().peek(group_, socket_, 5, patience()).size, 5);
    {
      OwnedSocket sender(group_, other_net_, socket_);
      ASSERT_EQ(sender.error(), 0);
      ASSERT_EQ(sender.net().reserve(group_, socket_, 2, patience()).size, 2);
      EXPECT_EQ(sender.net().commit(group_, socket_, 2), 0);
      EXPECT_EQ(sender.release(), socket_);
    }
    EXPECT_EQ(receiver.net().release(group_, socket_, 5), 0) << "still held";
    EXPECT_EQ(receiver.close(), 0);
  }
  char got[2];
  EXPECT_EQ(net_.recv(group_, peer_, got, 2, kWaitAll, patience()), 2);
  EXPECT_TRUE(peer_sees_the_end()) << "nobody is counted in";
}

TEST_F(OwnedPair, AnOwnerMayChangeToAnotherSocket) {
  OwnedSocket owner(group_, net_, -EBADF);
  EXPECT_EQ(owner.change(peer_), 0);
  ASSERT_GT(owner.net().reserve(group_, peer_, 100, patience()).size, 0);
  EXPECT_EQ(owner.change(peer_), 0);
  EXPECT_EQ(owner.net().commit(group_, peer_, 1), 0) << "the reservation is there: nothing has changed";
  EXPECT_EQ(owner.change(listener_), 0);
  EXPECT_EQ(owner.socket(), listener_);
  ASSERT_EQ(net_.close(group_, peer_), 0);
  char byte;
  EXPECT_EQ(other_net_.recv(group_, socket_, &byte, 1, 0, patience()), 1);
  EXPECT_LE(other_net_.recv(group_, socket_, &byte, 1, 0, patience()), 0) << "it is owned no longer";
  EXPECT_EQ(owner.change(peer_), -EBADF);
  EXPECT_EQ(owner.net().send(group_, peer_, "x", 1, 0, patience()), -EBADF);
  EXPECT_EQ(owner.change(-ETIMEDOUT), -ETIMEDOUT);
}

TEST_F(OwnedPair, AReservationMayBeEndedByTheOtherKindOfNet) {
  {
    OwnedSocket owned(group_, other_net_, socket_);
    ASSERT_EQ(other_net_.reserve(group_, socket_, 1, patience()).size, 1);
    EXPECT_EQ(owned.net().commit(group_, socket_, 1), 0);
    ASSERT_EQ(owned.net().reserve(group_, socket_, 1, patience()).size, 1);
    EXPECT_EQ(other_net_.commit(group_, socket_, 1), 0);
    EXPECT_EQ(owned.release(), socket_);
  }
  char got[2];
  EXPECT_EQ(net_.recv(group_, peer_, got, 2, kWaitAll, patience()), 2);
  EXPECT_EQ(other_net_.close(group_, socket_), 0);
  EXPECT_TRUE(peer_sees_the_end()) << "each was counted out as it was counted in";
}

}  // namespace
}  // namespace gpusock::conformance::owned
