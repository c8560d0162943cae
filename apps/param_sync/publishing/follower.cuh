#pragma once
/// @file A block that follows a training: it asks for newer weights again and again, and publishes them to the kernels
/// of its own device.

#include "publishing/snapshots.cuh"
#include "publishing/wire.hpp"

#include "gpusock/io.cuh"
#include "gpusock/owned_socket.cuh"

#include <cerrno>

namespace param_sync {

/// How far a follower is. In mapped memory. The host may read `state` at any time, and the others after the kernel.
struct FollowReport {
  enum State : std::uint64_t { connecting, following, lost, refused, has_last };

  std::uint64_t state;         ///< a State, and in the upper half an errno that says why
  std::uint64_t versions;      ///< that have come
  std::uint64_t steps_behind;  ///< the most steps that a version which came was ahead of the one before
};

/// What a follower has, by value. All pointers point to device memory, unless their comments say otherwise.
struct Follower {
  gpusock::Net net;
  gpusock::Endpoint training;
  Snapshots snapshots;
  std::uint64_t model = 0;                ///< WeightsRequest::model
  std::uint64_t pause_ns = 0;             ///< between an answer and the next question
  std::uint64_t* confirmed_ns = nullptr;  ///< see confirmed_at()
  FollowReport* report = nullptr;         ///< mapped
};

/// The time of the last question after which the newest slot had the newest version, by the device's clock. 0: none has
/// come; kForever: the training has ended, and no newer one will come. One thread.
__device__ inline std::uint64_t confirmed_at(std::uint64_t& confirmed_ns) {
  // relaxed: another block may see the time a moment before it sees the weights
  return executor::DeviceWord(confirmed_ns).load(cuda::memory_order_relaxed);
}

namespace follower {

constexpr std::uint64_t kPatienceMs = 10'000;  // for an answer
constexpr std::uint64_t kRetryMs = 1'000;      // until it tries to connect again
constexpr int kRefused = 1 << 20;              // no errno: there is no such training

template <class Block>
__device__ inline void tell(const Block& block, const Follower& all, FollowReport::State state, int error = 0) {
  if (block.thread_rank() != 0) return;
  const std::uint64_t word = std::uint64_t{state} | static_cast<std::uint64_t>(error) << 32;
  executor::SystemWord(all.report->state).store(word, cuda::memory_order_relaxed);  // relaxed: it only informs
}

template <class Block>
__device__ inline void confirm(const Block& block, const Follower& all, std::uint64_t at_ns) {
  // relaxed: see confirmed_at()
  if (block.thread_rank() == 0) executor::DeviceWord(*all.confirmed_ns).store(at_ns, cuda::memory_order_relaxed);
}

/// Receives a version, and publishes it. Returns 0, an errno or kRefused.
template <class Block>
__device__ inline int take_weights(const Block& block, const Follower& all, const gpusock::Net& net,
                                   gpusock::Socket training, const WeightsAnswer& answer, std::uint64_t have) {
  __shared__ int slot;
  if (answer.floats != all.snapshots.floats) return kRefused;
  block.sync();
  if (block.thread_rank() == 0) slot = all.snapshots.begin_write();  // there are two slots more than readers
  block.sync();
  const std::uint64_t bytes = answer.floats * sizeof(float);
  for (std::uint64_t done = 0; done < bytes;) {
    const auto got = net.recv(block, training, reinterpret_cast<char*>(all.snapshots.of(slot)) + done, bytes - done, 0,
                              gpusock::Deadline::after_ms(kPatienceMs));
    if (got <= 0) return got == 0 ? ECONNRESET : static_cast<int>(-got);
    done += static_cast<std::uint64_t>(got);
  }
  block.sync();  // all have received their part
  if (block.thread_rank() == 0) {
    all.snapshots.versions[slot] = answer.version;
    all.snapshots.publish(slot);
    ++all.report->versions;
    const std::uint64_t ahead = answer.version > have ? answer.version - have : 0;
    if (have != 0 && ahead > all.report->steps_behind) all.report->steps_behind = ahead;
  }
  return 0;
}

/// Asks until the connection or the training ends. Returns 0 if the training has ended, or an errno, or kRefused.
/// `have`: the version that it has.
template <class Block>
__device__ inline int ask_on(const Block& block, const Follower& all, const gpusock::Net& net, gpusock::Socket training,
                             std::uint64_t& have) {
  __shared__ WeightsAnswer answer;
  gpusock::Reader reader(block, net, training, &answer, sizeof answer);
  for (;;) {
    const std::uint64_t asked_ns = gpusock::clock_ns();
    const WeightsRequest request{kWeightsMagic, 0, have, all.model};
    const auto patience = gpusock::Deadline::after_ms(kPatienceMs);
    const auto sent = net.send(block, training, &request, sizeof request, gpusock::kWaitAll, patience);
    if (sent < 0) return static_cast<int>(-sent);
    const auto got = reader.exactly(sizeof answer, patience);
    if (!got) return got.ended() ? ECONNRESET : -got.error();
    if (answer.magic != kWeightsMagic || answer.error != 0) return kRefused;
    if (answer.floats != 0) {
      if (const int error = take_weights(block, all, net, training, answer, have); error != 0) return error;
      have = answer.version;
    }
    const bool is_last = answer.is_last != 0;
    if (have != 0) confirm(block, all, is_last ? gpusock::kForever : asked_ns);
    tell(block, all, is_last ? FollowReport::has_last : FollowReport::following);
    if (is_last) return 0;
    // Nothing comes unasked: so this is a pause, and ends early if the training does.
    const auto ended = net.peek(block, training, 1, gpusock::Deadline::after_ns(all.pause_ns));
    if (ended.size >= 0) return ended.size == 0 ? ECONNRESET : kRefused;
    if (ended.size != -ETIMEDOUT) return static_cast<int>(-ended.size);
  }
}

}  // namespace follower

/// Follows a training until it or the context ends. A training that is lost, or has other layers, is looked for again
/// each second: another one may have begun there. Block-collective.
template <class Block>
__device__ void follow(const Block& block, const Follower& all) {
  std::uint64_t have = 0;
  for (;;) {
    const auto socket = all.net.connect(block, all.training, gpusock::Deadline::after_ms(follower::kPatienceMs));
    int error = static_cast<int>(-socket);
    if (socket >= 0) {
      const gpusock::OwnedSocket owned(block, all.net, socket);
      error = owned.error() != 0 ? -owned.error() : follower::ask_on(block, all, owned.net(), owned.socket(), have);
    }
    if (error == 0 || error == ECANCELED) return;
    const bool is_refused = error == follower::kRefused;
    follower::tell(block, all, is_refused ? FollowReport::refused : FollowReport::lost, is_refused ? 0 : error);
    if (all.net.poll(block, nullptr, 0, gpusock::Deadline::after_ms(follower::kRetryMs)) < 0) return;
  }
}

}  // namespace param_sync
