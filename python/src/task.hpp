#pragma once
/// @file What an operation of a process group returns: PyTorch's Work.

#include <ATen/core/ivalue.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace gpusock_torch {

/// What is known of an operation when it is started.
struct TaskInfo {
  c10d::OpType op = c10d::OpType::UNKNOWN;
  const char* title = nullptr;                     ///< for the profiler
  std::vector<at::Tensor> inputs{};                ///< for the profiler
  std::vector<std::vector<at::Tensor>> outputs{};  ///< what its future holds
  std::uint64_t sequence = 0;
  std::chrono::milliseconds timeout{};
};

/// One operation. The thread that has done it ends it.
class Task : public c10d::Work {
 public:
  Task(int rank, TaskInfo info);

  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return future_; }
  std::vector<at::Tensor> result() override;
  void synchronize() override {}
  int sourceRank() const override;
  std::uint64_t getSequencenumber() const override { return info_.sequence; }
  std::chrono::milliseconds getTimeout() const override { return info_.timeout; }
  /// Ends a send or a receive; of other operations the whole group is aborted. Waits then throw.
  void abort() override;

  /// Ends the operation: well, or with an error (a DistBackendError).
  void succeed();
  void fail(const std::string& why);

  void set_source(int rank) { source_ = rank; }
  void set_abort(std::function<void()> abort) { abort_ = std::move(abort); }
  const TaskInfo& info() const { return info_; }

 private:
  const TaskInfo info_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
  int source_ = -1;
  std::function<void()> abort_;
};

}  // namespace gpusock_torch
