// A context's page: what it says is true, what is not a page is left alone, and rubbish in it harms nobody.
#include "tests/support/folder.hpp"

#include "gpusock/tools/top/observation.hpp"
#include "gpusock/tools/top/table.hpp"
#include "host_proxy/base/descriptor.hpp"

#include <gpusock/gpusock.hpp>

#include "tests/support/patience.hpp"

#include <gtest/gtest.h>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <random>
#include <thread>

namespace gpusock::top {
namespace {

using test::Folder;

/// Between two looks. Not synchronisation: look_for_answers() looks until each context has answered.
bool nap() {
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  return true;
}

Look look_for_news(Observation& observation) {
  return observation.look_for_answers(detail::monotonic_ns(), kPatienceNs, nap);
}

Options observed_in(const Folder& folder) {
  Options options;
  options.sockets_max = 64;
  options.observe = folder.path();
  return options;
}

std::vector<std::string> names_in(const Folder& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path())) names.push_back(entry.path().filename());
  return names;
}

/// A page written by hand, locked like a living context's.
class HandMade {
 public:
  explicit HandMade(const Folder& folder, std::uint32_t pid = 1234)
      : path_(folder / page::file_name(pid, 0)), file_(open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600)) {
    identity.record_bytes = sizeof(page::Record);
    identity.records_max = 4;
    identity.pid = pid;
    std::strcpy(identity.program, "by_hand");
    write(&identity, sizeof identity, 0);
    publish(0);
    EXPECT_EQ(flock(file_.get(), LOCK_EX | LOCK_NB), 0);
  }
  void write(const void* data, std::size_t bytes, std::uint64_t offset) const {
    ASSERT_EQ(pwrite(file_.get(), data, bytes, static_cast<off_t>(offset)), static_cast<ssize_t>(bytes));
  }
  void publish(std::uint64_t sequence) const { write(&sequence, sizeof sequence, page::kSequenceOffset); }
  void write_snapshot(std::uint64_t sequence, const page::Snapshot& snapshot,
                      const std::vector<page::Record>& records) const {
    write(&snapshot, sizeof snapshot, page::snapshot_offset(sequence));
    write(records.data(), records.size() * sizeof(page::Record), page::records_offset(sequence, identity.records_max));
  }
  std::uint64_t asked_until_ns() const {
    std::uint64_t until = 0;
    EXPECT_EQ(pread(file_.get(), &until, sizeof until, page::kObservedUntilOffset), static_cast<ssize_t>(sizeof until));
    return until;
  }
  void abandon() { file_.reset(-1); }
  const std::string& path() const { return path_; }

  page::Identity identity;

 private:
  std::string path_;
  proxy::Descriptor file_;
};

page::Snapshot snapshot_of(std::uint64_t taken_ns, std::uint32_t sockets) {
  page::Snapshot snapshot;
  snapshot.taken_ns = taken_ns;
  snapshot.sockets = snapshot.records = sockets;
  return snapshot;
}

