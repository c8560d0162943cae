#pragma once
/// @file The lock by which the groups of a server take turns at each other's seats.
///
/// It is a ticket lock: groups draw numbers, and get the lock in the order of their numbers. A group that goes from
/// one lock to the next draws its number at the next one before it gives back the first. So all groups that visit the
/// locks in the same order get each of them in the order in which they got the first one. No group waits for a lock
/// while it holds another one.
///
// clang-format off
/// Ordering table
///   label  operation           scope   order    partner  data protected
///   K1     draw: add           device  acquire  K3       what the lock guards, as the last holder left it
///   K2     wait: load          device  acquire  K3       as K1
///   K3     give back: add      device  release  K1, K2   as K1; and that the holder has drawn its number at the next
///                                                        lock: later holders draw later ones
// clang-format on

#include "ringbuf/annotations.hpp"
#include "ringbuf/atomics.hpp"

#include <cstdint>

namespace gpusock::detail {

/// A lock is free if its memory is zero. It lies in device memory, and only groups of that device use it.
struct TicketLock {
  std::uint64_t word;  ///< high half: the number that is drawn next; low half: the number of the holder

  /// A number that was drawn.
  struct Ticket {
    std::uint32_t number;
    bool holds;  ///< true if the lock was free: the group need not wait
  };

  GPUSOCK_FN Ticket draw() {
    const std::uint64_t before = Ref(word).fetch_add(std::uint64_t{1} << 32, ringbuf::kAcquire);  // K1, pairs with K3
    const auto number = static_cast<std::uint32_t>(before >> 32);
    return {number, static_cast<std::uint32_t>(before) == number};
  }
  /// True once the holder is the group that has drawn this number.
  GPUSOCK_FN bool holds(std::uint32_t number) {
    return static_cast<std::uint32_t>(Ref(word).load(ringbuf::kAcquire)) == number;  // K2, pairs with K3
  }
  /// Called by the holder. After the largest number comes 0; the carry into the half that others change is taken back.
  GPUSOCK_FN void give_back(std::uint32_t number) {
    constexpr std::uint64_t kOne = 1;
    const bool last = number == ~std::uint32_t{0};
    Ref(word).fetch_add(last ? kOne - (kOne << 32) : kOne, ringbuf::kRelease);  // K3, pairs with K1, K2
  }
  /// Called by the holder: draws a number at the next lock, and only then gives back this one.
  GPUSOCK_FN Ticket go_on_to(TicketLock& next, std::uint32_t number) {
    const Ticket ticket = next.draw();
    give_back(number);
    return ticket;
  }
  /// Called by the holder: true if another group waits.
  GPUSOCK_FN bool is_awaited(std::uint32_t number) {
    const std::uint64_t now = Ref(word).load(ringbuf::kRelaxed);  // relaxed: a group that comes later is served later
    return static_cast<std::uint32_t>(now >> 32) != static_cast<std::uint32_t>(number + 1);
  }

 private:
  using Ref = ringbuf::DeviceAtomics::Ref<std::uint64_t>;
};

}  // namespace gpusock::detail
