#pragma once
/// @file How the ranks of a store connect: each rank, as a worker, connects to the servers of all ranks, also to its
/// own, and to the ranks that pass weights on to it.

#include "param_sync/store/server.cuh"
#include "param_sync/wire/connecting.cuh"
#include "param_sync/wire/shared_socket.cuh"

namespace param_sync::store {

/// The argument of connect_all(), by value. Pointers point to device memory, unless their comment says otherwise.
struct Connecting {
  gpusock::Net net;
  Hello hello;
  int ranks = 1;
  int of_pair = 1;                               ///< connections of a worker to an owner, that for last words included
  Listening* listening = nullptr;                ///< mapped: its socket is -1 once it is closed
  gpusock::PollSet* set = nullptr;               ///< mapped: the server's set, or a negated errno
  const gpusock::Endpoint* addresses = nullptr;  ///< by rank
  gpusock::Socket* sockets = nullptr;            ///< Worker::sockets
  Connection* connections = nullptr;             ///< of the server: by rank, and then by connection
  Tree tree;                                     ///< Worker::tree
  gpusock::Socket* parents = nullptr;            ///< Worker::parents
  gpusock::Socket* children = nullptr;           ///< Worker::children
  std::uint64_t timeout_ns = 0;
  std::uint64_t* failed = nullptr;
  FailureRecord<Failure>* failure = nullptr;  ///< mapped
};

__device__ inline bool fail(const Connecting& all, const Failure& what) {
  record_failure(*all.failed, *all.failure, what);
  return false;
}

/// Connects to a rank, and stores the socket. All listen before they tell their ports, so one that refuses has ended.
/// One that has too many callers may disconnect some: they try again. Returns false if it cannot connect. One thread.
__device__ inline bool connect_to(const Connecting& all, int owner, int connection, gpusock::Socket& made,
                                  gpusock::Deadline deadline) {
  constexpr int kAttempts = 20;
  constexpr unsigned kPauseNs = 10'000'000;
  Hello ours = all.hello, theirs;
  ours.connection = connection;
  std::int64_t error = 0;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    const gpusock::Socket socket = all.net.connect(gpusock::this_thread(), all.addresses[owner], deadline);
    error = socket < 0 ? socket : exchange_hellos(all.net, socket, ours, theirs, deadline);
    if (error == 0) SharedSocket(made).set(socket);
    if (error != 0 && socket >= 0) all.net.close(gpusock::this_thread(), socket);
    if (error != -ECONNRESET || has_failed(*all.failed)) break;
    __nanosleep(kPauseNs);
  }
  if (error != 0) return fail(all, {FailureKind::connect, owner, static_cast<std::int32_t>(-error)});
  if (theirs.magic == Hello::kMagic && theirs.settings == ours.settings && theirs.rank == owner) return true;
  return fail(all, {FailureKind::mismatch, owner, EPROTO});
}

/// Connects to all servers, and to the ranks that pass weights on to this one. Returns false if it cannot connect. One
/// thread.
__device__ inline bool connect_to_all(const Connecting& all, gpusock::Deadline deadline) {
  for (int i = 0; i < all.ranks * all.of_pair; ++i) {
    if (!connect_to(all, i % all.ranks, i / all.ranks, all.sockets[i], deadline)) return false;
  }
  for (int owner = 0; owner < all.ranks; ++owner) {
    if (!all.tree.is_sent(owner, all.hello.rank)) continue;
    const int parent = all.tree.parent_of(owner, all.hello.rank);
    if (!connect_to(all, parent, all.of_pair + owner, all.parents[owner], deadline)) return false;
  }
  return true;
}

/// True if this rank passes an owner's weights on to a rank.
__device__ inline bool passes_on(const Connecting& all, int owner, int rank) {
  return all.tree.is_sent(owner, rank) && all.tree.parent_of(owner, rank) == all.hello.rank;
}

/// The rank of the first connection that has not come yet, or -1. One thread.
__device__ inline int first_missing(const Connecting& all) {
  for (int i = 0; i < all.ranks * all.of_pair; ++i) {
    if (all.connections[i].socket < 0) return i / all.of_pair;
  }
  for (int i = 0; i < all.ranks * all.ranks; ++i) {
    if (all.children[i] < 0 && passes_on(all, i / all.ranks, i % all.ranks)) return i % all.ranks;
  }
  return -1;
}

