#pragma once
/// @file The sending end, on the host.

#include "examples/coded_transfer/ends.hpp"
#include "examples/coded_transfer/reed_solomon.hpp"
#include "examples/coded_transfer/sending.cuh"
#include "examples/device_memory.hpp"

#include "program/socket_failure.hpp"

#include <gpusock/gpusock.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

namespace coded {

/// The sending end: a buffer of random bytes.
class SendingEnd {
 public:
  SendingEnd(const Options& options, gpusock::Endpoint to) : options_(options), to_(to), plan_(plan_of(options)) {
    const std::size_t words = plan_.chunk_bytes / sizeof(std::uint64_t);
    Words buffer(plan_.sources() * words);
    std::mt19937_64 random(options.seed);
    for (std::uint64_t& word : buffer) word = random();
    plan_.checksum = checksum_of(buffer.data(), buffer.size());
    if (plan_.is_lt == 0) {
      Words slots(plan_.slots() * words);
      for (std::uint32_t i = 0; i < plan_.sources(); ++i) {
        std::copy_n(&buffer[i * words], words, &slots[plan_.slot_of(i) * words]);
      }
      if (plan_.spare != 0) {
        const ReedSolomon code(plan_.data_paths(), plan_.spare);
        for (std::uint32_t group = 0; group < plan_.groups(); ++group) {
          code.encode(plan_.chunk_bytes, chunks_of(plan_, slots, group));
        }
      }
      buffer.swap(slots);
    }
    chunks_.emplace(examples::in_device(context_, buffer));
    table_.emplace(examples::in_device(context_, robust_soliton(plan_.sources())));
    symbols_.emplace(context_, std::size_t{plan_.paths} * words);
  }

  ~SendingEnd() { context_.cancel(); }  // the members' destructors wait for kernels

  /// Begins to open all paths.
  void begin_to_meet() {
    gpusock::launch(context_, {.stream = &stream_}, open_paths, context_.net(), to_, plan_, sockets_.data(),
                    error_.data(), options_.patience_ms());
  }
  /// Waits until all are open. Throws if one cannot be opened.
  void meet() {
    stream_.synchronize();
    if (error_[0] == 0) return;
    throw gpusock::program::SocketFailure("connecting to " + to_.host_port(), gpusock::program::Attempt::connecting,
                                          -error_[0], to_);
  }
  /// Begins to send.
  void begin() {
    const Pair killed = pair_of(options_.kill, '@').value_or(Pair{kPathsMax, 0});
    gpusock::launch(context_, {.grid = plan_.paths, .block = kThreads, .stream = &stream_}, send_paths,
                    Sender{context_.net(), plan_, sockets_.data(), reinterpret_cast<std::byte*>(chunks_->data()),
                           reinterpret_cast<std::byte*>(symbols_->data()), table_->data(), options_.patience_ms(),
                           killed.first, killed.second, reports_.data()});
  }
  /// Throws if the receiver does not have the buffer. Returns the bytes that were sent.
  std::uint64_t end() {
    stream_.synchronize();
    const std::vector<PathReport> all(reports_.begin(), reports_.begin() + plan_.paths);
    bool is_there = false;
    std::uint64_t bytes = 0;
    for (const PathReport& path : all) is_there |= path.end == End::enough, bytes += path.bytes;
    if (!is_there) {
      const std::string lost = lost_paths(all);
      throw std::runtime_error("the receiver has not got the buffer" + (lost.empty() ? ": it says why" : "; " + lost));
    }
    return bytes;
  }

 private:
  const Options& options_;
  gpusock::Endpoint to_;
  Plan plan_;
  gpusock::Context context_{gpusock::Options::from_env()};
  gpusock::Mapped<gpusock::Socket> sockets_{context_, kPathsMax};
  gpusock::Mapped<PathReport> reports_{context_, kPathsMax};
  gpusock::Mapped<int> error_{context_, 1};
  std::optional<gpusock::DeviceBuffer<std::uint64_t>> chunks_, symbols_;
  std::optional<gpusock::DeviceBuffer<std::uint32_t>> table_;
  gpusock::Stream stream_{context_};
};

}  // namespace coded
