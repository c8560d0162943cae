// The Unix socket through which rings are shared: visitors that say nothing, many at once, and a backlog that is full.
#include "gpusock/cpu/host_platform.hpp"
#include "host_proxy/links/p2p/segment_exchange.hpp"
#include "host_proxy/links/p2p/unix_socket.hpp"

#include <gtest/gtest.h>

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <utility>
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

/// A gift is the lasting ticket, another one, and a descriptor. All else is no gift, and the visitor is sent away.
TEST_F(SegmentExchange, GiftsAreTakenWithTheLastingTicket) {
  const Descriptor lasting(::open("/dev/null", O_RDONLY | O_CLOEXEC)), gift(::open("/dev/zero", O_RDONLY | O_CLOEXEC));
  const Ticket ticket{1}, giver{2};
  std::vector<Ticket> givers;
  offers_.offer_for_good(ticket, lasting.get(), [&](const Ticket& says, Descriptor given, Descriptor connection) {
    givers.push_back(says);
    char byte = 1;
    EXPECT_EQ(::read(given.get(), &byte, 1), 1);
    EXPECT_EQ(byte, 0);
    EXPECT_TRUE(send_byte(connection.get(), std::byte{7}));
  });
  const auto give = [&](std::vector<Ticket> says, std::size_t bytes, std::vector<int> descriptors) {
    const Descriptor visitor = visit();
    iovec vector{says.data(), bytes};
    alignas(cmsghdr) char control[64] = {};
    msghdr message{};
    message.msg_iov = &vector;
    message.msg_iovlen = 1;
    if (!descriptors.empty()) {
      message.msg_control = control;
      message.msg_controllen = CMSG_SPACE(descriptors.size() * sizeof(int));
      cmsghdr* const header = CMSG_FIRSTHDR(&message);
      header->cmsg_level = SOL_SOCKET;
      header->cmsg_type = SCM_RIGHTS;
      header->cmsg_len = CMSG_LEN(descriptors.size() * sizeof(int));
      std::memcpy(CMSG_DATA(header), descriptors.data(), descriptors.size() * sizeof(int));
    }
    EXPECT_EQ(::sendmsg(visitor.get(), &message, MSG_NOSIGNAL), static_cast<ssize_t>(bytes));
    serve();
    return answer(visitor);
  };
  const int file = gift.get();
  EXPECT_EQ(give({ticket, giver}, 32, {file}), 1);
  EXPECT_EQ(givers, std::vector<Ticket>{giver});
  EXPECT_EQ(give({ticket, giver}, 32, {}), 0) << "nothing is given";
  EXPECT_EQ(give({giver, giver}, 32, {file}), 0) << "another ticket";
  EXPECT_EQ(give({ticket, giver}, 31, {file}), 0);
  EXPECT_EQ(give({ticket, giver, giver}, 33, {file}), 0);
  EXPECT_EQ(give({ticket, giver}, 32, {file, file}), 0) << "two";
  EXPECT_EQ(give({ticket, giver}, 32, {file, file, file}), 0);
  EXPECT_EQ(give({ticket}, 16, {file}), 0) << "who asks gives nothing";
  EXPECT_EQ(give({ticket}, 1, {file}), 0);
  EXPECT_EQ(givers.size(), 1u);
  EXPECT_EQ(give({ticket}, 16, {}), 1) << "what is asked for is given as before";
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

// More than may be silent at once, in one step: each has said its ticket before it is accepted.
TEST_F(SegmentExchange, ManyVisitorsAtOnceAreAllServed) {
  constexpr int kVisitors = 300;
  const auto segment = std::make_shared<Segment>(platform_, 64 << 10);
  std::vector<Descriptor> visitors;
  for (int i = 0; i < kVisitors; ++i) {
    const Ticket ticket = offers_.offer(segment);
    visitors.push_back(visit());
    ASSERT_EQ(::send(visitors.back().get(), ticket.data(), ticket.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(ticket.size()));
  }
  serve();
  int served = 0;
  for (const Descriptor& visitor : visitors) served += answer(visitor) == 1;
  EXPECT_EQ(served, kVisitors);
}

/// A Unix socket that listens at any abstract name. The process that has it offers memory there.
struct UnixListener {
  UnixListener(int flags, int backlog) : socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | flags, 0)) {
    address.sun_family = AF_UNIX;
    EXPECT_EQ(bind(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address.sun_family), 0);
    EXPECT_EQ(::listen(socket.get(), backlog), 0);
    getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &address_bytes);
    name.assign(address.sun_path + 1, address_bytes - offsetof(sockaddr_un, sun_path) - 1);
  }

  Descriptor socket;
  sockaddr_un address{};
  socklen_t address_bytes = sizeof address;
  std::string name;
};

/// A process that offers memory, as another process sees it: it answers each visitor with the memory, and closes at
/// once.
class OfferingProcess {
 public:
  explicit OfferingProcess(int memory) : memory_(memory) {
    thread_ = std::thread([this] { serve(); });
  }
  ~OfferingProcess() {
    ::shutdown(listener_.socket.get(), SHUT_RDWR);
    thread_.join();
  }

