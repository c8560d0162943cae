#pragma once
/// @file A server of all that serve() promises, and its clients, in each scope.

#include <gpusock/server.cuh>

#include "tests/conformance/party.cuh"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace gpusock::conformance::server {

inline constexpr unsigned kGroups = 2, kSeats = 2;  // of each group
inline constexpr std::size_t kLine = 64, kLong = 16 << 10;
inline constexpr std::size_t kRing = 4 << 10, kFlood = kRing + 2000;
inline constexpr std::size_t kGreeting = kLong - 100;  // a second one has no room in a Writer's buffer

struct Sum {
  std::int64_t total;
  bool stubborn;
  int greets_in;  ///< so many calls of the handler, the greeting one included; 0: it does not greet
};
using Memory = Seats<kSeats, kLine, kLong + 1, Sum>;

inline Options small_rings() {
  Options options;
  options.ring_bytes = kRing;
  options.sockets_max = 32;
  options.connections_max = 16;
  return options;
}

/// "add N": the sum of this client's numbers. "long": kLong zeros. "tell": to all. "some": to those with a sum.
/// "frame": adds 1, and tells those with a sum; its own client gets "begin" before that, and "end" after it.
/// "flood": kFlood zeros to those with a sum. "group": its number. "hold": waits until the test says so. "close": no
/// client comes any more. "bye": the last answer. "greet": the call of the handler after the next one writes kGreeting
/// zeros, and tells all "hello", before it reads. "stubborn": from now on the handler wants more of a request, whatever
/// keeps it from reading on.
template <class Group>
struct Answer {
  Group group;
  const char* zeros;
  const Net& net;
  Socket listener;
  std::uint64_t& may_go_on;
  std::uint64_t& holds;
  unsigned own;  ///< the group's number

  template <class AnyClient>
  GPUSOCK_FN int operator()(AnyClient& client) const {
    if (client.state.greets_in != 0) count_down(client);
    const Received line = client.reader.line(Deadline::now());
    if (!line && client.state.stubborn) return -EAGAIN;
    if (line.size == -EMSGSIZE) client.writer << "too long\n";
    if (!line) return line.error();
    Text rest = line.text();
    const Text command = take_word(rest);
    std::int64_t number = 0;
    if (same(command, "add") && parse_number(rest, number)) {
      client.writer << add(client.state, number) << '\n';
    } else if (same(command, "long")) {
      client.writer << Text{zeros, kLong} << '\n';
    } else if (same(command, "tell")) {
      client.tell_all([rest](auto& writer) { writer << rest << '\n'; });
    } else if (same(command, "flood")) {
      client.tell_all([this](auto& writer, const Sum& sum) {
        if (sum.total != 0) writer << Text{zeros, kFlood};
      });
    } else if (same(command, "group")) {
      client.writer << own << '\n';
    } else if (same(command, "hold")) {
      const std::uint64_t until_ns = clock_ns() + kPatienceNs;
      if (group.thread_rank() == 0) detail::SystemRef(holds).store(1, ringbuf::kRelease);
      while (detail::SystemRef(may_go_on).load(ringbuf::kAcquire) == 0 && clock_ns() < until_ns) conformance::pause();
    } else if (same(command, "some")) {
      tell_some(client, rest);
    } else if (same(command, "frame")) {
      add(client.state, 1);
      client.writer << "begin\n";
      tell_some(client, rest);
      client.writer << "end\n";
    } else {
      if (same(command, "close")) net.close(group, listener);
      group.sync();  // all have read it
      if (group.thread_rank() == 0 && same(command, "stubborn")) client.state.stubborn = true;
      if (group.thread_rank() == 0 && same(command, "greet")) client.state.greets_in = 2;
      group.sync();
      client.writer << command << '\n';
    }
    return same(command, "bye") ? -EPIPE : 0;
  }

  GPUSOCK_FN std::int64_t add(Sum& sum, std::int64_t number) const {
    const std::int64_t total = sum.total + number;
    group.sync();  // all have read it
    if (group.thread_rank() == 0) sum.total = total;
    group.sync();
    return total;
  }
  template <class AnyClient>
  GPUSOCK_FN void count_down(AnyClient& client) const {
    if (client.state.greets_in == 1) {
      client.writer << Text{zeros, kGreeting};
      client.tell_all([](auto& writer) { writer << "hello\n"; });
    }
    group.sync();  // all have read it
    if (group.thread_rank() == 0) --client.state.greets_in;
    group.sync();
  }
  template <class AnyClient>
  GPUSOCK_FN static void tell_some(AnyClient& client, Text words) {
    client.tell_all([&words](auto& writer, const Sum& sum) {
      if (sum.total != 0) writer << words << '\n';
    });
  }
};

inline constexpr std::size_t kReasons = static_cast<std::size_t>(Leave::ended) + 1;

struct Served {
  Listener listener;
  int result[kGroups];
  std::uint64_t left[kReasons];  ///< how many clients
  std::uint64_t left_total;      ///< the sum of their sums
  std::uint64_t may_go_on;       ///< a handler that holds waits for this
  std::uint64_t holds;           ///< one does
};

struct CountDepartures {
  Served* served;

  GPUSOCK_FN void operator()(const Departure<Sum>& client) const {
    detail::SystemRef(served->left_total).fetch_add(static_cast<std::uint64_t>(client.state.total), ringbuf::kRelaxed);
    detail::SystemRef(served->left[static_cast<std::size_t>(client.why)]).fetch_add(1, ringbuf::kRelease);
  }
};

