// What a request of HTTP costs a server, whose client keeps its connection: a server by serve(), and
// examples/http_server.
#include "tests/unit/costs/pair.hpp"
#include "tests/unit/costs/snapshot.hpp"

#include <gpusock/gpusock.hpp>
#include <gpusock/launch.hpp>
#include <gpusock/server.cuh>

#include "examples/http_server/server.cuh"
#include "plain_types/socket_address.hpp"

#include <gtest/gtest.h>

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <ostream>
#include <string_view>
#include <vector>

namespace gpusock::costs::requests {
namespace {

constexpr unsigned kWarmUp = 32, kRequests = 256, kAll = kWarmUp + kRequests;

/// A client. It stands for another program: its calls are not counted.
class Client {
 public:
  explicit Client(const Endpoint& at) {
    const Uncounted other;
    detail::SocketAddress address(at);
    socket_ = ::socket(AF_INET, SOCK_STREAM, 0);
    EXPECT_EQ(::connect(socket_, address.get(), address.bytes), 0);
  }
  ~Client() {
    const Uncounted other;
    ::close(socket_);
  }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  /// Makes requests, each when the answer to the one before has come. All answers end with the first line feed after
  /// the empty line. False if the connection ends.
  bool ask(unsigned times) {
    const Uncounted other;
    static constexpr std::string_view kRequest = "GET /time HTTP/1.1\r\nHost: here\r\nAccept: text/plain\r\n\r\n";
    char answer[1024];
    for (unsigned i = 0; i < times; ++i) {
      if (::send(socket_, kRequest.data(), kRequest.size(), MSG_NOSIGNAL) < 0) return false;
      for (std::size_t bytes = 0;;) {
        const ssize_t got = ::recv(socket_, answer + bytes, sizeof answer - bytes, 0);
        if (got <= 0) return false;
        bytes += static_cast<std::size_t>(got);
        const std::string_view all(answer, bytes);
        const std::size_t head = all.find("\r\n\r\n");
        if (head != all.npos && all.find('\n', head + 4) != all.npos) break;
      }
    }
    return true;
  }

 private:
  int socket_ = -1;
};

struct Listening {
  explicit Listening(const Context& context)
      : socket(context.net().listen(this_thread(), Endpoint::parse("127.0.0.1:0,link=tcp"), 8, patience())) {
    EXPECT_EQ(context.net().getsockname(socket, where), 0);
  }
  Socket socket;
  Endpoint where;
};

/// Checks what `requests` requests have cost, but for switches.
void expect_lean(const Counts& counts, unsigned requests) {
  EXPECT_EQ(counts.received(), requests) << counts;
  EXPECT_EQ(counts.sent(), requests) << counts;
  EXPECT_LE(counts.wakes(), requests) << "how many, depends on time, but one for each at most: " << counts;
  EXPECT_EQ(counts.others(), 0u) << counts;
  EXPECT_EQ(counts.allocations, 0u);
}

/// How often the block had switched between its threads at the beginning of each request.
struct Switches {
  std::uint64_t before[kAll];
  unsigned requests;
};

/// Answers requests that have no body.
struct Answer {
  Switches* switches;

  template <class AnyClient>
  int operator()(AnyClient& client) const {
    for (;;) {
      const Received line = client.reader.line(Deadline::now());
      if (!line) return line.error();
      if (line.size == 0) break;
    }
    client.writer << "HTTP/1.1 200 OK\r\nContent-Length: " << 3 << "\r\n\r\nhi\n";
    if (threadIdx.x == 0) switches->before[switches->requests++] = cpu_device::thread_switches();
    return 0;
  }
};

using Memory = Seats<4>;

template <class Group>
void serve_lines(const Group& group, const Net& net, Socket listener, Memory* memory, Switches* switches) {
  serve(group, net, listener, memory, 1, 0, ServerLimits{}, Answer{switches});
}
__global__ void serve_by_thread(Net net, Socket listener, Memory* memory, Switches* switches) {
  serve_lines(this_thread(), net, listener, memory, switches);
}
__global__ void serve_by_block(Net net, Socket listener, Memory* memory, Switches* switches) {
  serve_lines(this_block(), net, listener, memory, switches);
}

/// The median. A request that comes before the server waits for it costs less than one that ends a wait. Now and then a
/// wait ends twice.
std::uint64_t median_of(const Switches& switches) {
  std::vector<std::uint64_t> each;
  for (unsigned i = kWarmUp; i + 1 < kAll; ++i) each.push_back(switches.before[i + 1] - switches.before[i]);
  std::nth_element(each.begin(), each.begin() + kRequests / 2, each.end());
  return each[kRequests / 2];
}

/// Asks all that a test asks, of a server that runs. Ends it then.
void ask_and_count(Context& context, const Listening& listening) {
  Client client(listening.where);
  EXPECT_TRUE(client.ask(kWarmUp));
  settle(context);
  const Counts before = counts_after_steps(context);
  EXPECT_TRUE(client.ask(kRequests));
  expect_lean(counts_after_steps(context) - before, kRequests);
  context.cancel();
  context.synchronize();
}

void check_serve(unsigned threads, std::uint64_t switches_max) {
  Context context(quiet_options());
  const Listening listening(context);
  DeviceBuffer<Memory> memory(context, 1);
  Mapped<Switches> switches(context, 1);
  launch(context, {.grid = 1, .block = threads}, threads == 1 ? serve_by_thread : serve_by_block, context.net(),
         listening.socket, memory.data(), switches.data());
  ask_and_count(context, listening);
  ASSERT_EQ(switches[0].requests, kAll);
  EXPECT_LE(median_of(switches[0]), switches_max);
}

TEST(CostsOfARequest, ToServeByAThread) { check_serve(1, 0); }
TEST(CostsOfARequest, ToServeByABlock) { check_serve(32, 320); }

__global__ void serve_and_count(http::Server server, std::uint64_t* switches) {
  http::serve(server);
  if (threadIdx.x == 0) *switches = cpu_device::thread_switches();
}

void check_example(unsigned threads, std::uint64_t switches_max) {
  constexpr unsigned kConnections = 4;
  constexpr std::uint64_t kLongNs = 60'000'000'000;
  const http::Limits limits{kLongNs, 1 << 10};
  Context context(quiet_options());
  const Listening listening(context);
  DeviceBuffer<http::Connection> connections(context, kConnections);
  DeviceBuffer<char> input(context, kConnections * http::input_bytes(limits));
  DeviceBuffer<PollEntry> entries(context, kConnections + 1);
  DeviceBuffer<http::Counters> counters(context, 1);
  Mapped<int> failed(context, 1);
  Mapped<std::uint64_t> switches(context, 1);
  const http::CohortRule no_cohorts{1, 0};
  const http::Server server{context.net(), listening.socket,   limits,       no_cohorts,     {kLongNs, true},
                            kConnections,  connections.data(), input.data(), entries.data(), counters.data(),
                            failed.data()};
  launch(context, {.grid = 1, .block = threads}, serve_and_count, server, switches.data());
  ask_and_count(context, listening);
  EXPECT_EQ(failed[0], 0);
  EXPECT_LE(switches[0], switches_max);
}

TEST(CostsOfARequest, ToTheExampleByAThread) { check_example(1, 0); }
TEST(CostsOfARequest, ToTheExampleByABlock) { check_example(32, 32 * 13 * kAll); }

}  // namespace
}  // namespace gpusock::costs::requests
