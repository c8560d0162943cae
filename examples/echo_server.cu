// An echo server in kernels, until SIGINT or SIGTERM. It serves any number of clients, many at the same time. It is a
// server to copy from: idle, stopped and broken clients cannot keep it from serving the others. A client that goes on
// sending keeps its seat, since every byte is a complete request here.
//   echo_server 127.0.0.1:7000,link=tcp        then, elsewhere: nc 127.0.0.1 7000
#include <gpusock/device.cuh>
#include <gpusock/gpusock.hpp>

#include "examples/endpoints.hpp"
#include "program/arguments.hpp"
#include "program/environment.hpp"
#include "program/run.hpp"
#include "program/socket_failure.hpp"
#include "program/stop_signals.hpp"

#include <cuda/atomic>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

namespace {

using gpusock::Deadline;
using gpusock::Endpoint;
using gpusock::Net;
using gpusock::PollEvent;
using gpusock::PollSet;
using gpusock::Socket;

constexpr int kBacklog = 512;
/// The most threads of a block. serve() is compiled for this number: else nvcc may give a thread more registers than a
/// GPU has for so many threads.
constexpr unsigned kThreadsMax = 512;
constexpr std::size_t kRingBytes = 64 << 10;
/// How many pieces are echoed to a client before the others have their turn.
constexpr int kTurnsMax = 16;
/// How many events a block takes at a time.
constexpr int kEventsMax = 16;

/// Relaxed in all uses: a block that sees a change late only looks again.
template <class T>
using Shared = cuda::atomic_ref<T, cuda::thread_scope_device>;
constexpr auto kRelaxed = cuda::memory_order_relaxed;

/// What the kernels tell the host.
struct Report {
  Socket listener;  ///< the listener, or why there is none
  Endpoint local;
  std::int32_t failed;  ///< 0, or why serving ended
};

/// What the server keeps for one client. Block `seat % Server::blocks` serves it.
struct Seat {
  Socket client;           ///< negative: the seat is free
  std::uint64_t moved_ns;  ///< when the client last sent or took something
};

/// What the kernels work with.
struct Server {
  Net net;
  Socket listener;
  int blocks;
  int seats;
  std::uint64_t displace_ns;
  Seat* all_seats;
  PollSet* sets;  ///< each block's, with its clients; then the door's, which is woken when a seat becomes free
  Report* report;
};

__global__ void open_listener(Net net, Endpoint at, std::int64_t idle_timeout_ns, PollSet* sets, int count,
                              Report* report) {
  const auto me = gpusock::this_thread();
  report->listener = net.listen(me, at, kBacklog);
  for (int i = 0; i < count && report->listener >= 0; ++i) {
    sets[i] = net.open_set(me);
    if (sets[i] < 0) report->listener = sets[i];
  }
  if (report->listener < 0) return;
  // Accepted sockets inherit this: a client that neither sends nor takes anything for so long is reset.
  net.setsockopt(me, report->listener, gpusock::SocketOption::idle_timeout_ns, idle_timeout_ns);
  net.getsockname(report->listener, report->local);
}

/// The seat for the next client; -1: there is none before `due_ns`.
struct Plan {
  int seat = -1;
  std::uint64_t due_ns = ~std::uint64_t{0};
};

/// Finds a seat for the next client: a free one, from the last one's neighbour on, so that all blocks have their share.
/// If all are taken, the client that has been idle longest gives up its seat, but not before it has been idle
/// for `displace_ns`. Until then new clients wait in the listener's backlog.
__device__ Plan find_seat(const Server& server, int last) {
  Plan plan;
  std::uint64_t oldest_ns = ~std::uint64_t{0};
  for (int i = 1; i <= server.seats; ++i) {
    const int seat = (last + i) % server.seats;
    if (Shared<Socket>(server.all_seats[seat].client).load(kRelaxed) < 0) return {seat, 0};
    const std::uint64_t moved_ns = Shared<std::uint64_t>(server.all_seats[seat].moved_ns).load(kRelaxed);
    if (moved_ns >= oldest_ns) continue;
    oldest_ns = moved_ns;
    plan = {seat, moved_ns + server.displace_ns};
  }
  if (gpusock::clock_ns() < plan.due_ns) plan.seat = -1;
  return plan;
}

__device__ Deadline deadline_at(std::uint64_t at_ns) {
  const auto now_ns = gpusock::clock_ns();
  return at_ns <= now_ns ? Deadline::now() : Deadline::after_ns(at_ns - now_ns);
}

/// Accepts clients and gives each to the block of a seat. One thread: it is the only one that gives seats to clients.
__global__ void keep_door(Server server) {
  const auto me = gpusock::this_thread();
  const Net& net = server.net;
  const PollSet door = server.sets[server.blocks];
  Plan plan;
  for (int last = 0;; last = plan.seat) {
    const Socket client = net.accept(me, server.listener, Deadline::never());
    int error = client < 0 ? client : 0;
    while (error >= 0 && (plan = find_seat(server, last)).seat < 0) {
      PollEvent event;
      error = net.wait(me, door, &event, 1, deadline_at(plan.due_ns));
    }
    if (error < 0) {
      if (error != -ECANCELED) server.report->failed = error;
      return;
    }
    Seat& seat = server.all_seats[plan.seat];
    Shared<std::uint64_t>(seat.moved_ns).store(gpusock::clock_ns(), kRelaxed);
    const Socket before = Shared<Socket>(seat.client).exchange(client, kRelaxed);
    if (before >= 0) net.close(me, before);
    net.watch(me, server.sets[plan.seat % server.blocks], client, gpusock::kPollIn, plan.seat);
  }
}

/// Sends back what has arrived, as far as the client takes it now. The rest stays in the ring. Returns false if the
/// client has ended its stream, or is gone.
template <class Block>
__device__ bool echo(const Block& block, const Server& server, const PollEvent& event) {
  const Net& net = server.net;
  const Socket client = event.socket;
  bool moved = false;
  int waits_for = gpusock::kPollIn;
  for (int turn = 0; turn < kTurnsMax; ++turn) {
    const gpusock::Span arrived = net.peek(block, client, kRingBytes, Deadline::now());
    if (arrived.size == -EAGAIN) break;
    if (arrived.size <= 0) return false;
    const auto sent = net.send(block, client, arrived.data, arrived.size, gpusock::kDontWait);
    net.release(block, client, sent > 0 ? sent : 0);
    if (sent < 0 && sent != -EAGAIN) return false;
    moved |= sent > 0;
    // The client takes no more now: its next bytes wait until it does.
    if (sent < arrived.size) {
      waits_for = gpusock::kPollOut;
      break;
    }
  }
  if (moved && block.thread_rank() == 0) {
    Shared<std::uint64_t>(server.all_seats[event.tag].moved_ns).store(gpusock::clock_ns(), kRelaxed);
  }
  if ((event.events & waits_for) != 0) return true;  // the client is already watched for that
  return net.watch(block, server.sets[blockIdx.x], client, waits_for, event.tag) == 0;
}

/// Frees a client's seat, unless the door has given it to another client and closed this one's socket.
template <class Block>
__device__ void leave_seat(const Block& block, const Server& server, const PollEvent& event) {
  block.sync();
  if (block.thread_rank() != 0) return;
  const auto me = gpusock::this_thread();
  Socket client = event.socket;
  if (!Shared<Socket>(server.all_seats[event.tag].client).compare_exchange_strong(client, -1, kRelaxed)) return;
  server.net.close(me, event.socket);
  server.net.wake(me, server.sets[server.blocks]);
}

/// Each block serves the clients in its set. It waits for all of them at once, and no call waits for a single client.
__global__ void __launch_bounds__(kThreadsMax, 1) serve(Server server) {
  const auto block = gpusock::this_block();
  __shared__ PollEvent events[kEventsMax];
  for (;;) {
    const int count = server.net.wait(block, server.sets[blockIdx.x], events, kEventsMax, Deadline::never());
    if (count < 0 && count != -ECANCELED && block.thread_rank() == 0) server.report->failed = count;
    if (count < 0) return;
    for (int i = 0; i < count; ++i) {
      if (!echo(block, server, events[i])) leave_seat(block, server, events[i]);
    }
  }
}

struct Settings {
  std::string where;
  unsigned blocks = 8, threads = 32, connections = 512, idle_ms = 60'000, displace_ms = 1'000;

