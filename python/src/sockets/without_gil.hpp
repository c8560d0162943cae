#pragma once
/// @file Threads that are in C++ without the GIL, and in no context yet: the program's end waits for them, too.

#include <gpusock/gpusock.hpp>

#include <pybind11/pybind11.h>

#include <unistd.h>

#include <cerrno>
#include <optional>

namespace gpusock_python {

namespace py = pybind11;

/// Lets other threads have the GIL. Make and destroy it with the GIL. The constructor throws Error once the program's
/// end has begun: a thread that came back while the interpreter ends would be ended in the middle of C++, and with it
/// the process.
class WithoutGil {
 public:
  WithoutGil() {
    if (ended_) throw gpusock::Error(ECANCELED, "the program ends");
    ++threads();
    release_.emplace();
  }
  ~WithoutGil() {
    release_.reset();
    --threads();
  }
  WithoutGil(const WithoutGil&) = delete;
  WithoutGil& operator=(const WithoutGil&) = delete;

  /// The program's end has begun: no thread gets away from now on.
  static void end() { ended_ = true; }
  static bool any() { return threads() != 0; }

 private:
  /// The number of this process's threads that are away. A fork's child has none of its parent's.
  static int& threads() {
    if (process_ != getpid()) {
      process_ = getpid();
      threads_ = 0;
    }
    return threads_;
  }

  static inline bool ended_ = false;
  static inline pid_t process_ = 0;
  static inline int threads_ = 0;

  std::optional<py::gil_scoped_release> release_;
};

}  // namespace gpusock_python
