#pragma once
/// @file Brings a ring's bytes from device memory to host memory or the other way, to where they have the same index,
/// and moves a position behind them once they are there.

#include "host_proxy/memory/staging_pool.hpp"
#include "ringbuf/byte_ring.hpp"

#include <array>
#include <cstdint>
#include <memory>

namespace gpusock::proxy {

/// One direction of one connection. Both rings have the same capacity and the same positions, so that there is room for
/// a byte in one as soon as there is in the other. Two copies are under way at most: one while the other's end is
/// waited for.
class RingFerry {
 public:
  enum class To { host, device };

  struct Rings {
    ringbuf::RingMemory device;  ///< as the proxy knows it
    ringbuf::RingMemory host;
  };

  /// `filled`: the position behind the bytes to bring, moved by who puts them there. `brought`: this one moves it. Both
  /// stand at `start`. `keeper` keeps both memories; `pool` outlives this.
  RingFerry(StagingPool& pool, std::shared_ptr<void> keeper, To to, const Rings& rings, std::uint64_t* filled,
            std::uint64_t* brought, std::uint64_t start);
  /// Copies under way go on; the pool keeps their memory.
  ~RingFerry();
  RingFerry(const RingFerry&) = delete;
  RingFerry& operator=(const RingFerry&) = delete;

  /// Does what can be done now; true if anything was. Does not wait.
  bool step();

  /// Are copies under way, of whose end nobody will tell.
  bool busy() const { return count_ != 0; }
  /// Has all been brought that was there at the last step.
  bool idle() const { return count_ == 0 && error_ == 0; }
  /// The position behind what has been brought.
  std::uint64_t position() const { return brought_at_; }
  /// Why it goes on no more: EPROTO where `filled` is no position of this ring, EIO where a copy failed.
  int error() const { return error_; }

 private:
  struct Flight {
    std::uint64_t bytes;
    Copier::Copy copy;
    bool copying;
  };

  bool land();
  bool take_off();
  Copier::Copy start(std::uint64_t bytes);

  StagingPool& pool_;
  std::shared_ptr<void> keeper_;
  To to_;
  Rings rings_;
  std::uint64_t* filled_;
  std::uint64_t* brought_;
  std::uint64_t brought_at_;  // == *brought_
  std::uint64_t started_at_;
  std::array<Flight, 2> flights_{};  // the older one first
  unsigned count_ = 0;
  int error_ = 0;
};

}  // namespace gpusock::proxy