TEST(Page, ShowsWhatItsContextSays) {
  Folder folder;
  Context server(observed_in(folder)), client(observed_in(folder));
  const Net ours = server.net(), theirs = client.net();
  const Socket listener = ours.listen(this_thread(), Endpoint::parse("127.0.0.1:0,link=p2p"), 1, patience());
  Endpoint at;
  ASSERT_EQ(ours.getsockname(listener, at), 0);
  const Socket visitor = theirs.connect(this_thread(), at, patience());
  const Socket peer = ours.accept(this_thread(), listener, patience());
  ASSERT_GE(peer, 0);
  ASSERT_EQ(theirs.send(this_thread(), visitor, "12345", 5, kWaitAll, patience()), 5);

  Observation observation(folder.path(), std::nullopt);
  const Look look = look_for_news(observation);
  EXPECT_EQ(look.rubbish, 0);
  ASSERT_EQ(look.contexts.size(), 2u);
  EXPECT_FALSE(look.contexts[0].stalled);
  EXPECT_EQ(look.contexts[0].pid, static_cast<std::uint32_t>(getpid()));
  EXPECT_EQ(look.contexts[0].program, program_invocation_short_name);
  EXPECT_EQ(look.contexts[0].snapshot.connections, 1u);
  const std::vector<SocketInfo> truth = server.sockets();
  ASSERT_EQ(look.contexts[0].sockets.size(), truth.size());
  for (std::size_t i = 0; i < truth.size(); ++i) {
    const SocketInfo& seen = look.contexts[0].sockets[i].info;
    EXPECT_EQ(seen.handle, truth[i].handle);
    EXPECT_EQ(seen.state, truth[i].state);
    EXPECT_EQ(seen.link, truth[i].link);
    EXPECT_EQ(seen.local.to_string(), truth[i].local.to_string());
    EXPECT_EQ(seen.peer.to_string(), truth[i].peer.to_string());
    EXPECT_EQ(seen.rx_bytes, truth[i].rx_bytes);
    EXPECT_EQ(seen.rx_ring_fill, truth[i].rx_ring_fill);
    EXPECT_EQ(seen.ring_bytes, truth[i].ring_bytes);
    EXPECT_EQ(seen.backlog, truth[i].backlog);
    EXPECT_EQ(seen.block, truth[i].block);
  }
  const std::string table = make_table(look, 0);
  EXPECT_NE(table.find(at.host_port()), std::string::npos) << table;
}

/// Connections on the tcp link of one context, both ends of each.
class TcpConnections {
 public:
  TcpConnections(const Net& net, int count) {
    const Socket listener = net.listen(this_thread(), Endpoint::parse("127.0.0.1:0,link=tcp,ring=4K"), 16, patience());
    Endpoint at;
    EXPECT_EQ(net.getsockname(listener, at), 0);
    for (int i = 0; i < count; ++i) {
      const Socket visitor = net.connect(this_thread(), at, patience());
      const Socket peer = net.accept(this_thread(), listener, patience());
      EXPECT_EQ(net.send(this_thread(), visitor, "12345", 5, kWaitAll, patience()), 5);
      char got[5];
      EXPECT_EQ(net.recv(this_thread(), peer, got, 5, kWaitAll, patience()), 5);
    }
  }
};

/// How many sockets' TCP connections are known.
int known_in(const Look& look) {
  const auto& sockets = look.contexts.at(0).sockets;
  return static_cast<int>(
      std::count_if(sockets.begin(), sockets.end(), [](const SocketView& socket) { return socket.tcp.known != 0; }));
}

TEST(Page, SaysHowTcpConnectionsAreToObserversThatAskAndToNoOthers) {
  Folder folder;
  Context context(observed_in(folder));
  const TcpConnections connections(context.net(), 2);
  Observation indifferent(folder.path(), std::nullopt);
  EXPECT_EQ(known_in(look_for_news(indifferent)), 0);
  Observation curious(folder.path(), std::nullopt, true);
  look_for_news(curious);  // the answer may be to the other's question
  const Look look = look_for_news(curious);
  EXPECT_EQ(known_in(look), 4) << "not the listener";
  for (const SocketView& socket : look.contexts.at(0).sockets) {
    if (socket.info.state == SocketState::listening) continue;
    EXPECT_GT(socket.tcp.round_trip_us, 0u);
    EXPECT_GT(socket.tcp.congestion_window, 0u);
    EXPECT_GT(socket.tcp.segment_bytes, 0u);
    EXPECT_GT(socket.tcp.retransmit_timeout_us, 0u);
  }
}

TEST(Page, ManyTcpConnectionsAreLookedAtInTurn) {
  constexpr int kConnections = page::kTcpLooksMax / 2 + 3;  // each has two ends here
  constexpr int kFirst = page::kTcpLooksMax, kAll = 2 * kConnections;
  Folder folder;
  Options options = observed_in(folder);
  options.sockets_max = 2 * kConnections;
  Context context(options);
  const TcpConnections connections(context.net(), kConnections);
  Observation observation(folder.path(), std::nullopt, true);
  int known = 0;
  for (const Deadline until = patience(); known != kAll && !until.passed();) {
    known = known_in(look_for_news(observation));
    ASSERT_TRUE(known == kFirst || known == kAll) << known << " after a whole number of snapshots";
  }
  EXPECT_EQ(known, kAll);
}

