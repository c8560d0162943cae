#pragma once
/// @file A context with the calls that Python's threads are in, and how they wait.
///
/// Waits are cut into slices. In a slice the thread is without the GIL, and between two slices it lets Python's signal
/// handlers run. What is not said to be shared is used with the GIL alone.

#include "without_gil.hpp"

#include <gpusock/gpusock.hpp>

#include <pybind11/pybind11.h>

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

namespace gpusock_python {

namespace py = pybind11;

inline constexpr std::uint64_t kSliceNs = 100'000'000;   // the longest that a signal handler waits for a call
inline constexpr std::uint64_t kEndNs = 10'000'000'000;  // how long the program's end waits for calls of other threads
inline constexpr double kLongestS = 1e9;                 // longer times are "for ever"

/// Throws what a call has returned, if it is an error.
inline std::int64_t checked(std::int64_t result, const std::string& what) {
  if (result < 0) throw gpusock::Error(static_cast<int>(-result), what);
  return result;
}

/// A time in seconds, or None: how long a call waits.
class Timeout {
 public:
  explicit Timeout(py::handle seconds) {
    if (seconds.is_none()) return;
    const double value = PyFloat_AsDouble(seconds.ptr());
    if (PyErr_Occurred() != nullptr) throw py::error_already_set();
    if (!(value >= 0)) throw py::value_error("gpusock: a timeout is a number of seconds from 0 on, or None");
    if (value < kLongestS) ns_ = static_cast<std::uint64_t>(std::ceil(value * 1e9));
  }
  static Timeout none() { return Timeout(py::int_(0)); }

  bool waits() const { return ns_ != 0; }
  std::uint64_t ns() const { return ns_; }
  py::object seconds() const {
    return ns_ == gpusock::kForever ? py::object(py::none()) : py::float_(static_cast<double>(ns_) / 1e9);
  }

 private:
  std::uint64_t ns_ = gpusock::kForever;
};

/// gpusock::Context, with the calls that are in it. Sockets own it together with the program.
class Context {
 public:
  Context(const gpusock::Options& options, const Timeout& timeout) : timeout(timeout) {
    const WithoutGil away;
    context_ = std::make_unique<gpusock::Context>(options);
    net_ = context_->net();
  }
  ~Context() { close(); }

  const gpusock::Net& net() const { return net_; }

  /// Counts a call in; leave() counts it out. Throws Error if the context is closed, or is another process's.
  void enter() {
    if (closed_) throw gpusock::Error(EBADF, "the context is closed");
    if (!is_here()) throw gpusock::Error(ECANCELED, "a context of the process that forked this one: make another one");
    const std::lock_guard lock(mutex_);
    ++calls_;
  }
  /// The thread may be without the GIL.
  void leave() {
    const std::lock_guard lock(mutex_);
    if (--calls_ == 0) left_.notify_all();
  }

  bool usable() const { return !closed_ && is_here(); }

  /// Ends all calls with ECANCELED, and waits until the context has ended.
  void close() {
    if (closed_) return;
    closed_ = true;
    if (is_here()) {
      context_->cancel();
      const py::gil_scoped_release release;
      std::unique_lock lock(mutex_);
      left_.wait(lock, [this] { return calls_ == 0; });
      context_.reset();
    } else {
      context_.reset();  // does nothing there, and other threads of the parent may have held the mutex
    }
    living().erase(this);
  }

  /// Closes all contexts. From then on none can be made. Otherwise a thread could return from a call while the
  /// interpreter ends: Python would end the thread in the middle of C++ code, and that ends the process.
  static void end_all() {
    WithoutGil::end();
    const std::uint64_t until = gpusock::clock_ns() + kEndNs;
    while ((!living().empty() || WithoutGil::any()) && gpusock::clock_ns() < until) {
      if (const auto context = living().empty() ? nullptr : living().begin()->second.lock()) context->close();
      const py::gil_scoped_release release;  // another thread may be closing it
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  static std::shared_ptr<Context> make(const gpusock::Options& options, const Timeout& timeout) {
    auto context = std::make_shared<Context>(options, timeout);
    living()[context.get()] = context;
    return context;
  }

  const Timeout timeout;  ///< of new sockets

 private:
  static std::map<Context*, std::weak_ptr<Context>>& living() {
    static auto* const all = new std::map<Context*, std::weak_ptr<Context>>;
    return *all;
  }
  bool is_here() const { return getpid() == process_; }

  const pid_t process_ = getpid();
  std::unique_ptr<gpusock::Context> context_;
  gpusock::Net net_;
  bool closed_ = false;
  std::mutex mutex_;
  std::condition_variable left_;
  int calls_ = 0;  ///< shared, by mutex_
};

/// Counts a call of a thread into a context. Make and destroy it with the GIL.
class Call {
 public:
  explicit Call(Context& context) : context_(context) { context.enter(); }
  ~Call() { context_.leave(); }  // the thread has the GIL again: the interpreter's end waits for that
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

 private:
  Context& context_;
};

/// The point in time until which a call waits.
class Patience {
 public:
  explicit Patience(const Timeout& timeout)
      : waits_(timeout.waits()), until_ns_(gpusock::detail::later_ns(gpusock::clock_ns(), timeout.ns())) {}

  /// Calls step(ns) until it returns anything but -ETIMEDOUT, which a step returns after so many nanoseconds. A step
  /// that gets 0 must not wait.
  template <class Step>
  std::int64_t wait(Context& context, Step&& step) const {
    for (;;) {
      const std::uint64_t begin_ns = gpusock::clock_ns();
      const std::uint64_t left_ns = until_ns_ > begin_ns ? until_ns_ - begin_ns : 1;
      const std::uint64_t slice_ns = waits_ ? std::min(left_ns, kSliceNs) : 0;
      std::int64_t result = 0;
      {
        const Call call(context);
        const py::gil_scoped_release release;
        result = step(slice_ns);
      }
      if (result != -ETIMEDOUT || gpusock::clock_ns() - begin_ns < slice_ns) return result;  // the latter: TCP's own
      if (PyErr_CheckSignals() != 0) throw py::error_already_set();
      if (gpusock::clock_ns() >= until_ns_) return result;
    }
  }

 private:
  bool waits_;
  std::uint64_t until_ns_;
};

/// The deadline of a call that waits so long. 0: it does not wait; kForever is too large for the clock, and means
/// never.
inline gpusock::Deadline within(std::uint64_t ns) {
  return ns == 0 ? gpusock::Deadline::now() : gpusock::Deadline::after_ns(ns);
}

}  // namespace gpusock_python
