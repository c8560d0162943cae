#pragma once
/// @file How the ranks open their channels, in kernels: of two ranks the higher one connects, the lower one accepts.

#include "param_sync/executor/connect_retry.cuh"
#include "param_sync/executor/hello.hpp"
#include "param_sync/executor/run.cuh"
#include "gpusock/greetings.cuh"

namespace param_sync::executor {

/// Where this rank listens; in mapped memory.
struct Listening {
  gpusock::Socket socket = -1;
  gpusock::Endpoint at;
};

/// What opening the channels needs; by value. Device memory, but for what Run says.
struct Opening {
  Run run;
  ChannelHello hello;
  const Channel* channels = nullptr;
  gpusock::Socket* sockets = nullptr;            ///< run.sockets
  const gpusock::Endpoint* addresses = nullptr;  ///< by rank
  gpusock::Socket listener = -1;
};

/// The socket of a channel while both kernels set them. Relaxed: the kernels that use the sockets come later.
using SharedSocket = cuda::atomic_ref<gpusock::Socket, cuda::thread_scope_device>;

static __global__ void open_listener(gpusock::Net net, gpusock::Endpoint at, int backlog, Listening* listening) {
  const auto thread = gpusock::this_thread();
  listening->socket = net.listen(thread, at, backlog);
  if (listening->socket >= 0) net.getsockname(listening->socket, listening->at);
}

/// Receives a hello; 0, or a negated errno. One thread.
__device__ inline std::int64_t receive_hello(const gpusock::Net& net, gpusock::Socket socket, ChannelHello& theirs,
                                             gpusock::Deadline deadline) {
  const std::int64_t got = net.recv(gpusock::this_thread(), socket, &theirs, sizeof theirs, gpusock::kWaitAll,
                                    deadline);
  if (got < 0) return got;
  return got == static_cast<std::int64_t>(sizeof theirs) ? 0 : -ECONNRESET;
}

__device__ inline std::int64_t send_hello(const gpusock::Net& net, gpusock::Socket socket, const ChannelHello& ours,
                                          gpusock::Deadline deadline) {
  const std::int64_t sent = net.send(gpusock::this_thread(), socket, &ours, sizeof ours, gpusock::kWaitAll, deadline);
  return sent < 0 ? sent : 0;
}

/// False, with the failure recorded, where the other rank has other settings. One thread.
__device__ inline bool agrees(const Opening& opening, const ChannelHello& theirs, int channel) {
  const ChannelHelloField field = theirs.magic != ChannelHello::kMagic ? ChannelHelloField::version
                                                                       : opening.hello.difference(theirs);
  if (field == ChannelHelloField::none) return true;
  fail(opening.run, {.kind = ExecutionFailureKind::mismatch,
                     .channel = channel,
                     .error = EPROTO,
                     .field = field,
                     .ours = opening.hello[field],
                     .theirs = theirs.magic != ChannelHello::kMagic ? 0 : theirs[field]});
  return false;
}

/// Connects one channel; false where it cannot. One thread.
__device__ inline bool connect_channel(const Opening& opening, int index, gpusock::Deadline deadline) {
  const gpusock::Net& net = opening.run.net;
  const auto thread = gpusock::this_thread();
  const Channel channel = opening.channels[index];
  ChannelHello ours = opening.hello;
  ours.channel = channel.number;
  std::int64_t last_answer = -ETIMEDOUT;  // says more than that the deadline cut the last attempt short
  while (!has_failed(opening.run)) {
    const gpusock::Socket socket = net.connect(thread, opening.addresses[channel.peer], deadline);
    ChannelHello theirs;
    std::int64_t error = socket < 0 ? socket : send_hello(net, socket, ours, deadline);
    if (error == 0) error = receive_hello(net, socket, theirs, deadline);
    if (error == 0) {
      SharedSocket(opening.sockets[index]).store(socket, cuda::memory_order_relaxed);
      return agrees(opening, theirs, index);
    }
    if (socket >= 0) net.close(thread, socket);
    const bool retry = worth_retrying(error, opening.addresses[channel.peer]);
    if (retry) last_answer = error;
    if (!retry || deadline.passed()) {
      fail(opening.run, {.kind = ExecutionFailureKind::connect,
                         .channel = index,
                         .error = static_cast<std::int32_t>(-(error == -ETIMEDOUT ? last_answer : error))});
      return false;
    }
    __nanosleep(1'000'000);
  }
  return false;
}

/// The first channel to a higher (or lower) rank that is not open yet, or -1. One thread.
__device__ inline int first_missing(const Opening& opening, bool higher) {
  for (int i = 0; i < opening.run.socket_count; ++i) {
    if ((opening.channels[i].peer > opening.hello.rank) == higher &&
        SharedSocket(opening.sockets[i]).load(cuda::memory_order_relaxed) < 0) {
      return i;
    }
  }
  return -1;
}

using ChannelGreetings = gpusock::Greetings<ChannelHello>;

/// The next caller's socket, or a negated errno: -ETIMEDOUT also once the other block has failed. One thread.
__device__ inline gpusock::Socket next_caller(const Opening& opening, ChannelGreetings& greetings, ChannelHello& theirs,
                                              gpusock::Deadline deadline) {
  constexpr std::uint64_t kLookNs = 5'000'000;
  gpusock::Socket socket = -1;
  do {
    socket = greetings.next(theirs, gpusock::Deadline::after_ns(kLookNs));
  } while (socket == -ETIMEDOUT && !deadline.passed() && !has_failed(opening.run));
  // Higher ranks wait for the same lower rank as this one: so it is what the other block is about to say, not that they
  // have not come. That block has the same deadline.
  while (socket == -ETIMEDOUT && first_missing(opening, false) >= 0 && !has_failed(opening.run)) __nanosleep(100'000);
  return socket;
}

/// Accepts one connection. Programs that are no rank of this run are disconnected. False if none comes, or one of a
/// rank with other settings. One thread.
__device__ inline bool accept_channel(const Opening& opening, ChannelGreetings& greetings, gpusock::Deadline deadline) {
  const gpusock::Net& net = opening.run.net;
  const auto thread = gpusock::this_thread();
  ChannelHello theirs;
  const gpusock::Socket socket = next_caller(opening, greetings, theirs, deadline);
  if (socket < 0) {
    if (has_failed(opening.run)) return false;
    fail(opening.run,
         {.kind = ExecutionFailureKind::accept, .channel = first_missing(opening, true), .error = -socket});
    return false;
  }
  if (theirs.magic != ChannelHello::kMagic || theirs.rank <= opening.hello.rank) {
    net.close(thread, socket);
    return true;
  }
  ChannelHello ours = opening.hello;
  ours.channel = theirs.channel;
  for (int i = 0; i < opening.run.socket_count; ++i) {
    const Channel channel = opening.channels[i];
    if (channel.peer != theirs.rank) continue;
    if (channel.number != theirs.channel && opening.hello.difference(theirs) == ChannelHelloField::none) continue;
    SharedSocket taken(opening.sockets[i]);
    if (taken.load(cuda::memory_order_relaxed) >= 0) break;
    taken.store(socket, cuda::memory_order_relaxed);
    send_hello(net, socket, ours, deadline);  // where it fails, the first message finds that out
    return agrees(opening, theirs, i);
  }
  net.close(thread, socket);
  return true;
}

/// Opens all channels. Two blocks of one thread: one connects to lower ranks, one accepts from higher ranks.
static __global__ void open_channels(Opening opening) {
  const auto deadline = gpusock::Deadline::after_ns(opening.run.timeout_ns);
  const int rank = opening.hello.rank;
  if (blockIdx.x == 0) {
    for (int i = 0; i < opening.run.socket_count; ++i) {
      if (opening.channels[i].peer < rank && !connect_channel(opening, i, deadline)) return;
    }
  } else {
    ChannelGreetings greetings(opening.run.net, opening.listener, ChannelHello::kPatienceNs);
    while (first_missing(opening, true) >= 0 && !has_failed(opening.run)) {
      if (!accept_channel(opening, greetings, deadline)) return;
    }
  }
}

/// Gives room back that was reserved for a step that has not come. When no kernel writes there any more.
static __global__ void end_reservations(Run run) {
  for (int i = 0; i < run.socket_count; ++i) {
    if (run.sockets[i] >= 0) run.net.abort(gpusock::this_thread(), run.sockets[i]);  // an error: there is none
  }
}

static __global__ void close_channels(Run run, gpusock::Socket listener) {
  const auto thread = gpusock::this_thread();
  for (int i = 0; i < run.socket_count; ++i) {
    if (run.sockets[i] >= 0) run.net.close(thread, run.sockets[i]);
  }
  if (listener >= 0) run.net.close(thread, listener);
}

}  // namespace param_sync::executor
