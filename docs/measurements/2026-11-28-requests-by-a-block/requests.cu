// How long a request of HTTP takes that serve() answers by one block, and a client that waits for each answer: times of
// 20,000 requests in nanoseconds, median and 99th hundredth. usage: requests THREADS
#include <gpusock/gpusock.hpp>
#include <gpusock/server.cuh>

#include <algorithm>
#include <arpa/inet.h>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>
#include <vector>

using namespace gpusock;
using Memory = Seats<4>;

struct Answer {
  template <class AnyClient>
  GPUSOCK_FN int operator()(AnyClient& client) const {
    for (;;) {
      const Received line = client.reader.line(Deadline::now());
      if (!line) return line.error();
      if (line.size == 0) break;
    }
    client.writer << "HTTP/1.1 200 OK\r\nContent-Length: " << 3 << "\r\n\r\nhi\n";
    return 0;
  }
};

__global__ void answer_all(Net net, Socket listener, Memory* memory) {
  serve(this_block(), net, listener, memory, 1, 0, ServerLimits{}, Answer{});
}

int main(int count, char** arguments) {
  const int threads = count == 2 ? std::atoi(arguments[1]) : 0;
  if (threads < 1 || threads > 1024) {
    std::fprintf(stderr, "usage: requests THREADS\nTHREADS: of the block, 1 to 1024\n");
    return 2;
  }
  Context context;
  const Net net = context.net();
  const Socket listener = net.listen(this_thread(), Endpoint::parse("127.0.0.1:0,link=tcp"), 8);
  Endpoint where;
  net.getsockname(listener, where);
  DeviceBuffer<Memory> memory(context, 1);
  launch(context, {.grid = 1, .block = static_cast<unsigned>(threads)}, answer_all, net, listener, memory.data());
  const int client = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_port = htons(where.port);
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const int on = 1;
  setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  if (connect(client, reinterpret_cast<sockaddr*>(&at), sizeof at) != 0) return 1;
  static constexpr char kRequest[] = "GET / HTTP/1.1\r\nHost: here\r\nAccept: text/plain\r\n\r\n";
  const std::size_t answer_bytes = std::strlen("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nhi\n");
  std::vector<long long> each;
  for (int i = 0; i < 21'000; ++i) {
    const auto before = std::chrono::steady_clock::now();
    if (send(client, kRequest, sizeof kRequest - 1, 0) != sizeof kRequest - 1) return 1;
    char answer[64];
    for (std::size_t got = 0; got < answer_bytes;) {
      const ssize_t more = recv(client, answer + got, sizeof answer - got, 0);
      if (more <= 0) return 1;
      got += static_cast<std::size_t>(more);
    }
    if (i >= 1'000) each.push_back((std::chrono::steady_clock::now() - before).count());
  }
  std::sort(each.begin(), each.end());
  std::printf("%lld %lld\n", each[each.size() / 2], each[each.size() * 99 / 100]);
  close(client);
  context.cancel();
  context.synchronize();
}
