#pragma once
/// @file Last words: before a rank that fails ends its connections, it tells its peers which rank it has lost. So if a
/// healthy rank ends a connection, its peer names the lost rank, or says that it does not know it.
///
/// Each rank has one more connection to each of its peers (kLastWordsChannel). It carries only last words, so there is
/// room for them, and they come before the connection's end. A rank that was killed says nothing: its connection ends
/// without a word. A rank whose wait has timed out accepts the word of any peer. One thread makes each call. With
/// LastWordsBy::lanes it is a thread of the first lane that fails. With LastWordsBy::host one kernel of the program
/// sends words, and another one receives them.

#include "param_sync/executor/program.hpp"
#include "param_sync/wire/shared_socket.cuh"

#include "gpusock/device.cuh"

#include <cerrno>

namespace param_sync::executor {

/// What a rank says when it ends.
struct LastWord {
  static constexpr std::uint64_t kMagic = 0x64726f577473614c;  ///< "LastWord"
  /// Why it ends.
  enum class Why : std::uint32_t {
    lost,         ///< `rank` is lost, for certain
    waits,        ///< the wait for `rank` has timed out; a word of another kind follows when the cause is known
    protocol,     ///< `rank` does not follow the schedule
    argument,     ///< `rank` was given an invalid argument
    unknown,      ///< the speaker does not know the cause
    interrupted,  ///< the speaker was told to end
    completed     ///< the speaker has done all of its work
  };
  static constexpr int kSaidMax = 2;  ///< words of one rank: that it waits, and what it has found out
  std::uint64_t magic = kMagic;       ///< distinguishes a word from other bytes
  Why why = Why::unknown;             ///< why it ends
  std::int32_t rank = -1;             ///< the rank that `why` is about

  /// True if the word says which rank is the cause.
  GPUSOCK_FN bool is_certain() const { return why == Why::lost || why == Why::protocol || why == Why::argument; }
};
static_assert(sizeof(LastWord) == 16);

/// Sends and receives last words. Kernels take it by value. Pointers point to device memory; without `channels` there
/// are no last words.
struct LastWords {
  gpusock::Net net;                              ///< of the executor's context
  const Channel* channels = nullptr;             ///< all channels of this rank
  const gpusock::Socket* sockets = nullptr;      ///< by channel
  std::int32_t count = 0;                        ///< how many channels there are
  std::int32_t rank = -1;                        ///< this rank
  const gpusock::Endpoint* addresses = nullptr;  ///< where ranks listen

  /// True if ranks tell each other last words.
  GPUSOCK_FN bool exist() const { return channels != nullptr; }
  /// True if last words go on this channel.
  GPUSOCK_FN bool carries(int channel) const { return exist() && channels[channel].number == kLastWordsChannel; }

  /// Returns the socket for last words to and from a rank; negative if there is none, or it is not open.
  __device__ gpusock::Socket socket_to(int peer) const {
    for (int i = 0; i < count; ++i) {
      if (carries(i) && channels[i].peer == peer) return SharedSocket(sockets[i]).get();
    }
    return -EBADF;
  }

  /// Sends a word to all peers that are connected by now. Does not wait.
  __device__ __noinline__ void speak(const LastWord& word) const {
    for (int i = 0; i < count; ++i) {
      if (!carries(i)) continue;
      // Errors are ignored: a peer that has ended receives no word.
      const gpusock::Socket socket = SharedSocket(sockets[i]).get();
      if (socket >= 0) net.send(gpusock::this_thread(), socket, &word, sizeof word, 0, gpusock::Deadline::now());
    }
  }

  /// Waits for the peer's next word. Returns its size, 0 if the connection has ended without one, or a negated errno.
  __device__ __noinline__ std::int64_t listen(int peer, LastWord& word, std::uint64_t timeout_ns) const {
    const gpusock::Socket socket = socket_to(peer);
    if (socket < 0) return -EBADF;
    const auto got = net.recv(gpusock::this_thread(), socket, &word, sizeof word, gpusock::kWaitAll,
                              gpusock::Deadline::after_ns(timeout_ns));
    if (got == static_cast<std::int64_t>(sizeof word) && word.magic != LastWord::kMagic) return -EPROTO;
    return got < 0 || got == static_cast<std::int64_t>(sizeof word) ? got : 0;
  }

  /// Finds the next certain word that has come from any rank except `except`. Returns its channel, or -1. Does not
  /// wait.
  __device__ int hear_told(int except, LastWord& word) const {
    for (int i = 0; i < count; ++i) {
      if (!carries(i) || channels[i].peer == except) continue;
      for (int said = 0; said < LastWord::kSaidMax; ++said) {
        if (listen(channels[i].peer, word, 0) != static_cast<std::int64_t>(sizeof word)) break;
        if (word.is_certain()) return i;
      }
    }
    return -1;
  }

  /// False if nothing answers at the peer's address: its process is stopped, or its host is gone. On a link that the
  /// peer's operating system serves alone (tcp), a stopped process looks like one that waits. A refusal is an answer: a
  /// rank that has only closed its listener lives, and the connections of a process that is gone end by themselves.
  __device__ __noinline__ bool answers(int peer) const {
    constexpr std::uint64_t kPatienceNs = 2'000'000'000;
    const auto thread = gpusock::this_thread();
    const gpusock::Socket socket = net.connect(thread, addresses[peer], gpusock::Deadline::after_ns(kPatienceNs));
    if (socket >= 0) net.close(thread, socket);
    return socket != -ETIMEDOUT && socket != -EHOSTUNREACH && socket != -ENETUNREACH;
  }
};

}  // namespace param_sync::executor
