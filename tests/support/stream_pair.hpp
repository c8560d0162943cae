#pragma once
// Two ends of a byte stream in memory: the handshake's connection.
#include "host_proxy/net/network.hpp"

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <deque>
#include <memory>
#include <utility>

namespace gpusock::fake {

class MemoryStream final : public proxy::ByteStream {
 public:
  struct Wire {
    std::deque<std::byte> bytes;
    bool closed = false;
    bool lost = false;  ///< what is written gets nowhere, and the writer's system gives up at once
  };
  MemoryStream(std::shared_ptr<Wire> in, std::shared_ptr<Wire> out) : in_(std::move(in)), out_(std::move(out)) {}
  ~MemoryStream() override { in_->closed = out_->closed = true; }

  std::int64_t read(std::span<const iovec> into) override {
    if (gave_up_) return -ECONNRESET;
    if (in_->bytes.empty()) return in_->closed ? 0 : -EAGAIN;
    const std::size_t count = std::min(into[0].iov_len, in_->bytes.size());
    std::copy_n(in_->bytes.begin(), count, static_cast<std::byte*>(into[0].iov_base));
    in_->bytes.erase(in_->bytes.begin(), in_->bytes.begin() + static_cast<std::ptrdiff_t>(count));
    return static_cast<std::int64_t>(count);
  }
  std::int64_t write(std::span<const iovec> from) override {
    if (out_->closed) return -ECONNRESET;
    gave_up_ = out_->lost;
    if (gave_up_) return static_cast<std::int64_t>(from[0].iov_len);
    const auto* data = static_cast<const std::byte*>(from[0].iov_base);
    out_->bytes.insert(out_->bytes.end(), data, data + from[0].iov_len);
    return static_cast<std::int64_t>(from[0].iov_len);
  }
  int connected() override { return 0; }
  int take_error() override { return 0; }
  void end_writing() override { out_->closed = true; }
  void reset_on_close() override {}
  Endpoint local() const override { return {}; }
  Endpoint peer() const override { return Endpoint::parse("10.77.0.1:7"); }

 private:
  std::shared_ptr<Wire> in_, out_;
  bool gave_up_ = false;
};

inline std::pair<std::unique_ptr<MemoryStream>, std::unique_ptr<MemoryStream>> make_streams(
    std::shared_ptr<MemoryStream::Wire> there = std::make_shared<MemoryStream::Wire>()) {
  auto back = std::make_shared<MemoryStream::Wire>();
  return {std::make_unique<MemoryStream>(back, there), std::make_unique<MemoryStream>(there, back)};
}

}  // namespace gpusock::fake
