// A call on a socket or a Reader by a block or a warp costs one meeting of its threads on the CPU device: each thread
// is switched to once. This guards against calls that meet more often, without a look at the clock.
#include <gpusock/gpusock.hpp>
#include <gpusock/io.cuh>

#include "cpu_device/device_shape.hpp"
#include "tests/support/patience.hpp"

#include <gtest/gtest.h>

#include <array>
#include <ostream>

namespace gpusock::meetings {
namespace {

constexpr int kTimes = 8;
constexpr unsigned kThreads = 32;

enum Call {
  kSend,
  kRecv,
  kReserve,
  kCommit,
  kReserveAll,
  kAbort,
  kPeek,
  kRelease,
  kLine,
  kExactly,
  kMessage,
  kRead,
  kPoll,
  kOpenSet,
  kWatch,
  kWait,
  kWake,
  kUnwatch,
  kCloseSet,
  kSetOption,
  kGetOption,
  kListen,
  kConnect,
  kAccept,
  kShutdown,
  kClose,
  kCalls
};

/// How often the block has switched between its threads in each call, kTimes times. `wrong`: calls that returned
/// something else than they should.
struct Counts {
  std::array<std::uint64_t, kCalls> switches;
  int wrong;
};

/// The two ends of a connection, and memory, all in one context.
struct Ends {
  Net net;
  Socket socket, peer;
  Endpoint any;
  Endpoint* where;
  PollEntry* entry;
  PollEvent* event;
  char* bytes;
  Counts* counts;
};

/// Adds the switches of one call. All threads have come before it begins, and it ends for the leader first.
template <class Group, class Made>
auto count(const Group& group, const Ends& ends, Call call, Made made) {
  group.sync();
  const std::uint64_t before = cpu_device::thread_switches();
  const auto result = made();
  if (group.thread_rank() == 0) ends.counts->switches[call] += cpu_device::thread_switches() - before;
  return result;
}

template <class Group>
void expect(const Group& group, const Ends& ends, bool holds) {
  if (group.thread_rank() == 0 && !holds) ++ends.counts->wrong;
}

template <class Group>
void move_bytes(const Group& group, const Ends& e) {
  const Net& net = e.net;
  expect(group, e, count(group, e, kSend, [&] { return net.send(group, e.socket, "12345678", 8); }) == 8);
  expect(group, e, count(group, e, kRecv, [&] { return net.recv(group, e.peer, e.bytes, 8); }) == 8);
  expect(group, e, count(group, e, kReserve, [&] { return net.reserve(group, e.socket, 8); }).size > 0);
  expect(group, e, count(group, e, kCommit, [&] { return net.commit(group, e.socket, 4); }) == 0);
  expect(group, e, count(group, e, kPeek, [&] { return net.peek(group, e.peer, 4); }).size > 0);
  expect(group, e, count(group, e, kRelease, [&] { return net.release(group, e.peer, 4); }) == 0);
  Span rest;
  expect(group, e, count(group, e, kReserveAll, [&] { return net.reserve(group, e.socket, 8, rest); }).size > 0);
  expect(group, e, count(group, e, kAbort, [&] { return net.abort(group, e.socket); }) == 0);
}

template <class Group>
void read(const Group& group, const Ends& e) {
  constexpr char kSent[] = "a\nbc\0\0\0\1d1234";
  Reader<Group> reader(group, e.net, e.peer, e.bytes, 16);
  expect(group, e, e.net.send(group, e.socket, kSent, sizeof kSent - 1) == sizeof kSent - 1);
  expect(group, e, count(group, e, kLine, [&] { return reader.line(); }).size == 1);
  expect(group, e, count(group, e, kExactly, [&] { return reader.exactly(2); }).size == 2);
  expect(group, e, count(group, e, kMessage, [&] { return reader.message(); }).size == 1);
  expect(group, e, count(group, e, kRead, [&] { return reader.read(e.bytes, 4); }).size == 4);
  if (reader.progress().taken != sizeof kSent - 1) ++e.counts->wrong;  // each thread has it
}

template <class Group>
void poll(const Group& group, const Ends& e) {
  const Net& net = e.net;
  expect(group, e, count(group, e, kPoll, [&] { return net.poll(group, e.entry, 1); }) == 1);
  const PollSet set = count(group, e, kOpenSet, [&] { return net.open_set(group); });
  expect(group, e, count(group, e, kWatch, [&] { return net.watch(group, set, e.socket, kPollOut); }) == 0);
  expect(group, e, count(group, e, kWait, [&] { return net.wait(group, set, e.event, 1); }) == 1);
  expect(group, e, count(group, e, kWake, [&] { return net.wake(group, set); }) == 0);
  expect(group, e, count(group, e, kUnwatch, [&] { return net.unwatch(group, set, e.socket); }) == 0);
  expect(group, e, count(group, e, kCloseSet, [&] { return net.close_set(group, set); }) == 0);
}

template <class Group>
void open_and_close(const Group& group, const Ends& e) {
  const Net& net = e.net;
  const auto option = SocketOption::no_delay;
  std::int64_t value = -1;
  expect(group, e, count(group, e, kSetOption, [&] { return net.setsockopt(group, e.socket, option, 1); }) == 0);
  expect(group, e, count(group, e, kGetOption, [&] { return net.getsockopt(group, e.socket, option, value); }) == 0);
  if (value != 1) ++e.counts->wrong;  // each thread has it
  const Socket listener = count(group, e, kListen, [&] { return net.listen(group, e.any); });
  if (group.thread_rank() == 0) net.getsockname(listener, *e.where);
  const Socket client = count(group, e, kConnect, [&] { return net.connect(group, *e.where); });
  const Socket server = count(group, e, kAccept, [&] { return net.accept(group, listener); });
  expect(group, e, count(group, e, kShutdown, [&] { return net.shutdown(group, client, Shutdown::write); }) == 0);
  for (const Socket socket : {client, server, listener}) {
    expect(group, e, count(group, e, kClose, [&] { return net.close(group, socket); }) == 0);
  }
}

template <class Group>
void call_each(const Group& group, const Ends& ends) {
  for (int i = 0; i < kTimes; ++i) {
    move_bytes(group, ends);
    read(group, ends);
    poll(group, ends);
    open_and_close(group, ends);
  }
}

__global__ void call_by_block(Ends ends) { call_each(this_block(), ends); }
__global__ void call_by_warp(Ends ends) { call_each(this_warp(), ends); }

Counts counts_of(void (*kernel)(Ends)) {
  Options options;
  options.sockets_max = 64;
  Context context(options);
  const Net net = context.net();
  Mapped<Endpoint> where(context, 1);
  Mapped<PollEntry> entry(context, 1);
  Mapped<PollEvent> event(context, 1);
  Mapped<char> bytes(context, 16);
  Mapped<Counts> counts(context, 1);
  const Endpoint any = Endpoint::parse("127.0.0.1:0,link=p2p");
  const Socket listener = net.listen(this_thread(), any, 1, patience());
  net.getsockname(listener, where[0]);
  const Socket socket = net.connect(this_thread(), where[0], patience());
  const Socket peer = net.accept(this_thread(), listener, patience());
  entry[0] = {socket, kPollOut, 0};
  const Ends ends{net, socket, peer, any, where.data(), entry.data(), event.data(), bytes.data(), counts.data()};
  launch(context, {.grid = 1, .block = kThreads}, kernel, ends);
  context.synchronize();
  return counts[0];
}

std::uint64_t times(int call) { return call == kClose ? 3 * kTimes : kTimes; }

struct Case {
  const char* name;
  void (*kernel)(Ends);
};
void PrintTo(const Case& one, std::ostream* out) { *out << one.name; }

class Meetings : public testing::TestWithParam<Case> {
 protected:
  static void let_leaders_call(bool leaders) {
    cpu_device::DeviceShape shape = cpu_device::device_shape();
    shape.leaders_make_calls = leaders;
    cpu_device::set_device_shape(shape);
  }
  void SetUp() override {
    { const Context first; }  // a context reads the variable
    let_leaders_call(true);
  }
};

TEST_P(Meetings, ACallSwitchesToEachThreadOnce) {
  const Counts counts = counts_of(GetParam().kernel);
  EXPECT_EQ(counts.wrong, 0);
  for (int call = 0; call < kCalls; ++call) {
    EXPECT_LE(counts.switches[call], times(call) * kThreads) << "call " << call << " of enum Call";
  }
}

/// The same calls where all threads make them: this test's count is one that notices.
TEST_P(Meetings, ACallOfAllThreadsMeetsMoreOften) {
  let_leaders_call(false);
  const Counts counts = counts_of(GetParam().kernel);
  let_leaders_call(true);
  EXPECT_EQ(counts.wrong, 0);
  for (int call = 0; call < kCalls; ++call) {
    EXPECT_GT(counts.switches[call], times(call) * kThreads) << "call " << call << " of enum Call";
  }
}

INSTANTIATE_TEST_SUITE_P(Of, Meetings, testing::Values(Case{"Block", call_by_block}, Case{"Warp", call_by_warp}),
                         testing::PrintToStringParamName());

}  // namespace
}  // namespace gpusock::meetings
