// Blocks that share an OS thread: they take turns, and while all of them wait the thread backs off.

#include "cpu_device/device_memory.hpp"
#include "cpu_device/pool.hpp"

#include <algorithm>
#include <limits>
#include <new>
#include <utility>

namespace cpu_device::detail {

bool Seats::ensure_free() noexcept {
  if (free_ == nullptr) free_ = new (std::nothrow) Seat;
  return free_ != nullptr;
}

Seat& Seats::take() noexcept {
  Seat& seat = *std::exchange(free_, free_->next);
  seat.next = std::exchange(taken_, &seat);
  return seat;
}

void Seats::give_back(Seat*& taken) noexcept {
  Seat& seat = *taken;
  taken = seat.next;
  seat.next = std::exchange(free_, &seat);
}

bool Seats::all_wait() const noexcept {
  for (const Seat* seat = taken_; seat != nullptr; seat = seat->next) {
    if (seat->block.waited_ns() < kYieldAfterNs && !seat->block.may_spin()) return false;
  }
  return true;
}

void Seats::trim() noexcept {
  for (Seat* seat = free_; seat != nullptr; seat = seat->next) seat->block.trim();
}

/// Takes a pending block that may share this worker's thread.
bool Pool::take_sharing_block(std::shared_ptr<Launch>& launch, std::uint64_t& index) {
  // relaxed: if it is stale, a call of a worker, or the monitor, takes care of the blocks
  if (runnable_count_.load(std::memory_order_relaxed) == 0) return false;
  Lock lock(mutex_);
  return first_runnable_ && first_runnable_->shape.blocks_share_threads && take_block(lock, launch, index);
}

/// Runs a block, and further ones while it waits, until all of them have ended.
void Pool::run_by_turns(Seats& seats, std::shared_ptr<Launch> launch, std::uint64_t index) {
  bool waiting = false, takes_next = false;
  const auto end = [&](Seat*& seat) {
    note_waiting(waiting, false);
    const std::shared_ptr<Launch> its_launch = std::move(seat->launch);
    if (const auto failure = seat->block.take_failure()) {
      report(*its_launch, *failure);
      open_device_memory();  // a fault's handler leaves the thread without the right
    }
    blocks_ended_.fetch_add(1, std::memory_order_relaxed);  // tells the monitor that blocks end
    resident_.fetch_sub(1, std::memory_order_relaxed);      // relaxed, as in run_blocks()
    seats.give_back(seat);
    if (seats.taken() == nullptr) in_blocks_.fetch_sub(1, std::memory_order_relaxed);
    takes_next = seats.all_wait();
    end_blocks(*its_launch, 1, takes_next);
  };
  const auto begin = [&] {
    Seat& seat = seats.take();
    seat.launch = std::move(launch);
    open_device_memory();
    if (seat.block.start(*seat.launch, index)) end(seats.taken());
  };
  begin();
  while (seats.taken() != nullptr) {
    std::uint64_t waited_ns = std::numeric_limits<std::uint64_t>::max();
    for (Seat** seat = &seats.taken(); *seat != nullptr;) {
      if ((*seat)->block.resume()) {
        end(*seat);
        waited_ns = 0;
      } else {
        waited_ns = std::min(waited_ns, (*seat)->block.waited_ns());
        seat = &(*seat)->next;
      }
    }
    if (seats.taken() == nullptr) break;
    const bool waits = waited_ns >= kYieldAfterNs;
    const bool adds = seats.all_wait() && seats.ensure_free() && take_sharing_block(launch, index);
    if (std::exchange(takes_next, false) && !adds) call_workers();
    note_waiting(waiting, waits && !adds);
    if (adds) {
      begin();
    } else {
      back_off(waited_ns, waits ? waiting_per_processor() : 0);
    }
  }
}

}  // namespace cpu_device::detail