TEST(Page, BytesThatNobodyTakesAreStalledOnBothSides) {
  Folder folder;
  Context context(observed_in(folder));
  const Net net = context.net();
  const Socket listener = net.listen(this_thread(), Endpoint::parse("127.0.0.1:0,link=p2p"), 1, patience());
  Endpoint at;
  ASSERT_EQ(net.getsockname(listener, at), 0);
  const Socket visitor = net.connect(this_thread(), at, patience());
  ASSERT_GE(net.accept(this_thread(), listener, patience()), 0);
  ASSERT_EQ(net.send(this_thread(), visitor, "12345", 5, kWaitAll, patience()), 5);
  Observation observation(folder.path(), std::nullopt);
  std::uint64_t tx_stalled_ns = 0, rx_stalled_ns = 0;
  for (const Deadline until = patience(); tx_stalled_ns == 0 && !until.passed();) {
    const Look look = look_for_news(observation);
    for (const SocketView& socket : look.contexts.at(0).sockets) {
      tx_stalled_ns = std::max(tx_stalled_ns, socket.tx_stalled_ns);
      rx_stalled_ns = std::max(rx_stalled_ns, socket.rx_stalled_ns);
    }
  }
  EXPECT_GE(tx_stalled_ns, page::kRefreshNs);
  EXPECT_EQ(rx_stalled_ns, tx_stalled_ns);
}

TEST(Page, AContextThatNobodyObservesWritesNothing) {
  Folder folder;
  Context context(observed_in(folder));
  const Socket listener = context.net().listen(this_thread(), Endpoint::parse("127.0.0.1:0,link=tcp"), 1, patience());
  ASSERT_GE(listener, 0);
  ASSERT_EQ(context.net().accept(this_thread(), listener, Deadline::after_ns(2 * page::kRefreshNs)), -ETIMEDOUT);
  const auto names = names_in(folder);
  ASSERT_EQ(names.size(), 1u);
  EXPECT_LT(std::filesystem::file_size(folder / names[0]), page::kSnapshotsOffset);
}

