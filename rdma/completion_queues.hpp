#pragma once
/// @file Completion queues that many queue pairs share, and that cannot overflow.
///
/// Every work request of a queue pair may end in a completion, also one that asked for none: in error, all that are
/// outstanding are flushed. So a queue pair takes as many places as its send queue is deep, and a queue is full when
/// the next one's do not fit: then another queue is made.

#include <infiniband/verbs.h>

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

namespace gpusock::rdma {

/// Who gets the completions of one queue pair.
class CompletionSink {
 public:
  /// All requests up to this one (counted from the queue pair's first, modulo 2^32) are complete, or `status` says what
  /// went wrong.
  virtual void on_completion(std::uint32_t request, ibv_wc_status status) = 0;
  /// No more completions now: time to act on them.
  virtual void on_completions_taken() = 0;

 protected:
  ~CompletionSink() = default;
};

/// A request's wr_id: who posted it, and which one it is.
inline constexpr std::uint64_t make_request_id(std::uint32_t sink, std::uint32_t request) {
  return std::uint64_t{sink} << 32 | request;
}

class CompletionQueues {
 public:
  /// `entries_max`: of one queue, what the device allows and no more than is wise.
  CompletionQueues(ibv_context* device, std::uint32_t entries_max);
  ~CompletionQueues();
  CompletionQueues(const CompletionQueues&) = delete;
  CompletionQueues& operator=(const CompletionQueues&) = delete;

  /// Places of one queue pair in a queue.
  struct Places {
    std::size_t queue = 0;
    std::uint32_t entries = 0;
    std::uint32_t sink = 0;  ///< for make_request_id()
  };
  /// Throws std::system_error: EINVAL for more than a queue holds, or what the device says.
  Places take(std::uint32_t entries, CompletionSink& sink);
  /// Call it after the queue pair is destroyed. The completions that it left in the queue are taken out and dropped.
  void give_back(const Places& places);

  ibv_cq* queue(const Places& places) const { return queues_[places.queue].queue; }
  std::size_t count() const { return queues_.size(); }

  /// Takes all completions there are; true if there were any. Does not wait.
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
