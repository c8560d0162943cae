// Another user of this host at what p2p shares: at the Unix socket, in its place, at the memory files, the process and
// its page. It gets nothing, keeps nobody out, and costs nothing that stays. Only root can play it.
#include "tests/unit/host_proxy/other_user.hpp"

#include "gpusock/cpu/host_platform.hpp"
#include "gpusock/error.hpp"
#include "host_proxy/base/random.hpp"
#include "host_proxy/links/p2p/maker.hpp"
#include "tests/support/folder.hpp"
#include "tests/unit/host_proxy/peer_process.hpp"

#include <gpusock/gpusock.hpp>

#include <gtest/gtest.h>

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace gpusock::other_user {
namespace {

using Lines = std::vector<std::string>;
using proxy::Descriptor;

/// That user's process.
class Stranger {
 public:
  /// `given`: a descriptor that it has.
  explicit Stranger(Lines arguments, int given = -1) {
    arguments.insert(arguments.begin(), {"/proc/self/exe", "--other-user"});
    std::vector<char*> pointers;
    for (std::string& argument : arguments) pointers.push_back(argument.data());
    pointers.push_back(nullptr);
    int ends[2];
    EXPECT_EQ(pipe2(ends, O_CLOEXEC), 0);
    output_ = Descriptor(ends[0]);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    if (given >= 0) posix_spawn_file_actions_adddup2(&actions, given, kGiven);
    EXPECT_EQ(posix_spawn(&process_, pointers[0], &actions, nullptr, pointers.data(), environ), 0);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
  }
  ~Stranger() {
    if (process_ <= 0) return;
    ::kill(process_, SIGKILL);
    waitpid(process_, nullptr, 0);
  }

  /// What it says until it ends or has said so many lines; `meanwhile` is what goes on beside it.
  Lines listen(const std::function<void()>& meanwhile, std::size_t lines_max = ~std::size_t{0}) {
    const auto until = std::chrono::steady_clock::now() + std::chrono::nanoseconds(kPatienceNs);
    Lines lines;
    while (lines.size() < lines_max && std::chrono::steady_clock::now() < until) {
      meanwhile();
      pollfd wanted{output_.get(), POLLIN, 0};
      if (poll(&wanted, 1, 1) == 0) continue;
      char byte = 0;
      if (read(output_.get(), &byte, 1) != 1) {
        end();
        return lines;
      }
      if (byte != '\n') {
        line_ += byte;
      } else {
        lines.push_back(std::exchange(line_, {}));
      }
    }
    if (lines.size() < lines_max) lines.push_back("and it did not end");
    return lines;
  }

  bool was_there() const { return status_ == 0; }

 private:
  void end() {
    waitpid(std::exchange(process_, -1), &status_, 0);
    output_.reset(-1);
    EXPECT_TRUE(status_ == 0 || (WIFEXITED(status_) && WEXITSTATUS(status_) == kCannotBecome)) << status_;
  }

  Descriptor output_;
  pid_t process_ = -1;
  int status_ = -1;
  std::string line_;
};

/// Whether another user can be played here at all.
class OtherUser : public testing::Test {
 protected:
  void SetUp() override {
    if (geteuid() != 0) GTEST_SKIP() << "only root can play another user: run this test as root";
    Stranger stranger({"nothing"});
    stranger.listen([] {});
    if (!stranger.was_there())
      GTEST_SKIP() << "root may not become another user here (CAP_SETUID, CAP_SETGID, user 65534)";
  }
};

std::size_t descriptors() {
  return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {}));
}

Lines everything_at_the_socket_refused() {
  return {"the name: is public",           "the ticket: refused",          "the ticket with descriptors: refused",
          "a lie about its user: refused", "and what came of it: refused", "taking the name: refused",
          "a silent crowd: refused"};
}

TEST_F(OtherUser, GetsNothingAtTheSocketThoughItKnowsTheTicket) {
  constexpr std::uint64_t kRing = 64 << 10;
  const auto platform = std::make_shared<proxy::HostPlatform>();
  proxy::PosixNetwork network;
  proxy::SegmentOffers offers(network);
  const auto segment = std::make_shared<proxy::Segment>(platform, kRing);
  const proxy::Ticket ticket = offers.offer(segment);
  const auto serve = [&] {
    network.poll();
    offers.serve();
  };
  sockaddr_un address{};  // an honest peer's process came first, and is slow to say its ticket
  address.sun_family = AF_UNIX;
  offers.name().copy(address.sun_path + 1, offers.name().size());
  const Descriptor honest(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  const auto bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + offers.name().size());
  ASSERT_EQ(::connect(honest.get(), reinterpret_cast<sockaddr*>(&address), bytes), 0);
  serve();

  const std::size_t before = descriptors();
  Stranger stranger({"visit", offers.name(), proxy::to_hex(ticket)});
  EXPECT_EQ(stranger.listen(serve), everything_at_the_socket_refused());
  serve();
  EXPECT_EQ(descriptors(), before) << "descriptors are left";

  ASSERT_EQ(::send(honest.get(), ticket.data(), ticket.size(), MSG_NOSIGNAL), static_cast<ssize_t>(ticket.size()));
  serve();
  const auto received = other_user::receive(honest.get(), MSG_DONTWAIT);
  ASSERT_EQ(received.bytes, 1) << "who came first was sent away for others";
  ASSERT_GE(received.descriptor, 0);
  const proxy::Segment mapped(platform, proxy::Descriptor(received.descriptor), kRing);
  segment->proxy_rings().rx.data[kRing - 1] = std::byte{42};
  EXPECT_EQ(mapped.proxy_rings().rx.data[kRing - 1], std::byte{42});
}

