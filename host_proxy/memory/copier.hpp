#pragma once
/// @file Copies between host memory and device memory. The proxy never waits for them.

#include "ringbuf/byte_ring.hpp"

#include <cstddef>
#include <cstdint>

namespace gpusock::proxy {

/// Not thread-safe: the proxy's step uses it. No call waits, except the destructor.
class Copier {
 public:
  virtual ~Copier() = default;  ///< waits for the copies that are under way

  /// Names a copy until query() has said how it ended.
  using Copy = std::uint64_t;

  /// Starts to copy ring bytes in device memory to host memory, or host memory to ring bytes. The device must reach the
  /// host memory (Platform::allocate_shared() or attach()). Nothing may touch the bytes, there or here, before the copy
  /// has ended. If the copy cannot even be started, query() says so.
  virtual Copy to_host(std::byte* to, const ringbuf::RingSpans& from) = 0;
  virtual Copy to_device(const ringbuf::RingSpans& to, const std::byte* from) = 0;

  enum class State { busy, done, failed };
  /// How a copy stands. Once it is done or failed, the copy is forgotten: do not ask again.
  virtual State query(Copy copy) = 0;
};

}  // namespace gpusock::proxy
