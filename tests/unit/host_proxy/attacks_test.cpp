// Attacks on a listener, by unauthenticated clients; on links, by peers that lie; on what is kept secret.
// docs/security.md lists them, with those that other tests play.
#include "gpusock/cpu/host_platform.hpp"
#include "host_proxy/links/control_channel.hpp"
#include "host_proxy/links/p2p/maker.hpp"
#include "host_proxy/links/tcp/maker.hpp"
#include "host_proxy/memory/segment.hpp"
#include "host_proxy/negotiation/handshake.hpp"
#include "tests/fuzz/node.hpp"
#include "tests/fuzz/wire.hpp"
#include "tests/support/folder.hpp"
#include "tests/support/patience.hpp"

#include <gpusock/gpusock.hpp>

#include <gtest/gtest.h>

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <thread>
#include <vector>

namespace gpusock::proxy::attacks {
namespace {

using fuzz::Wire;
using fuzz::WireStream;
using State = Handshake::State;

struct Nobody final : ReadySink {
  void on_ready() override {}
};

/// Unauthenticated clients of a node whose clock is ours.
class UnauthenticatedClients : public testing::Test {
 protected:
  UnauthenticatedClients() {
    node_.start();
    listener_ = node_.net.listen(this_thread(), WireStream::here(), kBacklog, Deadline::now());
    EXPECT_GE(listener_, 0);
  }
  std::size_t in_handshake() {
    std::size_t count = 0;
    for (const SocketInfo& info : node_.proxy->sockets(node_.now_ns)) count += info.handle < 0 ? 1 : 0;
    return count;
  }
  void pass_ms(int milliseconds) { node_.turn(milliseconds); }

