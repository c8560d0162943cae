// An echo server in kernels: any number of clients, many of them at the same time, until SIGINT or SIGTERM. It is a
// server to copy from: no client can keep it from serving the others, whatever the client does or fails to do.
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

namespace {

using gpusock::Deadline;
using gpusock::Endpoint;
using gpusock::Net;
using gpusock::PollEntry;
using gpusock::Socket;

constexpr int kBacklog = 512;
constexpr std::size_t kRingBytes = 64 << 10;
/// Pieces that a client may have echoed before the others have their turn.
constexpr int kTurnsMax = 16;

/// What the kernels tell the host.
struct Report {
  Socket listener;  ///< or why there is none
  Endpoint local;
  std::int32_t failed;  ///< 0, or why serving ended
};

/// What the kernel works with. Memory is per block, block after block.
struct Server {
  Net net;
  Socket listener;
  int seats;  ///< of a block: how many clients it serves at the same time
  std::uint64_t displace_ns;
  PollEntry* entries;       ///< of each block: the listener's, then one for each seat; a free seat's socket is negative
  std::uint64_t* moved_ns;  ///< by seat: when its client last sent or took something
  int* taken;               ///< seats of all blocks that are taken
  Report* report;

  /// Relaxed: a block that sees a change late only looks again.
  __device__ cuda::atomic_ref<int, cuda::thread_scope_device> all_taken() const {
    return cuda::atomic_ref<int, cuda::thread_scope_device>(*taken);
  }
};

__global__ void open_listener(Net net, Endpoint at, std::int64_t idle_timeout_ns, Report* report) {
  const auto me = gpusock::this_thread();
  report->listener = net.listen(me, at, kBacklog);
  if (report->listener < 0) return;
  // Accepted sockets have it, too: a client that neither sends nor takes anything for so long is reset.
  net.setsockopt(me, report->listener, gpusock::SocketOption::idle_timeout_ns, idle_timeout_ns);
  net.getsockname(report->listener, report->local);
}

/// One block's clients, and what it does next.
struct Room {
  const Server& server;
  PollEntry* entries;
  std::uint64_t* moved_ns;
};

/// In shared memory: where the next client sits, and how long to wait for one.
struct Plan {
  int seat;              ///< a free seat, or the one of the client that has been idle longest; -1: none yet
  std::uint64_t due_ns;  ///< when there will be one, as far as that is known
};

/// When a seat's client may have to make room.
__device__ std::uint64_t displaced_from_ns(const Room& room, int seat) {
  return room.moved_ns[seat] + room.server.displace_ns;
}

/// Finds a seat for the next client. Where those of all blocks are taken, the client that has been idle longest gives
/// up its seat, but not before it has been idle for some time: until then new clients wait in the listener's backlog.
__device__ Plan find_seat(const Room& room) {
  Plan plan{-1, ~std::uint64_t{0}};
  std::uint64_t oldest_ns = ~std::uint64_t{0};
  for (int seat = 0; seat < room.server.seats; ++seat) {
    if (room.entries[1 + seat].socket < 0) return {seat, ~std::uint64_t{0}};
    if (room.moved_ns[seat] >= oldest_ns) continue;
    oldest_ns = room.moved_ns[seat];
    plan.seat = seat;
  }
  const auto now_ns = gpusock::clock_ns();
  plan.due_ns = displaced_from_ns(room, plan.seat);
  const int all = room.server.seats * static_cast<int>(gridDim.x);
  const bool others_have_room = room.server.all_taken().load(cuda::memory_order_relaxed) < all;
  if (others_have_room) plan.due_ns = now_ns + room.server.displace_ns;  // to look again
  if (now_ns < plan.due_ns) plan.seat = -1;
  return plan;
}

/// Sends back what has arrived, as far as the client takes it now; the rest stays in the ring. False once the client
/// has sent its last, or is gone.
template <class Block>
__device__ bool echo(const Block& block, const Room& room, int seat) {
  const Net& net = room.server.net;
  PollEntry& entry = room.entries[1 + seat];
  const Socket client = entry.socket;
  bool moved = false;
  std::int16_t waits_for = gpusock::kPollIn;
  for (int turn = 0; turn < kTurnsMax; ++turn) {
    const gpusock::Span arrived = net.peek(block, client, kRingBytes, Deadline::now());
    if (arrived.size == -EAGAIN) break;
    if (arrived.size <= 0) return false;
    const auto sent = net.send(block, client, arrived.data, arrived.size, gpusock::kDontWait);
    net.release(block, client, sent > 0 ? sent : 0);
    if (sent < 0 && sent != -EAGAIN) return false;
    moved |= sent > 0;
    // It does not take more: its next bytes wait until it does.
    if (sent < arrived.size) {
      waits_for = gpusock::kPollOut;
      break;
    }
  }
  if (block.thread_rank() == 0) {
    entry.events = waits_for;
    if (moved) room.moved_ns[seat] = gpusock::clock_ns();
  }
  return true;
}

template <class Block>
__device__ void leave_seat(const Block& block, const Room& room, int seat) {
  PollEntry& entry = room.entries[1 + seat];
  const bool taken = entry.socket >= 0;
  if (taken) room.server.net.close(block, entry.socket);
  block.sync();
  if (block.thread_rank() == 0) {
    if (taken) room.server.all_taken().fetch_sub(1, cuda::memory_order_relaxed);
    entry.socket = -1;
  }
  block.sync();
}

/// Takes a client that waits. 0, or why the listener can accept no more.
template <class Block>
__device__ int seat_client(const Block& block, const Room& room, int seat) {
  const Socket client = room.server.net.accept(block, room.server.listener, Deadline::now());
  if (client == -EAGAIN) return 0;  // another block has taken it
  if (client < 0) return client;
  leave_seat(block, room, seat);
  if (block.thread_rank() == 0) {
    room.entries[1 + seat] = {client, gpusock::kPollIn, 0};
    room.moved_ns[seat] = gpusock::clock_ns();
    room.server.all_taken().fetch_add(1, cuda::memory_order_relaxed);
  }
  return 0;
}

__device__ Deadline deadline_at(std::uint64_t at_ns) {
  if (at_ns == ~std::uint64_t{0}) return Deadline::never();
  const auto now_ns = gpusock::clock_ns();
  return at_ns <= now_ns ? Deadline::now() : Deadline::after_ns(at_ns - now_ns);
}

/// Each block serves its seats: it waits for all of them at once, and no call waits for a single client.
__global__ void serve(Server server) {
  const auto block = gpusock::this_block();
  __shared__ Plan plan;
  const Room room{server, server.entries + blockIdx.x * (1 + server.seats),
                  server.moved_ns + blockIdx.x * server.seats};
  for (int i = static_cast<int>(block.thread_rank()); i < server.seats; i += static_cast<int>(block.num_threads())) {
    room.entries[1 + i].socket = -1;
  }
  for (int error = 0; error == 0;) {
    block.sync();
    if (block.thread_rank() == 0) {
      plan = find_seat(room);
      room.entries[0] = {plan.seat < 0 ? -1 : server.listener, gpusock::kPollIn, 0};
    }
    block.sync();
    const Plan now = plan;
    const auto until = now.seat < 0 ? deadline_at(now.due_ns) : Deadline::never();
    const int events = server.net.poll(block, room.entries, 1 + server.seats, until);
    error = events < 0 ? events : 0;
    for (int seat = 0; seat < server.seats && error == 0; ++seat) {
      if (room.entries[1 + seat].revents != 0 && !echo(block, room, seat)) leave_seat(block, room, seat);
    }
    if (error == 0 && room.entries[0].revents != 0) {
      block.sync();
      // The client of that seat may have moved something since the seat was chosen.
      const bool is_taken = room.entries[1 + now.seat].socket >= 0;
      if (block.thread_rank() == 0 && is_taken && gpusock::clock_ns() < displaced_from_ns(room, now.seat)) {
        plan.seat = -1;
      }
      block.sync();
      if (plan.seat >= 0) error = seat_client(block, room, now.seat);
    }
    if (error != 0 && error != -ECANCELED && block.thread_rank() == 0) server.report->failed = error;
  }
}

struct Settings {
  std::string where;
  unsigned blocks = 8, threads = 32, connections = 512, idle_ms = 60'000, displace_ms = 1'000;

