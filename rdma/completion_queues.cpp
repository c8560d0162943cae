#include "rdma/completion_queues.hpp"

#include "rdma/error.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <string>

namespace gpusock::rdma {

CompletionQueues::CompletionQueues(ibv_context* device, std::uint32_t entries_max)
    : device_(device), entries_max_(entries_max) {}

CompletionQueues::~CompletionQueues() {
  for (const Queue& queue : queues_) ibv_destroy_cq(queue.queue);
}

CompletionQueues::Entries CompletionQueues::take(std::uint32_t entries, CompletionSink& sink) {
  if (entries > entries_max_) {
    fail(EINVAL, "a send queue of " + std::to_string(entries) +
                     " requests needs a completion queue longer than the RDMA device's " +
                     std::to_string(entries_max_));
  }
  auto found = std::find_if(queues_.begin(), queues_.end(),
                            [&](const Queue& queue) { return queue.entries - queue.taken >= entries; });
  if (found == queues_.end()) {
    queues_.reserve(queues_.size() + 1);
    ibv_cq* made = ibv_create_cq(device_, static_cast<int>(entries_max_), nullptr, nullptr, 0);
    if (made == nullptr)
      fail(errno, "making completion queue " + std::to_string(queues_.size() + 1) + " of the RDMA device");
    queues_.push_back({made, std::min(entries_max_, static_cast<std::uint32_t>(made->cqe)), 0});
    found = std::prev(queues_.end());
    if (found->entries < entries) {
      ibv_destroy_cq(made);
      queues_.pop_back();
      fail(EINVAL, "the RDMA device's completion queues are too short");
    }
  }
  while (next_sink_ == 0 || sinks_.contains(next_sink_)) ++next_sink_;
  if (touched_.capacity() <= sinks_.size())
    touched_.reserve(2 * sinks_.size() + 1);  // so poll() and give_back() do not allocate
  sinks_.emplace(next_sink_, &sink);
  found->taken += entries;
  return {static_cast<std::size_t>(found - queues_.begin()), entries, next_sink_++};
}

void CompletionQueues::give_back(const Entries& entries) {
  sinks_.erase(entries.sink);
  Queue& queue = queues_[entries.queue];
  poll(queue);  // else its completions would fill entries that other queue pairs get
  queue.taken -= entries.count;
}

bool CompletionQueues::poll() {
  bool any = false;
  for (Queue& queue : queues_) any |= queue.taken != 0 && poll(queue);
  while (!touched_.empty()) {
    const std::uint32_t sink = touched_.back();
    touched_.pop_back();
    if (const auto found = sinks_.find(sink); found != sinks_.end()) found->second->on_completions_taken();
  }
  return any;
}

bool CompletionQueues::poll(Queue& queue) {
  std::array<ibv_wc, 32> completions;
  bool any = false;
  for (;;) {
    const int count = ibv_poll_cq(queue.queue, static_cast<int>(completions.size()), completions.data());
    for (int i = 0; i < count; ++i) {
      const auto sink = static_cast<std::uint32_t>(completions[i].wr_id >> 32);
      const auto found = sinks_.find(sink);
      if (found == sinks_.end()) continue;  // its queue pair is destroyed
      found->second->on_completion(static_cast<std::uint32_t>(completions[i].wr_id), completions[i].status);
      if (std::find(touched_.begin(), touched_.end(), sink) == touched_.end()) touched_.push_back(sink);
    }
    any |= count > 0;
    if (count < static_cast<int>(completions.size())) return any;
  }
}

}  // namespace gpusock::rdma