TEST_F(OtherUser, GetsNothingOfAMemoryFileThatItSees) {
  const proxy::Segment segment(std::make_shared<proxy::HostPlatform>(), 64 << 10);
  const Descriptor name(open(("/proc/self/fd/" + std::to_string(segment.descriptor())).c_str(), O_PATH | O_CLOEXEC));
  ASSERT_TRUE(name);
  Stranger stranger({"open"}, name.get());
  EXPECT_EQ(stranger.listen([] {}),
            Lines({"reading: refused", "writing: refused", "opening it to others: refused", "cutting it: refused"}));
}

/// An offer that was made up leads this host to a name that looks like ours.
TEST_F(OtherUser, IsNotToldTheTicketWhereItListensInOurPlace) {
  struct Nobody final : proxy::ReadySink {
    void on_ready() override {}
  } nobody;
  const std::string name = proxy::to_hex(proxy::random_bytes<16>());
  Stranger stranger({"serve", name});
  ASSERT_EQ(stranger.listen([] {}, 1), Lines({"listening: as one of ours"}));
  proxy::PosixNetwork network;
  proxy::SegmentPool segments(std::make_shared<proxy::HostPlatform>(), {4096, 4096}, 0);
  proxy::P2pMaker maker(network, segments);
  proxy::LinkRequest request;
  request.acceptor = true;
  const auto honest = maker.start(request, {}, nobody);
  std::vector<std::byte> offer(honest->message().begin(), honest->message().end());
  const std::size_t name_at = sizeof(std::uint64_t), ticket_at = name_at + name.size();
  std::memcpy(offer.data() + name_at, name.data(), name.size());
  offer[ticket_at] ^= std::byte{1};  // a ticket of another process
  const std::size_t before = descriptors();
  {
    const auto answer = maker.start({}, offer, nobody);
    EXPECT_EQ(answer->advance(), proxy::LinkSetup::State::failed);
    EXPECT_EQ(answer->failure().error, EHOSTUNREACH);
  }
  EXPECT_EQ(descriptors(), before);
  EXPECT_EQ(stranger.listen([] {}), Lines({"being told the ticket: refused"}));
}

/// The abstract Unix sockets on which this process listens.
std::vector<std::string> own_unix_names() {
  std::set<std::string> own;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;  // the folder's own descriptor
    own.insert(std::filesystem::read_symlink(entry.path(), gone).string());
  }
  std::vector<std::string> names;
  std::ifstream list("/proc/self/net/unix");
  for (std::string line; std::getline(list, line);) {
    std::istringstream words(line);
    std::vector<std::string> word{std::istream_iterator<std::string>(words), {}};
    if (word.size() == 8 && word[7][0] == '@' && own.count("socket:[" + word[6] + "]") != 0)
      names.push_back(word[7].substr(1));
  }
  return names;
}

void expect_echo(const Net& net, Socket socket, const std::string& said) {
  std::string heard(said.size(), '\0');
  ASSERT_EQ(net.send(this_thread(), socket, said.data(), said.size(), kWaitAll, patience()), std::int64_t(said.size()));
  ASSERT_EQ(net.recv(this_thread(), socket, heard.data(), heard.size(), kWaitAll, patience()),
            std::int64_t(heard.size()));
  EXPECT_EQ(heard, said);
}

TEST_F(OtherUser, DisturbsNeitherPeersThatAreConnectedNorThoseToCome) {
  const test::Folder folder;
  std::filesystem::permissions(folder.path(), std::filesystem::perms(01777));  // as /dev/shm
  const auto precious = folder.write("precious", std::string("mine"));
  ASSERT_EQ(chmod(precious.c_str(), 0600), 0);
  Options options;
  options.sockets_max = 16;
  options.observe = folder.path();
  Context context(options);
  const Net net = context.net();
  const std::size_t before = descriptors();
  {
    Peer peer(net, "p2p");
    const auto names = own_unix_names();
    ASSERT_EQ(names.size(), 1u);
    std::size_t rounds = 0;
    const auto meanwhile = [&] { expect_echo(net, peer.socket, "round " + std::to_string(++rounds)); };
    Stranger visitor({"visit", names[0], proxy::to_hex(proxy::random_bytes<16>())});
    EXPECT_EQ(visitor.listen(meanwhile), everything_at_the_socket_refused());
    Stranger onlooker({"look", std::to_string(getpid()), folder.path()});
    EXPECT_EQ(onlooker.listen(meanwhile),
              Lines({"environ: refused", "maps: refused", "mem: refused", "fd: refused", "map_files: refused",
                     "process_vm_readv: refused", "reading a page: refused", "writing a page: refused",
                     "removing a page: refused", "renaming a page: refused", "the next pages: are planted"}));
    EXPECT_GT(rounds, 0u);
    Peer next(net, "p2p");
    expect_echo(net, next.socket, "as ever");
    EXPECT_EQ(net.close(this_thread(), next.socket), 0);
    EXPECT_EQ(next.wait(), 0);
    EXPECT_EQ(net.close(this_thread(), peer.socket), 0);
    EXPECT_EQ(peer.wait(), 0);
  }
  const auto until = std::chrono::steady_clock::now() + std::chrono::nanoseconds(kPatienceNs);
  while (descriptors() != before && std::chrono::steady_clock::now() < until) poll(nullptr, 0, 1);
  EXPECT_EQ(descriptors(), before) << "descriptors are left";
  for (int i = 0; i < 2; ++i) Context(options).cancel();  // their pages' names are taken
  std::string content;
  std::getline(std::ifstream(precious), content);
  EXPECT_EQ(content, "mine");
  EXPECT_EQ(std::filesystem::file_size(precious), 4u);
}

}  // namespace
}  // namespace gpusock::other_user
