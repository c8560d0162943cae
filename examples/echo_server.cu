// An echo server in kernels: any number of TCP clients, several at once, until SIGINT or SIGTERM.
//   echo_server 127.0.0.1:7000,link=tcp        then, elsewhere: nc 127.0.0.1 7000
#include <gpusock/device.cuh>
#include <gpusock/gpusock.hpp>

#include "examples/endpoints.hpp"
#include "program/arguments.hpp"
#include "program/environment.hpp"
#include "program/run.hpp"
#include "program/socket_failure.hpp"
#include "program/stop_signals.hpp"

#include <cstdlib>
#include <cstring>
#include <string>

namespace {

using gpusock::Endpoint;
using gpusock::Net;
using gpusock::Socket;

constexpr int kBacklog = 128;
constexpr int kBufferBytes = 16 * 1024;

/// What the kernels tell the host.
struct Report {
  Socket listener;  ///< or why there is none
  Endpoint local;
  std::int32_t failed;  ///< 0, or why accepting ended
};

__global__ void open_listener(Net net, Endpoint at, Report* report) {
  report->listener = net.listen(gpusock::this_thread(), at, kBacklog);
  if (report->listener >= 0) net.getsockname(report->listener, report->local);
}

/// Sends everything back until the client has sent its last, then the end of our stream follows it.
template <class Block>
__device__ void echo(const Block& block, const Net& net, Socket client, char* buffer) {
  for (;;) {
    const auto got = net.recv(block, client, buffer, kBufferBytes);
    if (got <= 0 || net.send(block, client, buffer, got, gpusock::kWaitAll) < 0) break;
  }
  net.close(block, client);
}

/// Each block serves one client after the other; all of them accept on the same listener.
__global__ void serve(Net net, Socket listener, Report* report) {
  const auto block = gpusock::this_block();
  alignas(16) __shared__ char buffer[kBufferBytes];
  for (;;) {
    const Socket client = net.accept(block, listener);
    if (client < 0) {
      if (client != -ECANCELED && block.thread_rank() == 0) report->failed = client;
      return;
    }
    echo(block, net, client, buffer);
  }
}

int run(const std::string& where, unsigned blocks, unsigned threads) {
  gpusock::program::block_stop_signals();  // before the context starts its threads
  gpusock::Context context(gpusock::Options::from_env());
  gpusock::Mapped<Report> report(context, 1);
  const Endpoint at = examples::stream_endpoint(where);
  gpusock::launch(context, {.grid = 1, .block = 1}, open_listener, context.net(), at, report.data());
  context.synchronize();
  if (report[0].listener < 0) {
    throw gpusock::program::SocketFailure("listening on " + where, gpusock::program::Attempt::listening,
                                          -report[0].listener, at);
  }

  gpusock::program::print_now("listening on " + report[0].local.host_port() + "\n");
  gpusock::Stream stream(context);
  gpusock::launch(context, {.grid = blocks, .block = threads, .stream = &stream}, serve, context.net(),
                  report[0].listener, report.data());
  gpusock::program::wait_for_stop([&] { return stream.idle(); });
  context.cancel();
  context.synchronize();
  if (report[0].failed < 0) throw gpusock::Error(-report[0].failed, "accepting on " + where);
  return EXIT_SUCCESS;
}

}  // namespace

int main(int argc, char** argv) {
  gpusock::program::Arguments arguments("Echoes what TCP clients send, from kernels, until SIGINT or SIGTERM.");
  std::string where;
  unsigned blocks = 8, threads = 32;
  arguments.positional("ENDPOINT", where,
                       "host:port[,link=auto|p2p|verbs|fabric|tcp]; port 0 picks one; link=tcp serves any TCP client");
  arguments.number("--blocks", blocks, "blocks, each serving one client at a time; more clients wait their turn", 1,
                   256);
  arguments.number("--threads", threads, "threads in a block", 1, 1024);
  arguments.check(gpusock::program::problem_of_environment);
  arguments.check([&] { return examples::problem_of_endpoint([&] { return examples::stream_endpoint(where); }); });
  if (const auto status = arguments.parse(argc, argv)) return *status;
  return gpusock::program::run("echo_server", [&] { return run(where, blocks, threads); });
}
