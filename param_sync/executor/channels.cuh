#pragma once
/// @file How the ranks open their channels, in kernels: of two ranks the higher one connects, the lower one accepts.

#include "param_sync/executor/hello.hpp"
#include "param_sync/executor/run.cuh"
#include "param_sync/wire/connecting.cuh"

namespace param_sync::executor {

/// What opening the channels needs; by value. Device memory, but for what Run says.
struct Opening {
  Run run;
  ChannelHello hello;
  const Channel* channels = nullptr;
  gpusock::Socket* sockets = nullptr;            ///< run.sockets
  const gpusock::Endpoint* addresses = nullptr;  ///< by rank
  gpusock::Socket listener = -1;
};

/// False, with the failure recorded, where the other rank has other settings. One thread.
__device__ inline bool agrees(const Opening& opening, const ChannelHello& theirs, int channel) {
  const ChannelHelloField field = opening.hello.difference(theirs);
  if (field == ChannelHelloField::none) return true;
  fail(opening.run, {.kind = ExecutionFailureKind::mismatch,
                     .channel = channel,
                     .error = EPROTO,
                     .field = field,
                     .ours = opening.hello[field],
                     .theirs = theirs.is_hello() ? theirs[field] : 0});
  return false;
}

/// Connects one channel; false if it cannot. One thread.
__device__ inline bool connect_channel(const Opening& opening, int index, gpusock::Deadline deadline) {
  const Channel channel = opening.channels[index];
  ChannelHello ours = opening.hello, theirs;
  ours.channel = channel.number;
  const gpusock::Socket socket = connect_with_hello(opening.run.net, opening.addresses[channel.peer], ours, theirs,
                                                    deadline, [&] { return !has_failed(opening.run); });
  if (socket == kNotNeeded) return false;
  if (socket < 0) {
    fail(opening.run, {.kind = ExecutionFailureKind::connect, .channel = index, .error = -socket});
    return false;
  }
  SharedSocket(opening.sockets[index]).store(socket, cuda::memory_order_relaxed);
  return agrees(opening, theirs, index);
}

/// The first channel to a higher (or lower) rank that is not open yet, or -1. One thread.
__device__ inline int first_missing(const Opening& opening, bool higher) {
  for (int i = 0; i < opening.run.socket_count; ++i) {
    if ((opening.channels[i].peer > opening.hello.rank) == higher && !is_open(opening.sockets[i])) return i;
  }
  return -1;
}

using ChannelGreetings = gpusock::Greetings<ChannelHello>;

/// Accepts one connection. Programs that are no rank of this run are disconnected. False if none comes, or one of a
/// rank with other settings. One thread.
__device__ inline bool accept_channel(const Opening& opening, ChannelGreetings& greetings, gpusock::Deadline deadline) {
  const gpusock::Net& net = opening.run.net;
  const auto thread = gpusock::this_thread();
  ChannelHello theirs;
  const gpusock::Socket socket = next_caller(
      greetings, theirs, deadline, [&] { return !has_failed(opening.run); },
      [&] { return first_missing(opening, false) >= 0; });
  if (socket < 0) {
    if (has_failed(opening.run)) return false;
    fail(opening.run,
         {.kind = ExecutionFailureKind::accept, .channel = first_missing(opening, true), .error = -socket});
    return false;
  }
  if (!theirs.is_hello() || theirs.rank <= opening.hello.rank) {
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
