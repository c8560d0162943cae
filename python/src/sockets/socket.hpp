#pragma once
/// @file Connected sockets and listeners.

#include "addresses.hpp"
#include "buffer.hpp"
#include "context.hpp"

#include <sys/socket.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

namespace gpusock_python {

/// What listeners and connected sockets have in common.
class Opened {
 public:
  Opened(std::shared_ptr<Context> context, gpusock::Socket handle, gpusock::SocketType type)
      : context_(std::move(context)), timeout_(context_->timeout), handle_(handle), type_(type) {}
  ~Opened() { close(); }
  Opened(const Opened&) = delete;
  Opened& operator=(const Opened&) = delete;

  void close() {
    if (std::exchange(closed_, true) || !context_->usable()) return;
    context_->net().close(gpusock::this_thread(), handle_);
  }
  bool closed() const { return closed_ || !context_->usable(); }
  py::object timeout() const { return timeout_.seconds(); }
  void set_timeout(py::handle seconds) { timeout_ = Timeout(seconds); }
  bool blocking() const { return timeout_.waits(); }
  void set_blocking(bool blocking) { timeout_ = blocking ? Timeout(py::none()) : Timeout::none(); }

  gpusock::Endpoint local() const {
    gpusock::Endpoint endpoint;
    const Call call(open());
    checked(context_->net().getsockname(handle_, endpoint), "getsockname");
    return endpoint;
  }
  py::tuple name() const { return pair_of(local()); }

  gpusock::Socket handle() const { return handle_; }
  bool is_of(const Context& context) const { return context_.get() == &context; }

 protected:
  /// The context. Throws Error if this socket is closed.
  Context& open() const {
    if (closed_) throw gpusock::Error(EBADF, "the socket is closed");
    return *context_;
  }

  const std::shared_ptr<Context> context_;
  Timeout timeout_;
  const gpusock::Socket handle_;
  const gpusock::SocketType type_;

 private:
  bool closed_ = false;
};

/// A connected socket.
class Socket : public Opened {
 public:
  Socket(std::shared_ptr<Context> context, gpusock::Socket handle, gpusock::SocketType type)
      : Opened(std::move(context), handle, type) {
    const Call call(*context_);  // another thread may be closing the context since the handle came
    context_->net().getpeername(handle_, peer_);
  }

  std::size_t send(py::handle data, int flags) {
    const Buffer from(data, Buffer::Use::read);
    return send_some(from.data(), from.bytes(), flags, Patience(timeout_for(flags)));
  }

  void send_all(py::handle data, int flags) {
    const Buffer from(data, Buffer::Use::read);
    const Patience patience(timeout_for(flags));
    std::size_t sent = 0;
    do {
      sent += send_some(from.data() + sent, from.bytes() - sent, flags, patience);
    } while (sent < from.bytes());
  }

  py::bytes receive(py::ssize_t bytes, int flags) {
    if (bytes < 0) throw py::value_error("gpusock: recv: a negative number of bytes");
    PyObject* memory = PyBytes_FromStringAndSize(nullptr, bytes);
    if (memory == nullptr) throw py::error_already_set();
    auto held = py::reinterpret_steal<py::object>(memory);
    const std::size_t got = receive_to(PyBytes_AS_STRING(memory), static_cast<std::size_t>(bytes), flags);
    memory = held.release().ptr();
    if (_PyBytes_Resize(&memory, static_cast<py::ssize_t>(got)) != 0) throw py::error_already_set();
    return py::reinterpret_steal<py::bytes>(memory);
  }

  std::size_t receive_into(py::handle buffer, py::ssize_t bytes, int flags) {
    const Buffer to(buffer, Buffer::Use::write);
    if (bytes < 0 || static_cast<std::size_t>(bytes) > to.bytes()) {
      throw py::value_error("gpusock: recv_into: nbytes is " + std::to_string(bytes) + ", and the buffer has " +
                            std::to_string(to.bytes()));
    }
    return receive_to(to.data(), bytes == 0 ? to.bytes() : static_cast<std::size_t>(bytes), flags);
  }

  void shutdown(int how) {
    if (how < SHUT_RD || how > SHUT_RDWR) throw py::value_error("gpusock: shutdown: SHUT_RD, SHUT_WR or SHUT_RDWR");
    const Call call(open());
    checked(context_->net().shutdown(gpusock::this_thread(), handle_, static_cast<gpusock::Shutdown>(how + 1)),
            "shutdown");
  }

  py::tuple peer_name() const { return pair_of(peer()); }
  std::string link() const { return std::string(gpusock::to_string(peer().link)); }

