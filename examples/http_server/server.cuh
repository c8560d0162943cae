#pragma once
/// @file The kernel: each block serves its own connections, each thread some of them, and executes their requests in
/// cohorts.

#include "examples/http_server/cohort.cuh"
#include "examples/http_server/full.cuh"

#include <gpusock/device.cuh>

namespace http {

/// What the kernel works with. Arrays have one part for each block, block after block.
struct Server {
  gpusock::Net net;
  gpusock::Socket listener;
  Limits limits;
  CohortRule rule;
  FullRule full;
  unsigned connections_of_block;
  Connection* connections;      ///< zeroed memory
  char* input;                  ///< input_bytes() for each connection
  gpusock::PollEntry* entries;  ///< for each block: the listener's, then one for each connection
  Counters* counters;
  int* failed;  ///< 0, or why serving ended
};

/// One block's share.
struct BlockShare {
  const Server& server;
  Connection* connections;
  char* input;
  gpusock::PollEntry* entries;
  unsigned count;
};

/// Plans which event of each connection the block waits for, and until when. Both results are in shared memory.
template <class Block>
__device__ void plan_wait(const Block& block, const BlockShare& share, unsigned long long& until_ns, Seating& seating) {
  if (block.thread_rank() == 0) {
    until_ns = seating.idle_longest_ns = ~0ull;
    seating.free = 0;
  }
  block.sync();
  unsigned long long mine_ns = ~0ull, idle_ns = ~0ull;
  unsigned mine_free = 0;
  for (unsigned i = block.thread_rank(); i < share.count; i += block.size()) {
    const Connection& connection = share.connections[i];
    const auto events = connection.events();
    share.entries[1 + i] = {events == 0 ? -1 : connection.socket(), events, 0};
    const unsigned long long until = connection.deadline_ns();
    mine_ns = until < mine_ns ? until : mine_ns;
    const unsigned long long idle = connection.waits_since_ns();
    idle_ns = idle < idle_ns ? idle : idle_ns;
    mine_free += connection.stage() == Stage::free;
  }
  if (mine_ns != ~0ull) atomicMin(&until_ns, mine_ns);
  if (idle_ns != ~0ull) atomicMin(&seating.idle_longest_ns, idle_ns);
  if (mine_free != 0) atomicAdd(&seating.free, mine_free);
  block.sync();
}

/// Plans the listener's part of the wait: whether to wait for new clients, too. One thread.
__device__ inline void plan_clients(const BlockShare& share, unsigned long long& until_ns, Seating& seating) {
  const Server& server = share.server;
  const unsigned long long now_ns = gpusock::clock_ns();
  seating.all_taken = value_of(server.counters->seated) >= std::uint64_t{share.count} * gridDim.x;
  seating.displace_at_ns = seating.idle_longest_ns == ~0ull ? ~0ull : seating.idle_longest_ns + server.full.displace_ns;
  seating.look_at_time(now_ns);
  const bool takes = seating.takes_clients(server.full, now_ns);
  share.entries[0] = {takes ? server.listener : -1, gpusock::kPollIn, 0};
  if (takes || seating.displace_at_ns == ~0ull) return;
  // By the next look all seats of all blocks may be taken.
  const unsigned long long then_ns = now_ns + server.full.displace_ns;
  const unsigned long long look_ns = seating.displace_at_ns > now_ns ? seating.displace_at_ns : then_ns;
  if (look_ns < until_ns) until_ns = look_ns;
  if (seating.patient_until_ns > now_ns && seating.patient_until_ns < until_ns) until_ns = seating.patient_until_ns;
}

/// Returns a client that waits. A negative number: another block has taken it, or poll will tell what is wrong.
__device__ inline gpusock::Socket take_client(const Server& server) {
  return server.net.accept(gpusock::this_thread(), server.listener, gpusock::Deadline::now());
}

/// Gives a free connection to a new client.
__device__ inline void seat(const BlockShare& share, unsigned i, gpusock::Socket socket) {
  const Server& server = share.server;
  share.connections[i].open(server.net, socket, share.input + i * input_bytes(server.limits), server.limits,
                            *server.counters);
  share.connections[i].serve(server.net, server.limits, *server.counters);
}

/// Serves this thread's connections that have events, and takes new clients. Each thread calls it by itself.
__device__ inline void serve_own(const BlockShare& share, const Seating& seating, unsigned rank, unsigned size) {
  const Server& server = share.server;
  bool may_accept = share.entries[0].revents != 0;
  const bool displaces = may_accept && seating.all_taken && seating.displace_at_ns <= gpusock::clock_ns();
  for (unsigned i = rank; i < share.count; i += size) {
    Connection& connection = share.connections[i];
    if (connection.stage() == Stage::free) {
      const auto socket = may_accept ? take_client(server) : -1;
      may_accept = socket >= 0;
      if (socket >= 0) seat(share, i, socket);
      continue;
    }
    if (share.entries[1 + i].revents != 0) {
      connection.serve(server.net, server.limits, *server.counters);
    } else if (connection.deadline_ns() <= gpusock::clock_ns()) {
      connection.expire(server.net, server.limits, *server.counters);
      continue;
    }
    // Displaces the connection that waits longest, unless the rest of its request has come just now.
    if (!displaces || !may_accept || connection.waits_since_ns() != seating.idle_longest_ns) continue;
    const auto socket = take_client(server);
    may_accept = false;
    if (socket < 0) continue;
    connection.displace(server.net, *server.counters);
    seat(share, i, socket);
  }
}

/// Answers a client for whom there is no room with 503. One thread, after serve_own(): a seat that has just become free
/// goes to the next client.
__device__ inline void turn_away(const BlockShare& share, const Seating& seating, TurnedAway& turned_away) {
  const Server& server = share.server;
  turned_away.expire(server.net);
  if (share.entries[0].revents == 0 || !seating.refuses(server.full, gpusock::clock_ns())) return;
  const auto socket = take_client(server);
  if (socket < 0) return;
  count(server.counters->turned_away);
  turned_away.add(server.net, socket);
}

/// Until when waiting requests wait for others to join them; 0: they do not wait.
__device__ inline unsigned long long cohorts_due_ns(const Waiting& waiting, const CohortRule& rule) {
  unsigned long long due_ns = ~0ull;
  for (int kind = 0; kind < kKinds; ++kind) {
    if (waiting.ready[kind] == 0) continue;
    const bool now = waiting.ready[kind] >= rule.size || waiting.may_join == 0;
    const unsigned long long then = now ? 0 : waiting.oldest_ns[kind] + rule.delay_ns;
    due_ns = then < due_ns ? then : due_ns;
  }
  return due_ns;
}

/// Executes every cohort whose time has come, and subtracts its requests from those that wait. All threads of the block
/// call it.
template <class Block>
__device__ void execute_due(const Block& block, const BlockShare& share, Waiting& waiting, unsigned long long now_ns) {
  __shared__ Cohort cohort;
  const Server& server = share.server;
  const bool nobody_joins = waiting.may_join == 0;
  for (int kind = 0; kind < kKinds; ++kind) {
    unsigned left = waiting.ready[kind];
    const bool all = left != 0 && (nobody_joins || waiting.oldest_ns[kind] + server.rule.delay_ns <= now_ns);
    while (left >= server.rule.size || (all && left != 0)) {
      gather(block, cohort, static_cast<Kind>(kind), server.rule.size, share.connections, share.count);
      execute(block, server.net, cohort, share.connections, server.limits, *server.counters);
      left -= cohort.size;
      if (block.thread_rank() == 0) {
        waiting.ready[kind] = left;
        waiting.may_join = 1;  // the answered clients may send more
      }
      block.sync();  // all have read the size before the next cohort is gathered
    }
  }
}

__device__ inline gpusock::Deadline deadline_at(unsigned long long at_ns) {
  if (at_ns == ~0ull) return gpusock::Deadline::never();
  const auto now_ns = gpusock::clock_ns();
  return at_ns <= now_ns ? gpusock::Deadline::now() : gpusock::Deadline::after_ns(at_ns - now_ns);
}

/// The most threads of a block. serve() is compiled for this number: else nvcc may give a thread more registers than a
/// GPU has for so many threads.
inline constexpr unsigned kThreadsMax = 256;

__global__ void __launch_bounds__(kThreadsMax, 1) serve(Server server) {
  const auto block = gpusock::this_block();
  __shared__ Waiting waiting;
  __shared__ unsigned long long until_ns, now_ns;
  __shared__ Seating seating;
  __shared__ TurnedAway turned_away;
  const std::size_t first = std::size_t{blockIdx.x} * server.connections_of_block;
  const BlockShare share{server, server.connections + first, server.input + first * input_bytes(server.limits),
                         server.entries + first + blockIdx.x, server.connections_of_block};
  if (block.thread_rank() == 0) {
    turned_away.clear();
    seating.patient_until_ns = 0;
  }
  look_at_waiting(block, waiting, share.connections, share.count);
  for (;;) {
    plan_wait(block, share, until_ns, seating);
    if (block.thread_rank() == 0) {
      plan_clients(share, until_ns, seating);
      const auto due_ns = cohorts_due_ns(waiting, server.rule), turned_away_ns = turned_away.due_ns();
      until_ns = due_ns < until_ns ? due_ns : until_ns;
      until_ns = turned_away_ns < until_ns ? turned_away_ns : until_ns;
    }
    block.sync();
    const int events = server.net.poll(block, share.entries, static_cast<int>(share.count) + 1, deadline_at(until_ns));
    const bool over = events < 0 || (share.entries[0].revents & (gpusock::kPollErr | gpusock::kPollNval)) != 0;
    if (over) {
      if (block.thread_rank() == 0 && events != -ECANCELED) *server.failed = events < 0 ? events : -EBADF;
      return;
    }
    serve_own(share, seating, block.thread_rank(), block.size());
    if (block.thread_rank() == 0) turn_away(share, seating, turned_away);
    look_at_waiting(block, waiting, share.connections, share.count);
    if (block.thread_rank() == 0) now_ns = gpusock::clock_ns();
    block.sync();
    execute_due(block, share, waiting, now_ns);
  }
}

}  // namespace http
