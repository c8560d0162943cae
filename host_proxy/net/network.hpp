#pragma once
/// @file The network as the proxy sees it: non-blocking byte streams. Production uses the operating system's TCP; a
/// simulator uses its own network.

#include "plain_types/endpoint.hpp"
#include "host_proxy/net/tcp_info.hpp"
#include "socket_table/socket_options.hpp"

#include <sys/uio.h>

#include <cstdint>
#include <memory>
#include <span>

namespace gpusock::proxy {

/// Is notified when a stream or listener may have something to do.
class ReadySink {
 public:
  virtual void on_ready() = 0;

 protected:
  ~ReadySink() = default;
};

/// A connected or connecting byte stream. Each call returns at once: a count, or a negated errno (-EAGAIN: not now).
class ByteStream {
 public:
  virtual ~ByteStream() = default;  ///< closes; unread or unsent bytes may be lost

  virtual std::int64_t read(std::span<const iovec> into) = 0;  ///< 0: the peer ended its direction
  virtual std::int64_t write(std::span<const iovec> from) = 0;
  virtual int connected() = 0;  ///< 0, -EINPROGRESS, or the negated errno of its failure
  /// Why the connection is gone, as an errno; 0: no error. Reported only once, by this call, read() or write(). Bytes
  /// that arrived before can still be read; then the stream ends.
  virtual int take_error() = 0;
  virtual void end_writing() = 0;
  virtual void reset_on_close() = 0;  ///< closing then resets the connection
  /// Applies the options of the network, such as no_delay. A new stream has the defaults. A network that has no such
  /// options ignores them.
  virtual void set_options(const table::SocketOptions& /*options*/) {}
  virtual Endpoint local() const = 0;
  virtual Endpoint peer() const = 0;
  /// For display. Makes a system call.
  virtual TcpInfo tcp_info() const { return {}; }

  /// True if a read (write) may succeed. False after it returned -EAGAIN, until the network reports an event.
  bool readable = true;
  bool writable = true;
  /// True if the last read took all that had arrived, as far as the network can tell, and there was no event since: the
  /// next read would return -EAGAIN. False if in doubt.
  bool drained = false;
  /// True if the network has reported that the connection is gone, or that both directions have ended: take_error()
  /// says which.
  bool broken = false;
  ReadySink* sink = nullptr;
};

/// A listening port.
class Acceptor {
 public:
  virtual ~Acceptor() = default;
  virtual std::unique_ptr<ByteStream> accept() = 0;  ///< nullptr: none now
  virtual Endpoint local() const = 0;
  bool readable = true;
  ReadySink* sink = nullptr;
};

/// Makes listeners and streams, and reports their events.
class Network {
 public:
  virtual ~Network() = default;
  virtual std::unique_ptr<Acceptor> listen(const Endpoint& at, int backlog, int& error) = 0;  ///< nullptr: errno in
                                                                                              ///< `error`
  virtual std::unique_ptr<ByteStream> connect(const Endpoint& to, int& error) = 0;  ///< nullptr: errno in `error`

  /// Finds out what has become readable or writable, and notifies the sinks. Does not wait.
  virtual void poll() = 0;
};

}  // namespace gpusock::proxy