  unsigned seats() const { return (connections + blocks - 1) / blocks; }
};

gpusock::Options options_for(const Settings& settings) {
  gpusock::Options options = gpusock::Options::from_env();
  // A connection that is closed keeps its place until the last byte is delivered: room for some of those.
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
  const Endpoint at = examples::stream_endpoint(settings.where);
  gpusock::launch(context, {.grid = 1, .block = 1}, open_listener, context.net(), at,
                  settings.idle_ms * std::int64_t{1'000'000}, report.data());
  context.synchronize();
  if (report[0].listener < 0) {
    throw gpusock::program::SocketFailure("listening on " + settings.where, gpusock::program::Attempt::listening,
                                          -report[0].listener, at);
  }

  gpusock::program::print_now("listening on " + report[0].local.to_string() + "\n");
  const std::size_t all = std::size_t{settings.seats()} * settings.blocks;
  gpusock::DeviceBuffer<PollEntry> entries(context, all + settings.blocks);
  gpusock::DeviceBuffer<std::uint64_t> moved_ns(context, all);
  gpusock::DeviceBuffer<int> taken(context, 1);
  const Server server{context.net(),
                      report[0].listener,
                      static_cast<int>(settings.seats()),
                      settings.displace_ms * std::uint64_t{1'000'000},
                      entries.data(),
                      moved_ns.data(),
                      taken.data(),
                      report.data()};
  gpusock::Stream stream(context);
  gpusock::launch(context, {.grid = settings.blocks, .block = settings.threads, .stream = &stream}, serve, server);
  gpusock::program::wait_for_stop([&] { return stream.idle(); });
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
  arguments.number("--blocks", settings.blocks, "blocks; connections go to whichever is free", 1, 256);
  arguments.number("--threads", settings.threads, "threads in a block", 1, 1024);
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
