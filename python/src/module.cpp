#include "process_group.hpp"

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/utils/pybind.h>

#include <pybind11/chrono.h>
#include <pybind11/stl.h>

#include <chrono>
#include <mutex>
#include <set>
#include <utility>

namespace py = pybind11;

namespace gpusock_torch {
namespace {

/// The groups that live, for the end of the program. Their threads must not outlive the interpreter.
std::mutex living_mutex;
std::set<ProcessGroup*> living;

class LivingProcessGroup : public ProcessGroup {
 public:
  LivingProcessGroup(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                     const c10::intrusive_ptr<Options>& options, const Place& place)
      : ProcessGroup(store, rank, size, options, place) {
    const std::lock_guard lock(living_mutex);
    living.insert(this);
  }
  ~LivingProcessGroup() override {
    {
      const std::lock_guard lock(living_mutex);
      living.erase(this);
    }
    // Callbacks of futures run Python on the group's threads, which end here.
    if (Py_IsInitialized() && PyGILState_Check()) {
      const py::gil_scoped_release release;
      shutdown();
    } else {
      shutdown();
    }
  }
};

c10::intrusive_ptr<c10d::Backend> make(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                                       const c10::intrusive_ptr<ProcessGroup::Options>& options,
                                       const std::string& address, const std::string& secret,
                                       const std::vector<std::int64_t>& ranks) {
  return c10::make_intrusive<LivingProcessGroup>(store, rank, size, options,
                                                 ProcessGroup::Place{address, secret, ranks});
}

std::pair<std::uint64_t, std::uint64_t> traffic(const c10::intrusive_ptr<c10d::Backend>& group) {
  const auto* const ours = dynamic_cast<ProcessGroup*>(group.get());
  if (ours == nullptr) throw py::value_error("gpusock: traffic: the back end is " + group->getBackendName());
  return ours->traffic();
}

void end_all(std::chrono::milliseconds patience) {
  std::vector<ProcessGroup*> groups;
  {
    const std::lock_guard lock(living_mutex);
    groups.assign(living.begin(), living.end());
  }
  for (ProcessGroup* const group : groups) group->shutdown_within(patience);
}

}  // namespace
}  // namespace gpusock_torch

PYBIND11_MODULE(_gpusock, module) {
  using gpusock_torch::ProcessGroup;
  py::module_::import("torch.distributed");
  module.doc() = "The back end gpusock of torch.distributed, in C++.";
  py::class_<ProcessGroup::Options, c10::intrusive_ptr<ProcessGroup::Options>, c10d::Backend::Options>(module,
                                                                                                       "Options")
      .def(py::init<std::chrono::milliseconds>(), py::arg("timeout") = kBackendDefaultTimeout)
      .def_readwrite("all_reduce", &ProcessGroup::Options::all_reduce)
      .def_readwrite("deterministic", &ProcessGroup::Options::deterministic);
  module.def("make", &gpusock_torch::make, py::arg("store"), py::arg("rank"), py::arg("size"), py::arg("options"),
             py::arg("address"), py::arg("secret"), py::arg("ranks"), py::call_guard<py::gil_scoped_release>());
  module.def(
      "abort", [](const c10::intrusive_ptr<c10d::Work>& work) { work->abort(); }, py::arg("work"),
      py::call_guard<py::gil_scoped_release>());
  module.def("traffic", &gpusock_torch::traffic, py::arg("group"), py::call_guard<py::gil_scoped_release>());
  module.def("end_all", &gpusock_torch::end_all, py::arg("patience"), py::call_guard<py::gil_scoped_release>());
}
