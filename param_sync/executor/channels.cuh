#pragma once
/// @file How kernels open the channels between ranks: of two ranks the higher one connects, and the lower one accepts.

#include "param_sync/executor/hello.hpp"
#include "param_sync/executor/run.cuh"
#include "param_sync/wire/connecting.cuh"
#include "param_sync/wire/shared_socket.cuh"

namespace param_sync::executor {

/// The argument of open_channels(), by value. Pointers point to device memory, except some of Run.
struct Opening {
  Run run;
  ChannelHello hello;
  const Channel* channels = nullptr;
  gpusock::Socket* sockets = nullptr;            ///< run.sockets
  const gpusock::Endpoint* addresses = nullptr;  ///< by rank
  gpusock::Socket listener = -1;
};

/// True if the other rank has the same settings. Otherwise records the failure. One thread.
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

/// Records that a peer claims an unexpected rank. `channel`: the channel on which another rank was expected, or -1 if a
/// second process claims the same rank. One thread.
__device__ inline void fail_by_rank(const Opening& opening, const ChannelHello& theirs, int channel) {
  fail(opening.run, {.kind = ExecutionFailureKind::mismatch,
                     .channel = channel,
                     .error = EPROTO,
                     .lost = theirs.rank,
                     .field = ChannelHelloField::rank});
}

/// True while no failure ends the opening of channels. With LastWordsBy::host the opening also ends when another rank
/// sends a last word, its connection ends, or the context ends: then the host finds out why. One thread.
__device__ inline bool goes_on(const Opening& opening) {
  const Run& run = opening.run;
  if (has_failed(run)) return false;
  if (!run.keeps_sockets) return true;
  const auto thread = gpusock::this_thread();
  if (run.net.poll(thread, nullptr, 0, gpusock::Deadline::now()) < 0) return false;
  for (int i = 0; i < run.socket_count; ++i) {
    if (opening.channels[i].number != kLastWordsChannel) continue;
    gpusock::PollEntry entry{SharedSocket(opening.sockets[i]).get(), gpusock::kPollIn, 0};
    if (run.net.poll(thread, &entry, 1, gpusock::Deadline::now()) <= 0) continue;
    fail(run, {.kind = ExecutionFailureKind::receive, .channel = i});
    return false;
  }
  return true;
}

/// Connects one channel. Returns false if it cannot. One thread.
__device__ inline bool connect_channel(const Opening& opening, int index, gpusock::Deadline deadline) {
  const Channel channel = opening.channels[index];
  ChannelHello ours = opening.hello, theirs;
  ours.channel = channel.number;
  const gpusock::Socket socket = connect_with_hello(opening.run.net, opening.addresses[channel.peer], ours, theirs,
                                                    deadline, [&] { return goes_on(opening); });
  if (socket == kNotNeeded) return false;
  if (socket < 0) {
    fail(opening.run, {.kind = ExecutionFailureKind::connect, .channel = index, .error = -socket});
    return false;
  }
  SharedSocket(opening.sockets[index]).set(socket);
  if (!agrees(opening, theirs, index)) return false;
  if (theirs.rank == channel.peer) return true;
  fail_by_rank(opening, theirs, index);
  return false;
}

/// The first channel to a higher (or lower) rank that is not open yet, or -1. One thread.
__device__ inline int first_missing(const Opening& opening, bool higher) {
  for (int i = 0; i < opening.run.socket_count; ++i) {
    if ((opening.channels[i].peer > opening.hello.rank) == higher && !SharedSocket(opening.sockets[i]).is_open()) {
      return i;
    }
  }
  return -1;
}

using ChannelGreetings = gpusock::Greetings<ChannelHello>;

/// Returns the channel that a caller asks for, or -1. If the caller's settings differ, returns any channel to its rank
/// that is not open yet. One thread.
__device__ inline int channel_of(const Opening& opening, const ChannelHello& theirs, bool differs) {
  if (!theirs.is_hello() || theirs.rank <= opening.hello.rank) return -1;
  for (int i = 0; i < opening.run.socket_count; ++i) {
    if (opening.channels[i].peer != theirs.rank) continue;
    if (differs ? !SharedSocket(opening.sockets[i]).is_open() : opening.channels[i].number == theirs.channel) return i;
  }
  return -1;
}

/// Takes a caller whose hello has come. Disconnects a program that is no rank of this run; a rank of another run is
/// first told this run's settings. Returns false if the caller is a rank with other settings, or its channel is open
/// already. One thread.
__device__ inline bool take_caller(const Opening& opening, gpusock::Socket socket, const ChannelHello& theirs,
                                   gpusock::Deadline deadline) {
  const gpusock::Net& net = opening.run.net;
  ChannelHello ours = opening.hello;
  ours.channel = theirs.channel;
  const bool differs = ours.difference(theirs) != ChannelHelloField::none;
  const int channel = channel_of(opening, theirs, differs);
  const bool taken = channel >= 0 && SharedSocket(opening.sockets[channel]).is_open();
  // If this send fails, the channel's first message fails, too.
  if (theirs.is_hello() && !taken) send_hello(net, socket, ours, deadline);
  if (channel >= 0 && !taken && !differs) {
    SharedSocket(opening.sockets[channel]).set(socket);
    return true;
  }
  net.close(gpusock::this_thread(), socket);
  if (taken) fail_by_rank(opening, theirs, -1);
  return channel < 0 || (!taken && agrees(opening, theirs, channel));
}

/// Accepts one connection. Returns false if none comes, or if take_caller() returns false. One thread.
__device__ inline bool accept_channel(const Opening& opening, ChannelGreetings& greetings, gpusock::Deadline deadline) {
  ChannelHello theirs;
  const gpusock::Socket socket = next_caller(
      greetings, theirs, deadline, [&] { return goes_on(opening); },
      [&] { return first_missing(opening, false) >= 0; });
  if (socket >= 0) return take_caller(opening, socket, theirs, deadline);
  if (!has_failed(opening.run)) {
    fail(opening.run,
         {.kind = ExecutionFailureKind::accept, .channel = first_missing(opening, true), .error = -socket});
  }
  return false;
}

/// Opens all channels, those for last words first, so that a rank that cannot open the others can say so. Runs as two
/// blocks of one thread. One connects to lower ranks. The other one accepts from higher ranks, and looks for last words
/// of other ranks while the first one still connects.
static __global__ void open_channels(Opening opening) {
  constexpr unsigned kPauseNs = 1'000'000;
  const auto deadline = gpusock::Deadline::after_ns(opening.run.timeout_ns);
  if (blockIdx.x == 0) {
    for (const bool of_words : {true, false}) {
      for (int i = 0; i < opening.run.socket_count; ++i) {
        const Channel channel = opening.channels[i];
        if (channel.peer > opening.hello.rank || (channel.number == kLastWordsChannel) != of_words) continue;
        if (!connect_channel(opening, i, deadline)) return;
      }
    }
  } else {
    ChannelGreetings greetings(opening.run.net, opening.listener, ChannelHello::kPatienceNs);
    while (first_missing(opening, true) >= 0 && goes_on(opening)) {
      if (!accept_channel(opening, greetings, deadline)) return;
    }
    while (opening.run.keeps_sockets && first_missing(opening, false) >= 0 && goes_on(opening)) __nanosleep(kPauseNs);
  }
}

/// Gives back room that was reserved for a step that has not come. Runs when no kernel writes there any more.
static __global__ void end_reservations(Run run) {
  for (int i = 0; i < run.socket_count; ++i) {
    if (run.sockets[i] >= 0) run.net.abort(gpusock::this_thread(), run.sockets[i]);  // fails if there is none
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
