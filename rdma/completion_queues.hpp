#pragma once
/// @file Completion queues that many queue pairs share, and that cannot overflow.
///
/// Each work request of a queue pair may cause a completion, even if it asked for none: after an error, all outstanding
/// requests are flushed. So a queue pair takes as many entries as its send queue has. If the entries of the next queue
/// pair fit in no queue, another queue is made.

#include <infiniband/verbs.h>

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

namespace gpusock::rdma {

/// Receives the completions of one queue pair.
class CompletionSink {
 public:
  /// All requests up to this one (counted from the queue pair's first, modulo 2^32) are complete, or `status` says what
  /// went wrong.
  virtual void on_completion(std::uint32_t request, ibv_wc_status status) = 0;
  /// There are no more completions now: the sink can act on those that it got.
  virtual void on_completions_taken() = 0;

 protected:
  ~CompletionSink() = default;
};

/// A request's wr_id: the sink that gets its completion, and the request's number.
inline constexpr std::uint64_t make_request_id(std::uint32_t sink, std::uint32_t request) {
  return std::uint64_t{sink} << 32 | request;
}

class CompletionQueues {
 public:
  /// Each queue gets `entries_max` entries, at most what the device allows.
  CompletionQueues(ibv_context* device, std::uint32_t entries_max);
  ~CompletionQueues();
  CompletionQueues(const CompletionQueues&) = delete;
  CompletionQueues& operator=(const CompletionQueues&) = delete;

  /// The entries of one queue pair in a queue.
  struct Entries {
    std::size_t queue = 0;
    std::uint32_t count = 0;
    std::uint32_t sink = 0;  ///< for make_request_id()
  };
  /// Takes entries of a queue. Throws std::system_error: EINVAL if a queue cannot hold so many, else the device's
  /// error.
  Entries take(std::uint32_t count, CompletionSink& sink);
  /// Call it after the queue pair is destroyed. Takes the completions that the queue pair left out of the queue, and
  /// drops them.
  void give_back(const Entries& entries);

  ibv_cq* queue(const Entries& entries) const { return queues_[entries.queue].queue; }
  std::size_t count() const { return queues_.size(); }

  /// Takes all completions from the queues and passes them to their sinks. True if there were any. Does not wait.
  bool poll();

 private:
  struct Queue {
    ibv_cq* queue;
    std::uint32_t entries;
    std::uint32_t taken;
  };
  bool poll(Queue& queue);

  ibv_context* device_;
  std::uint32_t entries_max_;
  std::vector<Queue> queues_;
  std::unordered_map<std::uint32_t, CompletionSink*> sinks_;
  std::vector<std::uint32_t> touched_;
  std::uint32_t next_sink_ = 1;
};

}  // namespace gpusock::rdma
