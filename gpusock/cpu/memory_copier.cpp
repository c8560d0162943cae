#include "gpusock/cpu/memory_copier.hpp"

#include <algorithm>
#include <cstring>

namespace gpusock::proxy {

Copier::Copy MemoryCopier::start(const Pending& pending) {
  const auto unused = std::find_if(copies_.begin(), copies_.end(), [](const Pending& copy) { return !copy.used; });
  if (unused == copies_.end()) {
    copies_.push_back(pending);
    return copies_.size() - 1;
  }
  *unused = pending;
  return static_cast<Copy>(unused - copies_.begin());
}

Copier::State MemoryCopier::query(Copy copy) {
  Pending& pending = copies_[copy];
  if (pending.queries++ == 0) return State::busy;
  std::byte* host = pending.host;
  for (const ringbuf::RingSpan& span : {pending.ring.first, pending.ring.second}) {
    if (span.bytes == 0) continue;
    std::byte* const ring = reveal(span.data);
    std::byte* const to = pending.to_host ? host : ring;
    const std::byte* const from = pending.to_host ? ring : host;
    if (move_ != nullptr) {
      move_(to, from, span.bytes);
    } else {
      std::memcpy(to, from, span.bytes);
    }
    host += span.bytes;
  }
  pending.used = false;
  return State::done;
}

}  // namespace gpusock::proxy
