#pragma once
/// @file What has arrived in a ring in device memory, which the peer's card writes: passed on to callers by the proxy.
///
/// The card writes bytes to the device and the position behind them to host memory, and no rule orders writes to two
/// places. So callers do not poll the card's word: the proxy does, makes sure of the bytes (V3, V4 in
/// rdma/visibility.hpp) and then moves a word of its own.

#include "host_proxy/memory/segment.hpp"

#include <cstdint>
#include <memory>
#include <utility>

namespace gpusock::proxy::verbs {

class Arrivals {
 public:
  /// Of a ring in host memory: callers poll the card's word (V1).
  Arrivals() = default;
  /// `word`: what callers poll. It stands at `start`; this one moves it. `rings`: in device memory.
  Arrivals(std::shared_ptr<Segment> rings, std::uint64_t* word, std::uint64_t start)
      : rings_(std::move(rings)), word_(word), passed_on_(start) {}

  /// Is there something to do that nobody will tell of.
  bool watches() const { return word_ != nullptr; }

  /// The proxy has seen that the card wrote all bytes up to this position. 1 if callers can now have more, 0 if not, or
  /// a negated errno (-EPROTO: it went back): then callers were told nothing.
  int pass_on(std::uint64_t position);

 private:
  std::shared_ptr<Segment> rings_;
  std::uint64_t* word_ = nullptr;
  std::uint64_t passed_on_ = 0;  // == *word_
};

}  // namespace gpusock::proxy::verbs
