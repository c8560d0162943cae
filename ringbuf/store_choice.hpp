#pragma once
/// @file Which stores a CPU fills a peer's ring with: ordinary ones or streaming ones, whichever has moved more.
///
/// Where sender and receiver share a cache, ordinary stores are about twice as fast; where they do not, as on two
/// sockets or two chiplets, streaming stores are up to seven times as fast
/// (docs/decisions/007-stores-between-cores.md). What the machine says of its caches need not be true of a virtual one,
/// and threads move: so it is measured, window by window.

#include "ringbuf/annotations.hpp"

#include <cstdint>

namespace gpusock::ringbuf {

/// One sender's choice. Plain data; zero is its start: ordinary stores. Not thread-safe: the sending group's leader's.
class StoreChoice {
 public:
  /// Bytes after which the two are weighed: more than the ring, whose fill counts as moved.
  static constexpr std::uint64_t kWindowBytes = 4 << 20;
  /// A window that lasted longer says how fast the application is, and nothing about stores.
  static constexpr std::uint64_t kWindowNs = 8'000'000;
  /// Windows between two tries of the stores that are not chosen; doubled by each that changed nothing.
  static constexpr std::uint32_t kPatienceMin = 8, kPatienceMax = 256;

  GPUSOCK_FN bool streaming() const { return (chosen_ ^ trying_) != 0; }

  /// `bytes` more were stored.
  GPUSOCK_FN bool window_is_full(std::uint64_t bytes) {
    window_bytes_ += bytes;
    return window_bytes_ >= kWindowBytes;
  }

  /// The window ends at this time: weighs, and chooses for the next one.
  GPUSOCK_FN void end_window(std::uint64_t now_ns) {
    const std::uint64_t took_ns = now_ns - window_started_ns_;
    const std::uint64_t rate = took_ns == 0 ? 0 : window_bytes_ * 1000 / took_ns;  // MB/s
    window_started_ns_ = now_ns;
    window_bytes_ = 0;
    if (settling_ != 0) {  // the ring still held what the other stores had left, in their place
      settling_ = 0;
    } else if (took_ns > kWindowNs) {
      use(0);
    } else if (trying_ != 0) {
      judge(rate);
    } else {
      rate_ = rate;
      if (++windows_ >= patience()) use(1);
    }
  }

 private:
  GPUSOCK_FN std::uint32_t patience() const { return patience_ == 0 ? kPatienceMin : patience_; }

  /// The other stores moved bytes at this rate.
  GPUSOCK_FN void judge(std::uint64_t rate) {
    const bool better = rate > rate_ + rate_ / 4;
    if (better) {
      chosen_ ^= 1;
      trying_ = 0;
      rate_ = rate;
      patience_ = kPatienceMin;
    } else {
      patience_ = patience() < kPatienceMax ? patience() * 2 : kPatienceMax;
    }
    use(0);
  }

  /// Goes on with the chosen stores (0) or tries the others (1).
  GPUSOCK_FN void use(std::uint32_t others) {
    settling_ = trying_ != others ? 1 : 0;
    trying_ = others;
    windows_ = 0;
  }

  std::uint64_t window_bytes_ = 0;
  std::uint64_t window_started_ns_ = 0;
  std::uint64_t rate_ = 0;  // of the chosen stores
  std::uint32_t windows_ = 0;
  std::uint32_t patience_ = 0;
  std::uint32_t chosen_ = 0;    // 1: streaming
  std::uint32_t trying_ = 0;    // 1: the others are tried
  std::uint32_t settling_ = 0;  // 1: this window is not weighed
};

}  // namespace gpusock::ringbuf
