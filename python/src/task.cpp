#include "task.hpp"

#include <ATen/core/jit_type.h>
#include <c10/util/Exception.h>

namespace gpusock_torch {
namespace {

c10::TypePtr type_of(const std::vector<std::vector<at::Tensor>>& outputs) {
  const c10::TypePtr list = c10::ListType::create(c10::TensorType::get());
  return outputs.size() > 1 ? c10::ListType::create(list) : list;
}

std::optional<std::vector<at::Tensor>> profiled(const std::vector<at::Tensor>& inputs) {
  return inputs.empty() ? std::nullopt : std::optional(inputs);
}

}  // namespace

Task::Task(int rank, TaskInfo info)
    : Work(rank, info.op, info.title, profiled(info.inputs)),
      info_(std::move(info)),
      future_(c10::make_intrusive<c10::ivalue::Future>(type_of(info_.outputs))) {}

std::vector<at::Tensor> Task::result() {
  TORCH_CHECK(isCompleted(), "gpusock: wait() before result()");
  TORCH_CHECK(info_.outputs.size() <= 1,
              "gpusock: result() has no room for one list of tensors for each rank: take get_future()");
  return info_.outputs.empty() ? std::vector<at::Tensor>() : info_.outputs.front();
}

int Task::sourceRank() const {
  TORCH_CHECK(source_ >= 0, "gpusock: only a receive that has ended has a source rank");
  return source_;
}

void Task::abort() {
  if (isCompleted()) return;  // the group may have ended, too
  TORCH_CHECK(static_cast<bool>(abort_),
              "gpusock: a collective operation cannot be aborted by itself: abort the process group");
  abort_();
}

void Task::succeed() {
  if (info_.outputs.size() > 1) {
    future_->markCompleted(c10::IValue(info_.outputs));
  } else {
    future_->markCompleted(c10::IValue(info_.outputs.empty() ? std::vector<at::Tensor>() : info_.outputs.front()));
  }
  finish();
}

void Task::fail(const std::string& why) {
  std::exception_ptr error;
  try {
    C10_THROW_ERROR(DistBackendError, why);
  } catch (...) {
    error = std::current_exception();
  }
  future_->setError(error);
  finish(error);
}

}  // namespace gpusock_torch