  static constexpr int kBacklog = 2;
  fuzz::Node node_;
  Socket listener_ = -1;
};

TEST_F(UnauthenticatedClients, TheirNumberIsLimited) {
  std::vector<std::shared_ptr<Wire>> wires;
  for (int i = 0; i < 20; ++i) wires.push_back(node_.network.arrive());
  pass_ms(5);
  EXPECT_EQ(in_handshake(), std::size_t{kBacklog});
}

TEST_F(UnauthenticatedClients, OneThatTricklesIsEvictedAtTheDeadline) {
  const auto wire = node_.network.arrive();
  const Hello hello{.links = 0xffff};
  const std::string bytes(reinterpret_cast<const char*>(&hello), sizeof hello);
  std::size_t said = 0;
  for (int i = 0; i < 4900; ++i) {
    if (i % 100 == 0) wire->to_node += bytes[said++];
    node_.turn();
  }
  EXPECT_FALSE(wire->node_gone);
  pass_ms(200);
  EXPECT_TRUE(wire->node_gone);
}

TEST_F(UnauthenticatedClients, ThoseThatAreSilentKeepNobodyOutForLong) {
  std::vector<std::shared_ptr<Wire>> silent;
  for (int i = 0; i < 4; ++i) silent.push_back(node_.network.arrive());
  pass_ms(5);
  const auto honest = node_.network.arrive();
  SegmentPool segments(node_.platform, {4096, 4096}, 0);
  TcpMaker tcp(segments);
  const LinkResources resources{{&tcp}, nullptr, 4096, "swordfish"};
  Nobody nobody;
  WireStream stream(honest, true);
  const auto handshake = make_connector_handshake(stream, resources, WireStream::here(), nobody);
  auto state = State::waiting;
  int waited_ms = 0;
  for (; waited_ms < 4000 && state == State::waiting; ++waited_ms) {
    node_.turn();
    state = handshake->advance();
  }
  EXPECT_EQ(state, State::done) << "five seconds' silence of others is too long";
  EXPECT_GE(waited_ms, 400) << "an unauthenticated client gets the time that an honest peer needs";
  EXPECT_TRUE(silent.front()->node_gone) << "who came first goes first";
  EXPECT_GE(node_.net.accept(this_thread(), listener_, Deadline::now()), 0);
}

/// The proxy stands still for a second, so many milliseconds after a client came that answers after 20 ms; others wait
/// meanwhile.
class StandstillOfTheProxy : public UnauthenticatedClients, public testing::WithParamInterface<int> {};

TEST_P(StandstillOfTheProxy, CostsNoClientItsConnection) {
  const auto client = node_.network.arrive();
  std::vector<std::shared_ptr<Wire>> others;
  for (int i = 0; i < kBacklog; ++i) others.push_back(node_.network.arrive());
  SegmentPool segments(node_.platform, {4096, 4096}, 0);
  TcpMaker tcp(segments);
  const LinkResources resources{{&tcp}, nullptr, 4096, "swordfish"};
  Nobody nobody;
  WireStream stream(client, true);
  const auto handshake = make_connector_handshake(stream, resources, WireStream::here(), nobody);
  auto state = State::waiting;
  for (int ms = 0; ms < 200 && state == State::waiting; ++ms) {
    if (ms == GetParam()) node_.now_ns += 1'000'000'000;
    node_.turn();
    if (ms % 20 == 10) state = handshake->advance();
  }
  EXPECT_EQ(state, State::done);
  EXPECT_GE(node_.net.accept(this_thread(), listener_, Deadline::now()), 0);
}

INSTANTIATE_TEST_SUITE_P(After, StandstillOfTheProxy, testing::Range(0, 100, 5),
                         [](const auto& test) { return std::to_string(test.param) + "ms"; });

TEST_F(UnauthenticatedClients, StayWhileThereIsRoomForOthers) {
  const auto silent = node_.network.arrive();
  pass_ms(4000);
  EXPECT_FALSE(silent->node_gone);
}

/// Where there is no memory for good.
class Destitute final : public LinkMaker {
 public:
  LinkKind kind() const override { return LinkKind::fabric; }
  std::unique_ptr<LinkSetup> start(const LinkRequest&, std::span<const std::byte>, ReadySink&) override {
    throw std::bad_alloc();
  }
  bool poll(std::uint64_t) override {
    ++polls;
    if (denied) throw std::bad_alloc();
    return false;
  }
  bool denied = true;
  int polls = 0;
};

TEST(Shortage, AProxySleepsBeforeItTriesAgain) {
  fuzz::Node node;
  Destitute maker;
  node.add(maker);
  node.start();
  constexpr auto kFull = Proxy::Pass::full;
  EXPECT_FALSE(node.proxy->step(node.now_ns, kFull)) << "nothing has moved, and the next step is not due";
  const std::uint64_t due_ns = node.proxy->next_deadline_ns();
  EXPECT_GE(due_ns, node.now_ns + 1'000'000);
  EXPECT_LE(due_ns, node.now_ns + 1'000'000'000);
  EXPECT_FALSE(node.proxy->step(due_ns, kFull));
  EXPECT_GT(node.proxy->next_deadline_ns(), due_ns);
  EXPECT_NE(node.proxy->next_deadline_ns(), detail::kNever) << "it is tried again";
  maker.denied = false;
  node.proxy->step(node.proxy->next_deadline_ns(), kFull);
  EXPECT_EQ(node.proxy->next_deadline_ns(), detail::kNever);
  EXPECT_EQ(maker.polls, 3);
}

struct Heard final : LinkEvents {
  void on_ended(std::uint64_t) override {}
  void on_peer_read_shut_down() override { ++read_shut_down; }
  void on_failed(int failure) override { error = failure; }
  int read_shut_down = 0, error = 0;
};

/// Each kind comes once; a step that went on reading what comes without end would serve nobody else.
TEST(ControlAttack, NoticesWithoutEndEndTheConnection) {
  const auto wire = std::make_shared<Wire>();
  Heard heard;
  ControlChannel channel(std::make_unique<WireStream>(wire), heard);
  const std::uint64_t read_shut_down[] = {2, 0};
  for (int i = 0; i < 1000; ++i)
    wire->to_node.append(reinterpret_cast<const char*>(read_shut_down), sizeof read_shut_down);
  channel.progress();
  EXPECT_EQ(heard.read_shut_down, 1);
  EXPECT_EQ(heard.error, EPROTO);
  EXPECT_EQ(wire->to_node.size(), 998 * sizeof read_shut_down) << "it read on";
}

/// A peer may ask any number of times whether the network still carries anything.
TEST(ControlAttack, ProbesWithoutEndDoNotKeepTheProxy) {
  const auto wire = std::make_shared<Wire>();
  Heard heard;
  ControlChannel channel(std::make_unique<WireStream>(wire), heard);
  const std::uint64_t probe[] = {4, 0}, read_shut_down[] = {2, 0};
  constexpr std::size_t kProbes = 1000;
  for (std::size_t i = 0; i < kProbes; ++i) wire->to_node.append(reinterpret_cast<const char*>(probe), sizeof probe);
  wire->to_node.append(reinterpret_cast<const char*>(read_shut_down), sizeof read_shut_down);
  EXPECT_TRUE(channel.progress());
  EXPECT_GT(wire->to_node.size(), kProbes / 2 * sizeof probe) << "others wait meanwhile";
  while (channel.progress()) continue;
  EXPECT_EQ(heard.read_shut_down, 1);
  EXPECT_EQ(heard.error, 0);
}

/// What a peer offers is fetched from a Unix socket whose name it says: that must be one of ours, whoever else listens
/// on this host.
TEST(P2pAttack, APeerDoesNotChooseWhomThisHostTalksTo) {
  const std::string name = "another-program-of-this-user----";  // as long as ours
  Descriptor listener(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  const auto bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  ASSERT_EQ(bind(listener.get(), reinterpret_cast<sockaddr*>(&address), bytes), 0) << strerror(errno);
  ASSERT_EQ(::listen(listener.get(), 4), 0);

  PosixNetwork network;
  SegmentPool segments(std::make_shared<HostPlatform>(), {4096, 4096}, 0);
  P2pMaker maker(network, segments);
  Nobody nobody;
  LinkRequest request;
  request.acceptor = true;
  const auto honest = maker.start(request, {}, nobody);
  std::vector<std::byte> offer(honest->message().begin(), honest->message().end());
  std::memcpy(offer.data() + sizeof(std::uint64_t), name.data(), name.size());
  offer.back() ^= std::byte{1};  // a ticket of another process
  const auto answer = maker.start({}, offer, nobody);
  EXPECT_EQ(answer->advance(), LinkSetup::State::failed);
  EXPECT_EQ(answer->failure().error, EPROTO);
  EXPECT_LT(accept4(listener.get(), nullptr, nullptr, 0), 0) << "somebody came";
}

/// Endpoints that come from a peer (as at param_sync's rendezvous) may hold anything.
TEST_F(UnauthenticatedClients, EndpointsThatCannotBeAreRefused) {
  Endpoint bad_link = WireStream::here(), bad_family = WireStream::here(), bad_ring = WireStream::here();
  bad_link.link = static_cast<LinkKind>(200);
  bad_family.family = 5;
  bad_ring.ring_bytes = 4097;
  for (const Endpoint& bad : {bad_link, bad_family, bad_ring}) {
    EXPECT_EQ(node_.net.connect(this_thread(), bad, Deadline::now()), -EINVAL);
    EXPECT_EQ(node_.net.listen(this_thread(), bad, 1, Deadline::now()), -EINVAL);
  }
}

/// What this process shares with others, or may write somewhere: does it hold the text.
std::string where_shared(const std::string& text) {
  std::ifstream maps("/proc/self/maps");
  const int memory = open("/proc/self/mem", O_RDONLY | O_CLOEXEC);
  std::string found;
  for (std::string line; std::getline(maps, line);) {
    unsigned long first = 0, last = 0;
    char access[5] = "";
    if (std::sscanf(line.c_str(), "%lx-%lx %4s", &first, &last, access) != 3 || access[3] != 's' || access[0] != 'r')
      continue;
    std::string bytes(last - first, '\0');
    const auto got = pread(memory, bytes.data(), bytes.size(), static_cast<off_t>(first));
    if (got > 0 && bytes.find(text) != std::string::npos) found += line + "\n";
  }
  close(memory);
  return found;
}

std::string content(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

void connect_and_say(const Options& options, const Endpoint& to, const std::string& text, std::int64_t expected) {
  Context visitor(options);
  const Socket socket = visitor.net().connect(this_thread(), to, patience());
  EXPECT_EQ(socket < 0 ? socket : 0, expected);
  if (socket >= 0) {
    EXPECT_EQ(visitor.net().send(this_thread(), socket, text.data(), text.size(), kWaitAll, patience()),
              std::int64_t(text.size()));
  }
}

TEST(Secret, IsInNoLogAndInNothingThatIsShared) {
  const std::string secret = "ferrum-noctis-7f1", said = "spoken-aloud-91c";
  test::Folder folder;
  testing::internal::CaptureStderr();
  std::string shared, shared_words, pages;
  {
    Options options;
    options.sockets_max = 16;
    options.secret = secret;
    options.observe = folder.path();
    Context context(options);
    const Net net = context.net();
    const Socket listener = net.listen(this_thread(), Endpoint::parse("127.0.0.1:0,link=auto"), 4, patience());
    Endpoint where;
    ASSERT_EQ(net.getsockname(listener, where), 0);
    std::thread visitors([&] {
      connect_and_say(options, where, said, 0);
      Options wrong = options;
      wrong.secret = secret + "x";
      connect_and_say(wrong, where, said, -EACCES);
    });
    const Socket peer = net.accept(this_thread(), listener, patience());
    char words[32] = "";
    EXPECT_EQ(net.recv(this_thread(), peer, words, said.size(), kWaitAll | kPeek, patience()),
              std::int64_t(said.size()));
    visitors.join();
    shared = where_shared(secret);
    shared_words = where_shared(said);
    for (const auto& entry : std::filesystem::directory_iterator(folder.path())) pages += content(entry.path());
  }
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_EQ(shared, "");
  EXPECT_NE(shared_words, "") << "the search found nothing of what is in the rings: it proves nothing";
  EXPECT_NE(pages, "");
  EXPECT_EQ(pages.find(secret), std::string::npos);
  EXPECT_EQ(log.find(secret), std::string::npos) << log;
  if (const char* level = std::getenv("GPUSOCK_LOG"); level != nullptr && std::string(level) == "trace") {
    EXPECT_NE(log.find("handshake"), std::string::npos) << "nothing was logged: it proves nothing";
  }
  EXPECT_EQ(content("/proc/self/cmdline").find(secret), std::string::npos);
}

}  // namespace
}  // namespace gpusock::proxy::attacks