  unsigned seats() const { return (connections + blocks - 1) / blocks; }
};

gpusock::Options options_for(const Settings& settings) {
  gpusock::Options options = gpusock::Options::from_env();
  // A closed connection keeps its slot until its last byte is delivered: makes room for some of those.
  const unsigned all = settings.seats() * settings.blocks;
  options.connections_max = std::min(4096u, all + all / 4 + 16);
  options.sockets_max = std::max(options.sockets_max, options.connections_max);
  if (options.ring_bytes == 0) options.ring_bytes = kRingBytes;
  return options;
}

int run(const Settings& settings) {
  gpusock::program::block_stop_signals();  // before the context starts its threads
  gpusock::Context context(options_for(settings));
  gpusock::Mapped<Report> report(context, 1);
  gpusock::DeviceBuffer<PollSet> sets(context, settings.blocks + 1);
  const unsigned all = settings.seats() * settings.blocks;
  gpusock::DeviceBuffer<Seat> seats(context, all);
  seats.copy_in(std::vector<Seat>(all, Seat{-1, 0}));
  const Endpoint at = examples::stream_endpoint(settings.where);
  gpusock::launch(context, {.grid = 1, .block = 1}, open_listener, context.net(), at,
                  settings.idle_ms * std::int64_t{1'000'000}, sets.data(), static_cast<int>(settings.blocks + 1),
                  report.data());
  context.synchronize();
  if (report[0].listener < 0) {
    throw gpusock::program::SocketFailure("listening on " + settings.where, gpusock::program::Attempt::listening,
                                          -report[0].listener, at);
  }

  gpusock::program::print_now("listening on " + report[0].local.to_string() + "\n");
  const Server server{context.net(),
                      report[0].listener,
                      static_cast<int>(settings.blocks),
                      static_cast<int>(all),
                      settings.displace_ms * std::uint64_t{1'000'000},
                      seats.data(),
                      sets.data(),
                      report.data()};
  gpusock::Stream stream(context), door(context);
  gpusock::launch(context, {.grid = 1, .block = 1, .stream = &door}, keep_door, server);
  gpusock::launch(context, {.grid = settings.blocks, .block = settings.threads, .stream = &stream}, serve, server);
  gpusock::program::wait_for_stop([&] { return stream.idle() || door.idle(); });
  context.cancel();
  context.synchronize();
  if (report[0].failed < 0) throw gpusock::Error(-report[0].failed, "serving on " + settings.where);
  return EXIT_SUCCESS;
}

}  // namespace