  const std::string& name() const { return listener_.name; }

 private:
  void serve() {
    for (;;) {
      const Descriptor visitor(accept4(listener_.socket.get(), nullptr, nullptr, SOCK_CLOEXEC));
      if (!visitor) return;
      char ticket[16];
      if (::recv(visitor.get(), ticket, sizeof ticket, 0) != sizeof ticket) continue;
      char byte = 1;
      iovec part{&byte, 1};
      alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
      msghdr message{};
      message.msg_iov = &part;
      message.msg_iovlen = 1;
      message.msg_control = control;
      message.msg_controllen = sizeof control;
      cmsghdr* header = CMSG_FIRSTHDR(&message);
      header->cmsg_level = SOL_SOCKET;
      header->cmsg_type = SCM_RIGHTS;
      header->cmsg_len = CMSG_LEN(sizeof(int));
      std::memcpy(CMSG_DATA(header), &memory_, sizeof memory_);
      sendmsg(visitor.get(), &message, MSG_NOSIGNAL);
    }
  }

  int memory_;
  UnixListener listener_{0, 1};
  std::thread thread_;
};

struct NobodyToTell final : ReadySink {
  void on_ready() override {}
};

// Each fetch races with the message and the close behind it: one call in thousands gives 0 although the message is
// there.
TEST_F(SegmentExchange, MemoryArrivesAlthoughItsSenderClosesAtOnce) {
  const Segment segment(platform_, 64 << 10);
  const OfferingProcess process(segment.descriptor());
  SegmentPool pool(platform_, {64 << 10, 64 << 10}, 0, RingPlacement::host);
  NobodyToTell nobody;
  FullBacklogs backlogs;
  for (int round = 0; round < 2'000; ++round) {
    SegmentFetch fetch(network_, pool, backlogs, process.name(), Ticket{}, segment.ring_bytes(), nobody);
    SegmentFetch::State state = SegmentFetch::State::waiting;
    while ((state = fetch.advance()) == SegmentFetch::State::waiting) {
    }
    ASSERT_EQ(state, SegmentFetch::State::done) << "round " << round;
  }
}

/// A listening Unix socket with room for one connection, which nobody has accepted.
class FullListener {
 public:
  FullListener() : first_(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)) {
    EXPECT_EQ(::connect(first_.get(), reinterpret_cast<sockaddr*>(&listener_.address), listener_.address_bytes), 0);
  }

  const std::string& name() const { return listener_.name; }
  /// The next connection, without waiting.
  Descriptor accept() { return Descriptor(accept4(listener_.socket.get(), nullptr, nullptr, SOCK_CLOEXEC)); }
  void close() { listener_.socket.reset(-1); }

 private:
  UnixListener listener_{SOCK_NONBLOCK, 0};
  Descriptor first_;
};

struct CountingSink final : ReadySink {
  void on_ready() override { ++told; }
  int told = 0;
};

TEST_F(SegmentExchange, AFullBacklogIsTriedAgainUntilThereIsRoom) {
  FullListener listener;
  SegmentPool pool(platform_, {64 << 10, 64 << 10}, 0, RingPlacement::host);
  CountingSink sink;
  FullBacklogs backlogs;
  const Ticket ticket{1, 2, 3};
  SegmentFetch fetch(network_, pool, backlogs, listener.name(), ticket, 64 << 10, sink);
  for (int step = 1; step <= 3; ++step) {
    EXPECT_EQ(fetch.advance(), SegmentFetch::State::waiting);
    EXPECT_FALSE(backlogs.empty()) << "the proxy must not sleep: the system will not tell when there is room";
    backlogs.tell();
    EXPECT_EQ(sink.told, step);
  }
  ASSERT_TRUE(listener.accept());
  EXPECT_EQ(fetch.advance(), SegmentFetch::State::waiting);
  EXPECT_TRUE(backlogs.empty());
  const Descriptor accepted = listener.accept();
  ASSERT_TRUE(accepted) << "it has connected";
  Ticket said{};
  EXPECT_EQ(::recv(accepted.get(), said.data(), said.size(), MSG_DONTWAIT), static_cast<ssize_t>(said.size()));
  EXPECT_EQ(said, ticket);
}

TEST_F(SegmentExchange, AFetchThatIsGivenUpAtAFullBacklogIsNotToldAgain) {
  FullListener listener;
  SegmentPool pool(platform_, {64 << 10, 64 << 10}, 0, RingPlacement::host);
  CountingSink sink;
  FullBacklogs backlogs;
  {
    SegmentFetch fetch(network_, pool, backlogs, listener.name(), Ticket{}, 64 << 10, sink);
    EXPECT_EQ(fetch.advance(), SegmentFetch::State::waiting);
    listener.close();
    EXPECT_EQ(fetch.advance(), SegmentFetch::State::failed) << "nobody listens any more";
    EXPECT_TRUE(backlogs.empty());
  }
  FullListener other;
  { SegmentFetch fetch(network_, pool, backlogs, other.name(), Ticket{}, 64 << 10, sink); }
  EXPECT_TRUE(backlogs.empty());
}

}  // namespace
}  // namespace gpusock::proxy
