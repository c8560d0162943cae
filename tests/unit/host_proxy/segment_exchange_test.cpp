// Visitors of the Unix socket through which rings are shared: who is silent keeps nobody else out.
#include "host_proxy/segment_exchange.hpp"

#include <gtest/gtest.h>

#include <sys/socket.h>
#include <sys/un.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <vector>

namespace gpusock::proxy {
namespace {

class SegmentExchange : public testing::Test {
 protected:
  /// Another process, as far as the offers can tell.
  Descriptor visit() {
    Descriptor visitor(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path + 1, offers_.name().data(), offers_.name().size());
    const auto bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + offers_.name().size());
    EXPECT_EQ(::connect(visitor.get(), reinterpret_cast<sockaddr*>(&address), bytes), 0);
    return visitor;
  }

  void serve() {
    network_.poll();
    offers_.serve();
  }

  /// What the visitor gets without waiting: bytes, 0 where it was sent away, -EAGAIN while there is nothing.
  static int answer(const Descriptor& visitor) {
    char byte = 0;
    const auto got = ::recv(visitor.get(), &byte, 1, MSG_DONTWAIT);
    return got >= 0 ? static_cast<int>(got) : -errno;
  }

  std::shared_ptr<Platform> platform_ = std::make_shared<HostPlatform>();
  PosixNetwork network_;
  SegmentOffers offers_{network_};
};

TEST_F(SegmentExchange, ATicketIsGoodForOneVisitor) {
  const auto segment = std::make_shared<Segment>(platform_, 64 << 10);
  const Ticket ticket = offers_.offer(segment);
  for (const int expected : {1, 0}) {
    const Descriptor visitor = visit();
    ASSERT_EQ(::send(visitor.get(), ticket.data(), ticket.size(), MSG_NOSIGNAL), static_cast<ssize_t>(ticket.size()));
    serve();
    EXPECT_EQ(answer(visitor), expected);
  }
}

TEST_F(SegmentExchange, SilentVisitorsHoldALimitedNumberOfDescriptors) {
  const auto segment = std::make_shared<Segment>(platform_, 64 << 10);
  const Ticket ticket = offers_.offer(segment);
  std::vector<Descriptor> silent;
  for (int i = 0; i < 300; ++i) silent.push_back(visit());
  serve();
  EXPECT_EQ(answer(silent.front()), 0) << "the first was sent away";
  EXPECT_EQ(answer(silent.back()), -EAGAIN) << "the last may still say something";
  const Descriptor honest = visit();
  ASSERT_EQ(::send(honest.get(), ticket.data(), ticket.size(), MSG_NOSIGNAL), static_cast<ssize_t>(ticket.size()));
  serve();
  EXPECT_EQ(answer(honest), 1);
}

}  // namespace
}  // namespace gpusock::proxy