/// `first`: the number of the first group.
template <class Scope>
__global__ void serve_all(Net net, Served* served, Memory* memory, unsigned count, unsigned first, const char* zeros,
                          ServerLimits limits) {
  const auto group = Scope::group();
  const unsigned own = first + blockIdx.x;
  const int result = serve(group, net, served->listener.socket, memory, count, own, limits,
                           Answer<decltype(Scope::group())>{group, zeros, net, served->listener.socket,
                                                            served->may_go_on, served->holds, own},
                           CountDepartures{served});
  if (group.thread_rank() == 0) served->result[own] = result;
}

inline ServerLimits no_limits() {
  constexpr std::uint64_t kNone = ~std::uint64_t{0};
  return {kNone, kNone, kNone, kNone, kNone};
}

/// The clients' context.
struct Clients {
  Context context{from_environment(small_rings())};
  Net net = context.net();
};

/// A server of four seats, in two groups.
template <class Scope>
class Server : public testing::Test {
 protected:
  /// `absent`: how many of the server's groups never begin.
  void start(const ServerLimits& limits, unsigned groups = kGroups, unsigned absent = 0,
             LinkKind link = LinkKind::tcp) {
    served_[0].listener = open_listener(context_, loopback(link));
    for (unsigned i = 0; i < groups; ++i) served_[0].result[i] = 1;
    launch(context_, {.grid = groups, .block = Scope::kThreads}, serve_all<Scope>, context_.net(), served_.data(),
           memory_.data(), groups + absent, 0u, zeros_.data(), limits);
  }
  void TearDown() override {
    context_.cancel();
    expect_end();
  }
  void expect_end() {
    context_.synchronize();
    for (const int result : served_[0].result) EXPECT_EQ(result, 0);
  }
  /// How many clients have left for this reason, once these are so many.
  std::uint64_t left(Leave why, std::uint64_t awaited) {
    return once(served_[0].left[static_cast<std::size_t>(why)], awaited);
  }
  bool holds() { return once(served_[0].holds, 1) != 0; }
  std::uint64_t left_total() { return detail::SystemRef(served_[0].left_total).load(ringbuf::kAcquire); }

  /// A group that was absent begins.
  void begin_absent(unsigned own) {
    launch(context_, {.grid = 1, .block = Scope::kThreads, .stream = &stream_}, serve_all<Scope>, context_.net(),
           served_.data(), memory_.data(), kGroups, own, zeros_.data(), no_limits());
  }

  /// Serves with seats that groups have used or use, as the groups from `first` on. What the first of them returns.
  int serve_again(unsigned groups, unsigned first) {
    again_[0].listener = served_[0].listener;
    launch(context_, {.grid = groups, .block = Scope::kThreads, .stream = &stream_}, serve_all<Scope>, context_.net(),
           again_.data(), memory_.data(), kGroups, first, zeros_.data(), no_limits());
    stream_.synchronize();
    return again_[0].result[first];
  }

  void let_go_on() { detail::SystemRef(served_[0].may_go_on).store(1, ringbuf::kRelease); }
  void cancel() { context_.cancel(); }
  const Endpoint& where() { return served_[0].listener.where; }

  static std::uint64_t once(std::uint64_t& counter, std::uint64_t awaited) {
    detail::SystemRef word(counter);
    const std::uint64_t until_ns = clock_ns() + kPatienceNs;
    while (word.load(ringbuf::kAcquire) < awaited && clock_ns() < until_ns) conformance::pause();
    return word.load(ringbuf::kAcquire);
  }

  Clients clients_;  // before the server's kernels run: a GPU makes no memory beside them

 private:
  Context context_{from_environment(small_rings())};
  Mapped<Served> served_{context_, 1}, again_{context_, 1};
  Stream stream_{context_};
  DeviceBuffer<Memory> memory_{context_, kGroups};
  DeviceBuffer<char> zeros_{context_, kLong};
};

/// A client, on a host thread.
class Visitor {
 public:
  Visitor(Clients& clients, const Endpoint& to) : net_(clients.net), socket_(net_.connect(me_, to, patience())) {}
  ~Visitor() { net_.close(me_, socket_); }
  Visitor(const Visitor&) = delete;
  Visitor& operator=(const Visitor&) = delete;

  bool say(const std::string& words) {
    return net_.send(me_, socket_, words.data(), words.size(), kWaitAll, patience()) >= 0;
  }
  void end() { net_.shutdown(me_, socket_, Shutdown::write); }
  /// The next line; "end" and the errors' names stand for themselves.
  std::string hear() {
    const Received line = socket_ < 0 ? Received{nullptr, socket_} : reader_.line(patience());  // or why it is not open
    if (line) return {line.data, static_cast<std::size_t>(line.size)};
    if (line.ended()) return "end";
    const Text name = error_name(line.size);
    return {name.data, name.bytes};
  }
  /// Whether so many bytes have come. They do not pass through the Reader, which holds none between lines.
  bool take(std::size_t bytes) {
    std::vector<char> taken(bytes);
    return net_.recv(me_, socket_, taken.data(), bytes, kWaitAll, patience()) == static_cast<std::int64_t>(bytes);
  }
  std::string ask(const std::string& line) { return say(line + "\n") ? hear() : "not sent"; }

 private:
  ThisThread me_ = this_thread();
  Net net_;
  Socket socket_;
  char line_[512];
  Reader<ThisThread> reader_{me_, net_, socket_, line_, sizeof line_};
};

/// Visitors who come one after the other; each has a sum of 1. So many take all seats.
inline std::vector<std::unique_ptr<Visitor>> take_seats(Clients& clients, const Endpoint& where,
                                                        unsigned count = kGroups * kSeats) {
  std::vector<std::unique_ptr<Visitor>> seated;
  for (unsigned i = 0; i < count; ++i) {
    seated.push_back(std::make_unique<Visitor>(clients, where));
    EXPECT_EQ(seated.back()->ask("add 1"), "1");
  }
  return seated;
}

}  // namespace gpusock::conformance::server
