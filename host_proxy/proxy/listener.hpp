#pragma once
/// @file One listening socket: its port, and the queue in which callers find accepted connections.

#include "host_proxy/net/network.hpp"
#include "host_proxy/table/proxy_slots.hpp"

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

namespace gpusock::proxy {

class Listener final : public ReadySink {
 public:
  Listener(std::uint32_t slot, std::unique_ptr<Acceptor> acceptor, const table::OpenRequest& request,
           std::uint32_t queue)
      : slot_(slot),
        acceptor_(std::move(acceptor)),
        asked_(request.endpoint),
        backlog_(request.backlog),
        queue_(queue) {
    acceptor_->sink = this;
  }

  /// The next incoming connection, as long as there is room in the backlog; nullptr otherwise.
  std::unique_ptr<ByteStream> try_accept() {
    if (!acceptor_->readable || pending_ >= backlog_) return nullptr;
    return acceptor_->accept();
  }

  /// True if clients may be waiting because the backlog is full.
  bool keeps_waiting() const { return acceptor_->readable && pending_ >= backlog_; }

  std::uint32_t slot() const { return slot_; }
  std::uint32_t queue() const { return queue_; }
  const Endpoint& asked() const { return asked_; }  ///< the endpoint that its caller opened
  /// The options that its connections inherit.
  const table::SocketOptions& options() const { return options_; }
  void set_options(const table::SocketOptions& options) { options_ = options; }
  Endpoint local() const { return acceptor_->local(); }
  /// The endpoint where it listens, as text for clients.
  std::string local_text() const { return local().with_link(asked_.link).with_type(asked_.type).to_string(); }
  /// True only at the first call: the first client that speaks another protocol is worth a warning.
  bool warns_of_mismatch() { return !std::exchange(warned_, true); }

  /// Connections that came in and were neither accepted nor given up yet.
  void add_pending() { ++pending_; }
  void remove_pending() { --pending_; }
  std::uint32_t pending() const { return static_cast<std::uint32_t>(pending_); }
  std::uint32_t backlog() const { return static_cast<std::uint32_t>(backlog_); }

  /// The proxy's own: it evicts no unauthenticated client before it has watched the network for this long.
  std::uint64_t look_again_ns = 0;

  void on_ready() override {}  // every poll is followed by a look at all listeners

 private:
  std::uint32_t slot_;
  std::unique_ptr<Acceptor> acceptor_;
  Endpoint asked_;
  table::SocketOptions options_;
  std::int32_t backlog_;
  std::uint32_t queue_;
  std::int32_t pending_ = 0;
  bool warned_ = false;
};

}  // namespace gpusock::proxy
