#pragma once
/// @file Copies a ring's bytes from device memory to a ring in host memory, or the other way.

#include "host_proxy/memory/device_copies.hpp"
#include "ringbuf/byte_ring.hpp"

#include <array>
#include <cstdint>
#include <memory>

namespace gpusock::proxy {

/// One direction of one connection. Both rings have the same capacity and the same positions, so a byte that has room
/// in one ring has room in the other. At most two copies are under way: one may start while the other ends.
class RingMirror {
 public:
  enum class To { host, device };

  struct Rings {
    ringbuf::RingMemory device;  ///< as the proxy knows it
    ringbuf::RingMemory host;
  };

  /// The producer of the bytes writes `source_committed`, the position after the bytes to copy. After each copy this
  /// class writes `target_committed`, and then the same position to `target_bar_word`, unless that is nullptr. At first
  /// both words are at `start`. `memory` owns both memories; `copies` outlives this object.
  RingMirror(DeviceCopies& copies, std::shared_ptr<void> memory, To to, const Rings& rings,
             std::uint64_t* source_committed, std::uint64_t* target_committed, std::uint64_t* target_bar_word,
             std::uint64_t start);
  /// Copies under way go on; `copies` keeps their memory.
  ~RingMirror();
  RingMirror(const RingMirror&) = delete;
  RingMirror& operator=(const RingMirror&) = delete;

  /// Does what can be done now; true if anything was. Does not wait.
  bool step();

  /// True while copies are under way. There is no event for their end.
  bool busy() const { return count_ != 0; }
  /// True if all that was committed at the last step has been copied.
  bool idle() const { return count_ == 0 && error_ == 0; }
  /// The position after what has been copied.
  std::uint64_t position() const { return copied_to_; }
  /// Why it has stopped: EPROTO if `source_committed` is not a position of this ring, EIO if a copy failed; else 0.
  int error() const { return error_; }

 private:
  struct Pending {
    std::uint64_t bytes;
    Copier::Copy copy;
    bool copying;
  };

  bool finish_copies();
  bool start_copies();
  Copier::Copy start(std::uint64_t bytes);

  DeviceCopies& copies_;
  std::shared_ptr<void> memory_;
  To to_;
  Rings rings_;
  std::uint64_t* source_committed_;
  std::uint64_t* target_committed_;
  std::uint64_t* target_bar_word_;
  std::uint64_t copied_to_;  // == *target_committed_
  std::uint64_t started_to_;
  std::array<Pending, DeviceCopies::kCopiesPerRing> pending_{};  // the oldest first
  unsigned count_ = 0;
  int error_ = 0;
};

}  // namespace gpusock::proxy
