#pragma once
/// @file Connecting, which cannot be cut into slices.

#include "socket.hpp"

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

namespace gpusock_python {

/// One attempt to connect. It is made by a thread of its own, which alone waits for it: the call cannot be cut into
/// slices.
class Attempt {
 public:
  static std::shared_ptr<Attempt> begin(Context& context, const gpusock::Endpoint& to, const Timeout& timeout) {
    auto attempt = std::make_shared<Attempt>();
    context.enter();
    try {
      std::thread([attempt, &context, to, ns = timeout.ns()] {
        const gpusock::Socket got = context.net().connect(gpusock::this_thread(), to, within(ns));
        if (!attempt->end(got) && got >= 0) context.net().close(gpusock::this_thread(), got);
        context.leave();
      }).detach();
    } catch (...) {
      context.leave();
      throw;
    }
    return attempt;
  }

  /// Waits for the handle or the error; -ETIMEDOUT after this time.
  std::int64_t await(std::uint64_t ns) {
    std::unique_lock lock(mutex_);
    ended_.wait_for(lock, std::chrono::nanoseconds(ns), [this] { return result_.has_value(); });
    return result_ ? std::int64_t{*result_} : -ETIMEDOUT;
  }

  /// The result, if there is one already. If not, the attempt's thread closes the socket that it may still get.
  std::optional<gpusock::Socket> give_up() {
    const std::lock_guard lock(mutex_);
    given_up_ = true;
    return result_;
  }

 private:
  bool end(gpusock::Socket result) {
    const std::lock_guard lock(mutex_);
    if (given_up_) return false;
    result_ = result;
    ended_.notify_all();
    return true;
  }

  std::mutex mutex_;
  std::condition_variable ended_;
  std::optional<gpusock::Socket> result_;
  bool given_up_ = false;
};

/// Context.connect().
inline std::shared_ptr<Socket> connect(const std::shared_ptr<Context>& context, py::handle address,
                                       py::handle seconds) {
  const gpusock::Endpoint to = endpoint_of(address);
  const Timeout timeout = seconds.is(py::ellipsis()) ? context->timeout : Timeout(seconds);
  if (!timeout.waits()) throw py::value_error("gpusock: connect: a timeout of 0: each connect waits");
  const Patience patience(timeout);
  const auto attempt = Attempt::begin(*context, to, timeout);
  std::int64_t result = 0;
  try {
    result = patience.wait(*context, [&](std::uint64_t ns) { return attempt->await(ns); });
  } catch (...) {  // a signal handler's exception
    const auto got = attempt->give_up();
    if (got && *got >= 0 && context->usable()) context->net().close(gpusock::this_thread(), *got);
    throw;
  }
  if (result < 0) {
    if (const auto got = attempt->give_up()) result = *got;
  }
  checked(result, "connecting to " + to.to_string());
  return std::make_shared<Socket>(context, static_cast<gpusock::Socket>(result), to.type);
}

}  // namespace gpusock_python