  std::string text() const {
    if (closed()) return "<gpusock.Socket, closed>";
    return "<gpusock.Socket " + local().host_port() + " to " + peer_.host_port() + ", " + link() + ">";
  }

 private:
  const gpusock::Endpoint& peer() const {
    open();
    return peer_;
  }
  bool has_records() const { return type_ == gpusock::SocketType::seqpacket; }
  Timeout timeout_for(int flags) const { return (flags & MSG_DONTWAIT) != 0 ? Timeout::none() : timeout_; }

  static int flags_of(int flags, int valid) {
    if ((flags & ~(valid | MSG_DONTWAIT | MSG_NOSIGNAL)) != 0) {
      throw gpusock::Error(EINVAL, "flags are MSG_DONTWAIT, of send MSG_MORE, of recv MSG_PEEK and MSG_WAITALL");
    }
    return (flags & MSG_PEEK) != 0 ? gpusock::kPeek : (flags & MSG_MORE) != 0 ? gpusock::kMore : 0;
  }

  /// Makes a call. Only one thread at a time sends, and only one receives: `direction` is the lock of one of the two.
  template <class Do>
  static std::int64_t alone(std::timed_mutex& direction, std::uint64_t ns, Do&& call) {
    const std::uint64_t begin_ns = gpusock::clock_ns();
    std::unique_lock lock(direction, std::defer_lock);
    if (ns == 0) {
      if (!lock.try_lock()) return -EAGAIN;
      return call(gpusock::Deadline::now());
    }
    if (!lock.try_lock_for(std::chrono::nanoseconds(ns))) return -ETIMEDOUT;
    const std::uint64_t spent_ns = gpusock::clock_ns() - begin_ns;
    return call(gpusock::Deadline::after_ns(ns - std::min(ns, spent_ns)));
  }

  std::size_t send_some(const char* data, std::size_t bytes, int flags, const Patience& patience) {
    const int more = flags_of(flags, MSG_MORE);
    const auto result = patience.wait(open(), [&](std::uint64_t ns) {
      return alone(sending_, ns, [&](gpusock::Deadline deadline) {
        return context_->net().send(gpusock::this_thread(), handle_, data, bytes, more, deadline);
      });
    });
    if (result < 0) checked(result, "sending to " + peer_.host_port());
    return static_cast<std::size_t>(result);
  }

  std::size_t receive_to(char* data, std::size_t bytes, int flags) {
    const int peek = flags_of(flags, MSG_PEEK | MSG_WAITALL);
    const bool all = (flags & MSG_WAITALL) != 0 && !has_records();
    const int how = peek | (all && peek != 0 ? gpusock::kWaitAll : 0);
    const Patience patience(timeout_for(flags));
    std::size_t got = 0;
    do {
      const auto result = patience.wait(open(), [&](std::uint64_t ns) {
        return alone(receiving_, ns,
                     [&](gpusock::Deadline deadline) { return receive_once(data + got, bytes - got, how, deadline); });
      });
      if (got == 0 && result < 0) checked(result, "receiving from " + peer_.host_port());
      if (result <= 0) break;
      got += static_cast<std::size_t>(result);
    } while (all && peek == 0 && got < bytes);
    return got;
  }

  /// Of a record that does not fit nothing is received: the rest would be lost.
  std::int64_t receive_once(char* data, std::size_t bytes, int flags, gpusock::Deadline deadline) const {
    const gpusock::Net& net = context_->net();
    if (has_records()) {
      const auto length = net.recv(gpusock::this_thread(), handle_, data, 0, gpusock::kPeek, deadline);
      if (length <= 0) return length;
      if (static_cast<std::size_t>(length) > bytes) return -EMSGSIZE;
    }
    return net.recv(gpusock::this_thread(), handle_, data, bytes, flags, deadline);
  }

  gpusock::Endpoint peer_;
  std::timed_mutex sending_, receiving_;  // shared: gpusock lets one thread send and one receive
};

/// A socket that listens.
class Listener : public Opened {
 public:
  using Opened::Opened;

  std::pair<std::shared_ptr<Socket>, py::tuple> accept() {
    const auto handle = Patience(timeout_).wait(open(), [&](std::uint64_t ns) -> std::int64_t {
      return context_->net().accept(gpusock::this_thread(), handle_, within(ns));
    });
    checked(handle, "accepting");
    auto socket = std::make_shared<Socket>(context_, static_cast<gpusock::Socket>(handle), type_);
    return {socket, socket->peer_name()};
  }

  std::string address() const { return local().to_string(); }
  std::string text() const { return closed() ? "<gpusock.Listener, closed>" : "<gpusock.Listener " + address() + ">"; }
};

}  // namespace gpusock_python