/// No file of this process gets longer than this while it lives.
class FileLimit {
 public:
  explicit FileLimit(std::uint64_t bytes) {
    getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{bytes, before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileLimit() { setrlimit(RLIMIT_FSIZE, &before_); }

 private:
  rlimit before_{};
};

TEST(Page, SaysHowManySocketsThereAreWhereThereIsNoRoomForThem) {
  Folder folder;
  Context context(observed_in(folder));
  for (int i = 0; i < 3; ++i) {
    ASSERT_GE(context.net().listen(this_thread(), Endpoint::parse("127.0.0.1:0,link=tcp"), 1, patience()), 0);
  }
  Observation observation(folder.path(), std::nullopt);
  const auto look_within = [&](std::uint64_t bytes) {
    const FileLimit limit(bytes);                   // as a full folder does: a write gets as far as there is room
    const Look first = look_for_news(observation);  // may be of the time before
    return look_for_news(observation).contexts.at(0);
  };
  ContextView view = look_within(page::kRecordsOffset);
  EXPECT_FALSE(view.stalled);
  EXPECT_EQ(view.snapshot.sockets, 3u);
  EXPECT_TRUE(view.sockets.empty());
  view = look_within(~std::uint64_t{0} >> 1);
  EXPECT_EQ(view.sockets.size(), 3u);
  Look look;
  view.sockets.clear();
  view.snapshot.records = 0;
  look.contexts.push_back(view);
  EXPECT_NE(make_table(look, 0).find("and 3 sockets for which the page's folder has no room"), std::string::npos);
}

TEST(Page, IsItsOwnersAloneAndGoesWithItsContext) {
  Folder folder;
  {
    Context context(observed_in(folder));
    const auto names = names_in(folder);
    ASSERT_EQ(names.size(), 1u);
    EXPECT_TRUE(page::is_file_name(names[0]));
    struct stat facts {};
    ASSERT_EQ(stat((folder / names[0]).c_str(), &facts), 0);
    EXPECT_EQ(facts.st_mode & 0777, 0600u);
    Observation observation(folder.path(), std::nullopt);
    EXPECT_EQ(look_for_news(observation).contexts.size(), 1u);
  }
  EXPECT_TRUE(names_in(folder).empty());
}

TEST(Page, AContextWorksWhereNoneCanBeMade) {
  Options options;
  options.observe = "/nonexistent";
  Context context(options);
  EXPECT_TRUE(context.sockets().empty());
  options.observe = "";
  EXPECT_NO_THROW(Context{options});
}

TEST(Page, OneLeftOverIsRemovedAndALivingOneIsNot) {
  Folder folder;
  HandMade living(folder, 1), dead(folder, 2);
  dead.abandon();
  Observation observation(folder.path(), std::nullopt);
  const Look look = observation.look(1, kPatienceNs);
  EXPECT_EQ(look.removed, 1);
  ASSERT_EQ(look.contexts.size(), 1u);
  EXPECT_EQ(look.contexts[0].pid, 1u);
  EXPECT_FALSE(std::filesystem::exists(dead.path()));
  living.abandon();
  EXPECT_TRUE(observation.look(1, kPatienceNs).contexts.empty()) << "it ended while it was observed";
  EXPECT_FALSE(std::filesystem::exists(living.path()));
}

/// A process that is killed while it makes its page leaves a file under another name.
TEST(Page, OneThatWasNotFinishedIsRemovedWhenItsProcessHasEnded) {
  const pid_t child = fork();
  if (child == 0) _exit(0);
  ASSERT_EQ(waitpid(child, nullptr, 0), child);  // nobody has its number now
  const auto dead = static_cast<std::uint32_t>(child), alive = static_cast<std::uint32_t>(getpid());
  const Folder folder;
  folder.write(page::draft_name(dead, 0), "");
  folder.write(page::draft_name(dead, 1), "half of a page");
  folder.write(page::draft_name(alive, 0), "");
  folder.write(page::draft_name(dead, 2), "");  // of another process namespace: its lock is taken
  folder.write(".gpusock-" + std::to_string(dead) + ".new", "no such name");
  ASSERT_EQ(mkfifo((folder / page::draft_name(dead, 3)).c_str(), 0600), 0);
  const proxy::Descriptor locked(open((folder / page::draft_name(dead, 2)).c_str(), O_RDWR | O_CLOEXEC));
  ASSERT_EQ(flock(locked.get(), LOCK_EX | LOCK_NB), 0);
  EXPECT_EQ(page::remove_left_over(folder.path()), 2);
  EXPECT_FALSE(std::filesystem::exists(folder / page::draft_name(dead, 0)));
  EXPECT_FALSE(std::filesystem::exists(folder / page::draft_name(dead, 1)));
  EXPECT_EQ(names_in(folder).size(), 4u);
}

TEST(Page, WhatIsNoPageIsLeftAlone) {
  Folder folder;
  folder.write("gpusock-1-0", "a letter that happens to be called so");
  folder.write("gpusock-2-0", "");
  folder.write("gpusock-backup-0", "not even the name");
  ASSERT_EQ(mkfifo((folder / "gpusock-3-0").c_str(), 0600), 0);
  HandMade real(folder, 4);
  ASSERT_EQ(symlink(real.path().c_str(), (folder / "gpusock-5-0").c_str()), 0);
  std::filesystem::create_directory(folder / "gpusock-6-0");
  Observation observation(folder.path(), std::nullopt);
  const Look look = observation.look(1, kPatienceNs);
  EXPECT_EQ(look.removed, 0);
  EXPECT_EQ(look.rubbish, 5) << "two files, a pipe, a link and a folder";
  ASSERT_EQ(look.contexts.size(), 1u);
  EXPECT_EQ(names_in(folder).size(), 7u);
}

TEST(Page, OfAnotherUserIsCountedAsSuch) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root, to be another user";
  Folder folder;
  const HandMade page(folder);
  std::filesystem::permissions(folder.path(), std::filesystem::perms(0755));
  constexpr uid_t kNobody = 65534;
  ASSERT_EQ(seteuid(kNobody), 0);
  Observation observation(folder.path(), std::nullopt);
  const Look look = observation.look(1, kPatienceNs);
  ASSERT_EQ(seteuid(0), 0);
  EXPECT_EQ(look.others, 1);
  EXPECT_EQ(look.rubbish, 0);
  EXPECT_TRUE(look.contexts.empty());
  EXPECT_NE(make_table(look, 0).find("0 sockets; 1 of other users, not shown\n"), std::string::npos)
      << make_table(look, 0);
}

TEST(Page, OfAnotherLayoutOrUnderAnotherNameIsNotRead) {
  Folder folder;
  HandMade page(folder);
  const page::Identity good = page.identity;
  const auto rubbish = [&](auto change) {
    page::Identity identity = good;
    change(identity);
    page.write(&identity, sizeof identity, 0);
    Observation observation(folder.path(), std::nullopt);
    return observation.look(1, kPatienceNs).rubbish;
  };
  EXPECT_EQ(rubbish([](page::Identity&) {}), 0);
  EXPECT_EQ(rubbish([](page::Identity& identity) { ++identity.layout; }), 1);
  EXPECT_EQ(rubbish([](page::Identity& identity) { ++identity.record_bytes; }), 1);
  EXPECT_EQ(rubbish([](page::Identity& identity) { identity.records_max = page::kRecordsMax + 1; }), 1);
  EXPECT_EQ(rubbish([](page::Identity& identity) { ++identity.pid; }), 1);
}

TEST(Page, ASnapshotStaysWholeWhileTheNextIsBeingWritten) {
  Folder folder;
  HandMade page(folder);
  const std::uint64_t now = detail::monotonic_ns();
  page::Record record;
  record.handle = 7;
  page.write_snapshot(1, snapshot_of(now, 1), {record});
  page.publish(1);
  record.handle = 8;  // the writer is stopped here, before it publishes
  page.write_snapshot(2, snapshot_of(now + 1, 1), {record});
  const PageReader reader(page.path());
  const auto view = reader.read(now + 2);
  ASSERT_TRUE(view.has_value());
  ASSERT_EQ(view->sockets.size(), 1u);
  EXPECT_EQ(view->sockets[0].info.handle, 7);
  page.publish(2);
  EXPECT_EQ(reader.read(now + 2)->sockets.at(0).info.handle, 8);
}

TEST(Page, AContextWritesItsSnapshotsInTurnAndPublishesEachBehindItsBytes) {
  Folder folder;
  Context context(observed_in(folder));
  Observation observation(folder.path(), std::nullopt);
  look_for_news(observation);
  look_for_news(observation);
  const proxy::Descriptor file(page::open_page(folder / names_in(folder).at(0)));
  std::uint64_t before = 0, after = 1;
  page::Snapshot newest, other;
  for (const Deadline until = patience(); before != after && !until.passed();) {
    ASSERT_EQ(pread(file.get(), &before, sizeof before, page::kSequenceOffset), static_cast<ssize_t>(sizeof before));
    ASSERT_EQ(pread(file.get(), &newest, sizeof newest, static_cast<off_t>(page::snapshot_offset(before))),
              static_cast<ssize_t>(sizeof newest));
    ASSERT_EQ(pread(file.get(), &other, sizeof other, static_cast<off_t>(page::snapshot_offset(before + 1))),
              static_cast<ssize_t>(sizeof other));
    ASSERT_EQ(pread(file.get(), &after, sizeof after, page::kSequenceOffset), static_cast<ssize_t>(sizeof after));
  }
  EXPECT_GE(before, 2u);
  EXPECT_NE(newest.taken_ns, 0u);
  EXPECT_NE(other.taken_ns, 0u);
  EXPECT_NE(newest.taken_ns, other.taken_ns) << "the last but one is still there, or the next is on its way";
}

TEST(Page, AnObserverAsksForLongerNeverForLess) {
  Folder folder;
  HandMade page(folder);
  const PageReader reader(page.path());
  reader.ask(1'000, 500);
  EXPECT_EQ(page.asked_until_ns(), 1'500u);
  reader.ask(1'100, 10);
  EXPECT_EQ(page.asked_until_ns(), 1'500u);
  reader.ask(1'100, 1'000);
  EXPECT_EQ(page.asked_until_ns(), 2'100u);
  const std::uint64_t rubbish = ~std::uint64_t{0};
  page.write(&rubbish, sizeof rubbish, page::kObservedUntilOffset);
  reader.ask(2'000, 1'000);
  EXPECT_EQ(page.asked_until_ns(), 3'000u) << "what cannot be meant is written over";
}

TEST(Page, CountsThatCannotBeAreNotFollowed) {
  Folder folder;
  HandMade page(folder);
  const std::uint64_t now = detail::monotonic_ns();
  const PageReader reader(page.path());
  const auto read = [&](const page::Snapshot& snapshot) {
    page.write_snapshot(1, snapshot, std::vector<page::Record>(4));
    page.publish(1);
    return reader.read(now).has_value();
  };
  EXPECT_TRUE(read(snapshot_of(now, 4)));
  EXPECT_FALSE(read(snapshot_of(now, 5))) << "more records than the page has room for";
  EXPECT_FALSE(read(snapshot_of(now, ~0u)));
  EXPECT_FALSE(read(snapshot_of(~std::uint64_t{0}, 1))) << "another clock's time";
  page::Snapshot more = snapshot_of(now, 3);
  more.sockets = 2;
  EXPECT_FALSE(read(more)) << "more records than sockets";
}

TEST(Page, RecordsThatCannotBeSocketsAreDroppedAndTheRestIsBounded) {
  page::Record record;
  record.state = 6;
  EXPECT_FALSE(to_socket(record).has_value());
  record.state = 5;
  record.link = kLinkKinds;
  EXPECT_FALSE(to_socket(record).has_value());
  record.link = 2;
  record.handle = -77;
  record.error = 1 << 30;
  record.ring_bytes = 100;
  record.tx_ring_fill = 101;
  record.local.family = 5;
  record.peer.family = 6;
  record.peer.link = static_cast<LinkKind>(200);
  const auto socket = to_socket(record);
  ASSERT_TRUE(socket.has_value());
  EXPECT_EQ(socket->info.handle, -1);
  EXPECT_LT(socket->info.error, 4096);
  EXPECT_EQ(socket->info.tx_ring_fill, 100u);
  EXPECT_EQ(socket->info.local.family, 0);
  EXPECT_EQ(socket->info.peer.family, 6);
  EXPECT_EQ(socket->info.peer.link, LinkKind::automatic);
}

TEST(Page, RubbishInItNeitherCrashesNorSteersTheTerminal) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  Folder folder;
  HandMade page(folder);
  Observation observation(folder.path(), std::nullopt);
  const std::uint64_t bytes = page::records_offset(1, 4) + 4 * sizeof(page::Record);
  std::string noise(bytes, '\0');
  int shown = 0;
  for (int round = 0; round < 500; ++round) {
    for (char& byte : noise) byte = static_cast<char>(random());
    page.write(noise.data(), noise.size(), 0);
    page.identity.records_max = 4;
    std::memcpy(page.identity.program, noise.data(), sizeof page.identity.program);
    page.write(&page.identity, sizeof page.identity, 0);
    page::Snapshot snapshot;
    std::memcpy(&snapshot, noise.data() + 1000, sizeof snapshot);
    snapshot.records = snapshot.sockets % 7;
    snapshot.taken_ns %= detail::monotonic_ns();
    page.write(&snapshot, sizeof snapshot, page::snapshot_offset(static_cast<std::uint64_t>(round)));
    page.publish(static_cast<std::uint64_t>(round) + 2 * (random() % 2));
    const Look look = observation.look(1, kPatienceNs);
    shown += static_cast<int>(look.contexts.size());
    for (const char c : make_table(look, random())) ASSERT_TRUE(c == '\n' || (c >= 0x20 && c <= 0x7e)) << int(c);
    ASSERT_FALSE(make_json(look, random(), round % 2 == 0).empty());
  }
  EXPECT_GT(shown, 0) << "some of it was read";
}

}  // namespace
}  // namespace gpusock::top
