#pragma once
/// @file StoreChoice chooses the stores with which a CPU fills a peer's ring: ordinary or streaming ones, as measured.
///
/// If sender and receiver share a cache, ordinary stores are about twice as fast. If they do not, as on two sockets or
/// two chiplets, streaming stores are up to seven times as fast (docs/decisions/007-stores-between-cores.md). A virtual
/// machine may describe its caches wrongly, and threads move. So the speed is measured, window by window.

#include "ringbuf/annotations.hpp"

#include <cstdint>

namespace gpusock::ringbuf {

/// One sender's choice. It is plain data that starts as zeros: ordinary stores. Only the leader of the sending group
/// uses it.
class StoreChoice {
 public:
  /// Bytes of a window. It is larger than the usual ring, because bytes that only fill the ring count as moved.
  static constexpr std::uint64_t kWindowBytes = 4 << 20;
  /// A window that lasted longer is not weighed: it shows the speed of the application, not of the stores.
  static constexpr std::uint64_t kWindowNs = 8'000'000;
  /// Windows between two tries of the stores that are not chosen. Each try that changes nothing doubles the number.
  static constexpr std::uint32_t kPatienceMin = 8, kPatienceMax = 256;

  GPUSOCK_FN bool streaming() const { return (chosen_ ^ trying_) != 0; }

  /// Counts `bytes` more that were stored. True if the window is full.
  GPUSOCK_FN bool window_is_full(std::uint64_t bytes) {
    window_bytes_ += bytes;
    return window_bytes_ >= kWindowBytes;
  }

  /// Ends the window at this time, weighs it, and chooses the stores of the next one.
  GPUSOCK_FN void end_window(std::uint64_t now_ns) {
    const std::uint64_t took_ns = now_ns - window_started_ns_;
    const std::uint64_t rate = took_ns == 0 ? 0 : window_bytes_ * 1000 / took_ns;  // MB/s
    window_started_ns_ = now_ns;
    window_bytes_ = 0;
    if (settling_ != 0) {  // the ring still held what the other stores had left there
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

  /// Weighs the other stores, which moved bytes at this rate.
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
  std::uint64_t rate_ = 0;  // MB/s of the chosen stores
  std::uint32_t windows_ = 0;
  std::uint32_t patience_ = 0;
  std::uint32_t chosen_ = 0;    // 1: streaming
  std::uint32_t trying_ = 0;    // 1: the others are tried
  std::uint32_t settling_ = 0;  // 1: this window is not weighed
};

}  // namespace gpusock::ringbuf
