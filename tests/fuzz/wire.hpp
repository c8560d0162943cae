#pragma once
/// @file A network in memory: byte streams whose other end the target plays, byte by byte.

#include "host_proxy/net/network.hpp"

#include <algorithm>
#include <cerrno>
#include <list>
#include <memory>
#include <string>
#include <vector>

namespace gpusock::fuzz {

/// One connection, seen from outside.
struct Wire {
  std::string to_node;    ///< what the target has sent and the node has not read
  std::string from_node;  ///< what the node has sent
  bool ended = false;     ///< the target sends no more
  bool reset = false;     ///< the target has reset it
  bool node_ended = false;
  bool node_gone = false;
  bool far_gone = false;                    ///< another node's end, where it has one
  bool silent = false;                      ///< the far end has not answered the node's attempt to connect
  std::size_t room = std::size_t{1} << 40;  ///< bytes that the node may still write
};

/// The node's end; the far one is the same with the two directions exchanged.
class WireStream : public proxy::ByteStream {
 public:
  explicit WireStream(std::shared_ptr<Wire> wire, bool far_end = false) : wire_(std::move(wire)), far_end_(far_end) {}
  ~WireStream() override {
    if (!far_end_) wire_->node_gone = true;
  }

  std::int64_t read(std::span<const iovec> into) override {
    std::string& in = far_end_ ? wire_->from_node : wire_->to_node;
    std::int64_t total = 0;
    for (const iovec& vector : into) {
      const std::size_t count = std::min(vector.iov_len, in.size());
      std::copy_n(in.begin(), count, static_cast<char*>(vector.iov_base));
      in.erase(0, count);
      total += static_cast<std::int64_t>(count);
    }
    if (total != 0) return total;
    if (wire_->reset) return -ECONNRESET;
    if (far_end_ ? wire_->node_gone || wire_->node_ended : wire_->ended) return 0;
    readable = false;
    return -EAGAIN;
  }

  std::int64_t write(std::span<const iovec> from) override {
    if (wire_->reset) return -EPIPE;
    std::string& out = far_end_ ? wire_->to_node : wire_->from_node;
    std::int64_t total = 0;
    for (const iovec& vector : from) {
      const std::size_t count = std::min(vector.iov_len, far_end_ ? vector.iov_len : wire_->room);
      out.append(static_cast<const char*>(vector.iov_base), count);
      if (!far_end_) wire_->room -= count;
      total += static_cast<std::int64_t>(count);
    }
    if (total != 0) return total;
    writable = false;
    return -EAGAIN;
  }

  int connected() override { return wire_->reset ? -ECONNREFUSED : wire_->silent ? -EINPROGRESS : 0; }
  int take_error() override { return wire_->reset ? ECONNRESET : 0; }
  void end_writing() override { (far_end_ ? wire_->ended : wire_->node_ended) = true; }
  void reset_on_close() override {}
  Endpoint local() const override {  // of another port than the peer's: a socket is not connected to itself
    Endpoint endpoint = here();
    ++endpoint.port;
    return endpoint;
  }
  Endpoint peer() const override { return here(); }

  bool has_news() const { return !wire_->to_node.empty() || wire_->ended || wire_->reset; }

  static Endpoint here() {
    Endpoint endpoint;
    endpoint.family = 4;
    endpoint.port = 7;
    const std::uint8_t address[] = {10, 77, 0, 1};  // the device of tests/unit/rdma/fake_verbs.cpp
    std::copy_n(address, 4, endpoint.address);
    return endpoint;
  }

 protected:
  std::shared_ptr<Wire> wire_;

 private:
  bool far_end_;
};

/// The far end in the hands of another node: what it closes has ended.
class FarEnd final : public WireStream {
 public:
  explicit FarEnd(std::shared_ptr<Wire> wire) : WireStream(std::move(wire), true) {}
  ~FarEnd() override { wire_->far_gone = wire_->ended = true; }
};

/// The node's network: who connects and who comes is the target's to say.
class WireNetwork final : public proxy::Network {
 public:
  std::unique_ptr<proxy::Acceptor> listen(const Endpoint&, int, int&) override { return std::make_unique<Door>(*this); }
  std::unique_ptr<proxy::ByteStream> connect(const Endpoint&, int&) override {
    if (other_ == nullptr) {
      auto stream = open();
      tried_.push_back(last_);
      last_->silent = silent_;
      return stream;
    }
    const auto wire = other_->arrive();
    auto stream = std::make_unique<FarEnd>(wire);
    streams_.push_back({wire, stream.get(), &wire->far_gone});
    return stream;
  }

  /// Tells all streams, so that nothing has to be exact about when.
  void poll() override {
    std::erase_if(streams_, [](const Entry& entry) { return *entry.gone; });
    for (const Entry& entry : streams_) {
      entry.stream->readable = entry.stream->writable = true;
      if (entry.stream->sink != nullptr) entry.stream->sink->on_ready();
    }
  }

  /// Whether far ends are silent when the node connects, from now on.
  void be_silent(bool silent) { silent_ = silent; }
  /// The connections that the node has tried to make.
  const std::vector<std::shared_ptr<Wire>>& tried() const { return tried_; }

  /// From now on, who connects from here comes to that network's listener.
  void reach(WireNetwork& other) { other_ = &other; }

  /// Somebody connects to the node's listener.
  std::shared_ptr<Wire> arrive() {
    waiting_.push_back(open());
    return last_;
  }
  /// The connection that was made last.
  const std::shared_ptr<Wire>& last() const { return last_; }

 private:
  struct Entry {
    std::shared_ptr<Wire> wire;
    WireStream* stream;
    const bool* gone;  // of the wire: then there is no stream
  };

  class Door final : public proxy::Acceptor {
   public:
    explicit Door(WireNetwork& network) : network_(network) {}
    std::unique_ptr<proxy::ByteStream> accept() override {
      if (network_.waiting_.empty()) return nullptr;
      auto stream = std::move(network_.waiting_.front());
      network_.waiting_.pop_front();
      return stream;
    }
    Endpoint local() const override { return WireStream::here(); }

   private:
    WireNetwork& network_;
  };

  std::unique_ptr<proxy::ByteStream> open() {
    last_ = std::make_shared<Wire>();
    auto stream = std::make_unique<WireStream>(last_);
    streams_.push_back({last_, stream.get(), &last_->node_gone});
    return stream;
  }

  std::list<Entry> streams_;
  std::list<std::unique_ptr<proxy::ByteStream>> waiting_;
  std::shared_ptr<Wire> last_;
  std::vector<std::shared_ptr<Wire>> tried_;
  bool silent_ = false;
  WireNetwork* other_ = nullptr;
};

}  // namespace gpusock::fuzz
