#pragma once
// The network's end of a connection is a string that arrives and one that was sent.
#include "host_proxy/net/network.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>

namespace gpusock::fake {

/// A connection that takes and gives what the test says.
class FakeStream final : public proxy::ByteStream {
 public:
  struct Network {
    std::string sent, arriving;
    std::size_t takes = ~std::size_t{0};
    int write_error = 0;
    bool ended_writing = false, reset = false, peer_ended = false, read_shut_down = false;
  };
  explicit FakeStream(Network& network) : network_(network) {}

  std::int64_t read(std::span<const iovec> into) override {
    drained = false;
    if (network_.arriving.empty()) {
      readable = network_.peer_ended;
      return network_.peer_ended ? 0 : -EAGAIN;
    }
    const std::size_t bytes = std::min(into[0].iov_len, network_.arriving.size());
    std::memcpy(into[0].iov_base, network_.arriving.data(), bytes);
    network_.arriving.erase(0, bytes);
    drained = bytes < into[0].iov_len;
    return static_cast<std::int64_t>(bytes);
  }
  std::int64_t write(std::span<const iovec> from) override {
    if (network_.read_shut_down) return -EPIPE;
    if (network_.write_error != 0) return -network_.write_error;
    const std::size_t bytes = std::min(from[0].iov_len, network_.takes);
    if (bytes == 0) return -EAGAIN;
    network_.takes -= bytes;
    network_.sent.append(static_cast<const char*>(from[0].iov_base), bytes);
    return static_cast<std::int64_t>(bytes);
  }
  int connected() override { return 0; }
  int take_error() override { return 0; }
  void end_writing() override { network_.ended_writing = true; }
  void reset_on_close() override { network_.reset = true; }
  Endpoint local() const override { return {}; }
  Endpoint peer() const override { return {}; }

 private:
  Network& network_;
};

}  // namespace gpusock::fake
