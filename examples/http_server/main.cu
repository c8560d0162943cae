// A web server in kernels, until SIGINT or SIGTERM. It speaks HTTP/1.1, and executes requests of one kind in cohorts.
//   http_server 127.0.0.1:8000        then, elsewhere: curl http://127.0.0.1:8000/
#include "examples/http_server/server.cuh"

#include <gpusock/gpusock.hpp>
#include <gpusock/launch.hpp>

#include "examples/endpoints.hpp"
#include "examples/listening.cuh"
#include "program/arguments.hpp"
#include "program/environment.hpp"
#include "program/run.hpp"
#include "program/stop_signals.hpp"

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <string>

namespace {

using gpusock::Endpoint;

constexpr int kBacklog = 512;
#if defined(GPUSOCK_DEVICE_CPU)
constexpr unsigned kThreads = 1;  // threads of a block share one processor
#else
constexpr unsigned kThreads = 32;
#endif

struct Settings {
  std::string where;
  unsigned blocks = 2, threads = kThreads, connections = 128, cohort = 16, delay_us = 100, timeout_ms = 10'000,
           displace_ms = 1'000;
  std::string when_full = "refuse";
  std::uint64_t body_bytes_max = 1 << 20;
};

/// Web clients speak plain TCP.
Endpoint endpoint_of(const Settings& settings) {
  return examples::plain_tcp_endpoint(settings.where, "web clients speak");
}

/// Bytes for the input of all connections. All blocks have the same number, so there may be more than were asked for.
std::uint64_t input_bytes_of(const Settings& settings) {
  const std::uint64_t of_block = (settings.connections + settings.blocks - 1) / settings.blocks;
  return of_block * settings.blocks * http::input_bytes({0, settings.body_bytes_max});
}

gpusock::Options options_for(const Settings& settings) {
  gpusock::Options options = gpusock::Options::from_env();
  // A closed connection keeps its slot until the last byte of its answer is delivered: makes room for some of those.
  options.connections_max = settings.connections + settings.connections / 4 + 16 +
                            settings.blocks * http::TurnedAway::kRoom;
  options.sockets_max = std::max(options.sockets_max, options.connections_max);
  options.ring_bytes = 64 << 10;
  return options;
}

void print_served(const http::Counters& counters) {
  std::cout << "served " << counters.connections << " connections; refused " << counters.refused << " requests, "
            << counters.expired << " clients took too long\n";
  if (counters.displaced + counters.turned_away != 0) {
    std::cout << "all connections were taken: " << counters.displaced << " idle or slow clients made room, "
              << counters.turned_away << " new ones got 503\n";
  }
  for (int i = 0; i < http::kKinds; ++i) {
    const http::KindCounters& of = counters.kinds[i];
    if (of.cohorts == 0) continue;
    const http::Text name = http::name_of(static_cast<http::Kind>(i));
    std::cout << std::string(name.data, name.bytes) << ": " << of.requests << " requests in " << of.cohorts
              << " cohorts of " << static_cast<double>(of.requests) / static_cast<double>(of.cohorts)
              << " on average, the largest of " << of.largest << '\n';
  }
}

int run(const Settings& settings) {
  gpusock::program::block_stop_signals();  // before the context starts its threads
  gpusock::Context context(options_for(settings));
  const http::Limits limits{settings.timeout_ms * std::uint64_t{1'000'000}, settings.body_bytes_max};
  const unsigned of_block = (settings.connections + settings.blocks - 1) / settings.blocks;
  const std::size_t all = std::size_t{of_block} * settings.blocks;
  gpusock::DeviceBuffer<http::Connection> connections(context, all);
  gpusock::DeviceBuffer<char> input(context, input_bytes_of(settings));
  gpusock::DeviceBuffer<gpusock::PollEntry> entries(context, all + settings.blocks);
  gpusock::DeviceBuffer<http::Counters> counters(context, 1);
  gpusock::Mapped<int> failed(context, 1);
  // Listens last: clients that connect are served.
  const gpusock::Listener listener = examples::listen(context, endpoint_of(settings), settings.where, kBacklog);
  const http::Server server{context.net(),
                            listener.socket,
                            limits,
                            {settings.cohort, settings.delay_us * std::uint64_t{1000}},
                            {settings.displace_ms * std::uint64_t{1'000'000}, settings.when_full == "refuse"},
                            of_block,
                            connections.data(),
                            input.data(),
                            entries.data(),
                            counters.data(),
                            failed.data()};

  gpusock::program::print_now("listening on " + listener.where.to_string() + "\n");
  gpusock::Stream stream(context);
  gpusock::launch(context, {.grid = settings.blocks, .block = settings.threads, .stream = &stream}, http::serve,
                  server);
  gpusock::program::wait_for_stop([&] { return stream.idle(); });
  context.cancel();
  context.synchronize();
  if (failed[0] < 0) throw gpusock::Error(-failed[0], "serving on " + settings.where);
  http::Counters counted;
  counters.copy_out({&counted, 1});
  print_served(counted);
  return EXIT_SUCCESS;
}

}  // namespace

int main(int argc, char** argv) {
  gpusock::program::Arguments arguments(
      "Serves HTTP/1.1 from kernels until SIGINT or SIGTERM, then prints what it has served.",
      "Paths: / (a page), /time, /primes?n=N (N up to 1000000), /stats, and POST to /echo.");
  Settings settings;
  arguments.positional("ENDPOINT", settings.where, "host:port; port 0 picks one");
  arguments.number("--blocks", settings.blocks, "blocks; connections go to whichever is free", 1, 256);
  arguments.number("--threads", settings.threads, "threads in a block; on the CPU device one is the fastest", 1,
                   http::kThreadsMax);
  arguments.number("--connections", settings.connections, "connections served at the same time; see --when-full", 1,
                   2048);
  arguments.choice("--when-full", settings.when_full, {"refuse", "wait"},
                   "what happens to new clients while all connections are taken and none of them makes room within a "
                   "second: refuse, they get 503; wait, they wait");
  arguments.number(
      "--displace-ms", settings.displace_ms,
      "while all connections are taken: milliseconds after which a client without a whole request makes room for "
      "a new one",
      1, 3'600'000);
  arguments.number("--cohort", settings.cohort, "requests of one kind that are executed side by side; 1: each alone", 1,
                   http::kCohortMax);
  arguments.number("--delay-us", settings.delay_us, "microseconds that a request waits for its cohort to fill", 0,
                   60'000'000);
  arguments.number("--timeout-ms", settings.timeout_ms,
                   "milliseconds for a client to send a whole request, to take a whole answer, and in between", 1,
                   3'600'000);
  arguments.bytes("--body-max", settings.body_bytes_max, "the largest body of a request", 1, 256 << 20);
  arguments.check(
      [&] { return gpusock::program::problem_of_memory(input_bytes_of(settings), "--connections x --body-max"); });
  arguments.check(gpusock::program::problem_of_environment);
  arguments.check([&] { return examples::problem_of_endpoint([&] { return endpoint_of(settings); }); });
  if (const auto status = arguments.parse(argc, argv)) return *status;
  return gpusock::program::run("http_server", [&] { return run(settings); });
}