/// Takes a connection whose hello has come. Disconnects what is no worker of this store; but first it tells a rank with
/// other settings this rank's own. One thread.
__device__ inline bool take(const Connecting& all, gpusock::Socket socket, const Hello& theirs,
                            gpusock::Deadline deadline) {
  const bool known = theirs.magic == Hello::kMagic && theirs.rank >= 0 && theirs.rank < all.ranks;
  if (known) send_hello(all.net, socket, all.hello, deadline);
  const bool agrees = known && theirs.settings == all.hello.settings && theirs.connection >= 0 &&
                      theirs.connection < all.of_pair + all.ranks;
  const int owner = agrees ? theirs.connection - all.of_pair : -1;
  if (owner >= 0) {
    gpusock::Socket& child = all.children[owner * all.ranks + theirs.rank];
    if (passes_on(all, owner, theirs.rank) && child < 0) {
      child = socket;
      return true;
    }
  } else if (agrees) {
    Connection& connection = all.connections[theirs.rank * all.of_pair + theirs.connection];
    if (connection.socket < 0) {
      connection.rank = theirs.rank;
      connection.socket = socket;
      return true;
    }
  }
  all.net.close(gpusock::this_thread(), socket);
  return !known || fail(all, {FailureKind::mismatch, theirs.rank, EPROTO});
}

/// True if the peer of a connection has ended it. (Of a worker that has begun, requests may have come.)
__device__ inline bool has_left(const Connecting& all, gpusock::Socket socket) {
  gpusock::PollEntry entry{socket, 0, 0};
  return socket >= 0 && all.net.poll(gpusock::this_thread(), &entry, 1, gpusock::Deadline::now()) > 0;
}

/// Returns false if the store has failed, or a rank that was connected has ended: it may have failed. One thread.
__device__ inline bool goes_on(const Connecting& all) {
  if (has_failed(*all.failed)) return false;
  for (int i = 0; i < all.ranks * all.of_pair; ++i) {
    if (has_left(all, all.connections[i].socket)) {
      return fail(all, {FailureKind::left, all.connections[i].rank, ECONNRESET});
    }
    if (has_left(all, SharedSocket(all.sockets[i]).get()))
      return fail(all, {FailureKind::left, i % all.ranks, ECONNRESET});
  }
  return true;
}

/// Accepts all workers. One thread.
__device__ inline void accept_all(const Connecting& all, gpusock::Deadline deadline) {
  gpusock::Greetings<Hello> greetings(all.net, all.listening->socket, Hello::kPatienceNs);
  for (int missing = first_missing(all); missing >= 0 && goes_on(all); missing = first_missing(all)) {
    Hello theirs;
    const gpusock::Socket socket = next_caller(
        greetings, theirs, deadline, [&] { return goes_on(all); }, [] { return false; });
    if (socket < 0) fail(all, {FailureKind::accept, missing, -socket});
    if (socket < 0 || !take(all, socket, theirs, deadline)) return;
  }
}

__device__ inline void close_listener(const Connecting& all) {
  if (all.listening->socket >= 0) all.net.close(gpusock::this_thread(), all.listening->socket);
  all.listening->socket = -1;
}

/// Runs as two blocks of one thread: one connects to all servers, the other one accepts all workers.
static __global__ void connect_all(Connecting all) {
  const auto deadline = gpusock::Deadline::after_ns(all.timeout_ns);
  if (blockIdx.x == 0) {
    connect_to_all(all, deadline);
  } else {
    *all.set = all.net.open_set(gpusock::this_thread());
    accept_all(all, deadline);
    close_listener(all);
  }
}

/// Closes a socket, if there is one. One thread.
__device__ inline void close(const Connecting& all, gpusock::Socket& socket) {
  if (socket >= 0) all.net.close(gpusock::this_thread(), socket);
  socket = -1;
}

/// Closes what connect_all() has opened. Runs as one block of one thread, when no other kernel uses it.
static __global__ void disconnect_all(Connecting all) {
  const auto thread = gpusock::this_thread();
  close_listener(all);
  for (int i = 0; i < all.ranks * all.of_pair; ++i) {
    close(all, all.sockets[i]);
    Connection& connection = all.connections[i];
    if (connection.socket >= 0 && connection.phase != Phase::gone) all.net.close(thread, connection.socket);
    connection.socket = -1;
  }
  for (int i = 0; i < all.ranks; ++i) close(all, all.parents[i]);
  for (int i = 0; i < all.ranks * all.ranks; ++i) close(all, all.children[i]);
  if (*all.set >= 0) all.net.close_set(thread, *all.set);
  *all.set = -1;
}

}  // namespace param_sync::store