int main(int argc, char** argv) {
  gpusock::program::Arguments arguments("Echoes what TCP clients send, from kernels, until SIGINT or SIGTERM.");
  Settings settings;
  arguments.positional("ENDPOINT", settings.where,
                       "host:port[,link=auto|p2p|verbs|fabric|tcp]; port 0 picks one; link=tcp serves any TCP client");
  arguments.number("--blocks", settings.blocks, "blocks; each has its share of the connections", 1, 127);
  arguments.number("--threads", settings.threads, "threads in a block", 1, kThreadsMax);
  arguments.number("--connections", settings.connections, "connections served at the same time; more wait", 1, 3072);
  arguments.number("--idle-ms", settings.idle_ms, "milliseconds after which a client that moves no byte is reset", 1,
                   1'000'000'000);
  arguments.number("--displace-ms", settings.displace_ms,
                   "where all connections are taken: milliseconds after which an idle one makes room for a new one", 1,
                   1'000'000'000);
  arguments.check(gpusock::program::problem_of_environment);
  arguments.check(
      [&] { return examples::problem_of_endpoint([&] { return examples::stream_endpoint(settings.where); }); });
  if (const auto status = arguments.parse(argc, argv)) return *status;
  return gpusock::program::run("echo_server", [&] { return run(settings); });
}
