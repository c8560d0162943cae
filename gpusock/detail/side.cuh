#pragma once
/// @file The data of a socket call: one caller side's slots, the shared table, and on a CPU the hooks to the proxy.

#include "gpusock/types.hpp"
#include "plain_types/past_ring.hpp"
#include "socket_table/socket_table.hpp"
#include "ringbuf/look_pace.hpp"
#include "ringbuf/store_choice.hpp"

namespace gpusock::detail {

/// How callers on a CPU adapt to a socket's peer on another processor, by what they find while they send and receive.
struct Adaptation {
  ringbuf::StoreChoice stores;  ///< the sending leader's: chooses the stores that fill the peer's ring
  ringbuf::LookPace looks;      ///< the receiving leader's: chooses when it looks for more bytes
};

/// How code on a CPU reaches the proxy. Kernels on a GPU have no hooks: the proxy polls.
struct Hooks {
  void* self;
  /// Tells the proxy that bytes were committed or something was requested on this slot, so that it looks soon.
  void (*ring_doorbell)(void* self, std::uint32_t slot);
  /// Tells the proxy that ring space was given back. This matters only to a proxy that waits for space.
  void (*ring_for_credit)(void* self);
  /// One turn of a wait that has lasted `waited_ns`, at the time `now_ns`. May run the proxy's step on this thread.
  void (*relax)(void* self, std::uint64_t now_ns, std::uint64_t waited_ns, bool proxy_matters);
  /// Ends what a thread has left unfinished (`kind`: an Unfinished).
  using End = void (*)(void* self, std::int32_t handle, int kind) noexcept;
  /// Notes what the calling thread is doing, in place of what was noted before. If a fault ends its kernel, and `end`
  /// is not nullptr, `end(self, handle, kind)` is called. Returns `result`, so that it can be the last call of a
  /// function, which then saves no registers. nullptr if no kernel runs on a CPU.
  void* (*note)(End end, void* self, std::int32_t handle, int kind, void* result) noexcept = nullptr;
  /// Keeps, beside the note, what the calling thread has begun for longer than a call, until drop(). Returns false if
  /// there is no memory. nullptr if no kernel runs on a CPU.
  bool (*keep)(End end, void* self, std::int32_t handle, int kind) noexcept = nullptr;
  void (*drop)(void* self, std::int32_t handle) noexcept = nullptr;
  End end = nullptr;  ///< what is passed to note() and keep()
  /// The index of the block that runs on the calling thread, -1 on a host thread. nullptr if no kernel runs.
  std::int64_t (*running_block)(void* self) = nullptr;
  /// Moves bytes between the caller's memory and the network; they follow all bytes in this slot's ring. Returns their
  /// number, 0 if that is not possible now. nullptr if callers leave all bytes to the proxy's thread.
  std::uint64_t (*move_past_ring)(void* self, std::uint32_t slot, const PastRing& wanted) = nullptr;
  Adaptation* adaptations = nullptr;  ///< one for each slot; nullptr: callers do not adapt
};

/// What a thread may have left unfinished.
enum class Unfinished : int {
  nothing,
  call,   ///< the thread is counted in the socket of this handle (CallerSlot::generation_and_users)
  close,  ///< the thread is about to tell the proxy of the close; the handle has the closed generation
  owner,  ///< the thread is counted in the socket of this handle for longer than a call (OwnedSocket)
};

/// Bits for the rings in which the owner of a socket has a reservation (tx) or a peek (rx).
inline constexpr unsigned kHoldsTx = 1, kHoldsRx = 2;

/// One caller side (the kernels of a context, or its host threads) of the socket table.
struct Side {
  table::TableView table;
  table::CallerSlot* slots = nullptr;
  std::uint64_t* free_taken = nullptr;       ///< position in the queue of free sockets, in these callers' memory
  std::uint64_t* accept_taken = nullptr;     ///< position in each accept queue, in these callers' memory
  const table::PollSetView* sets = nullptr;  ///< in these callers' memory
  const Hooks* hooks = nullptr;
  std::uint64_t timeout_ns = kForever;  ///< for calls without a deadline, unless their socket has another timeout
  /// A waiting caller looks at the status in every n-th turn, and at the ring's word in the other turns. 1: it looks at
  /// both in each turn. The value is more than 1 where a look crosses the bus.
  std::uint32_t status_turns = 1;
  Socket owned = -1;                ///< calls on it are not counted, as its owner is counted (OwnedSocket); -1: none
  unsigned* owner_holds = nullptr;  ///< kHoldsTx and kHoldsRx of this owner; another owner may hold the other ring

  GPUSOCK_FN ringbuf::HandleConsumer<> free_sockets() const {
    return {table.free_entries, table.free_capacity, table.free_published, free_taken};
  }
  GPUSOCK_FN ringbuf::HandleConsumer<> accept_queue(std::uint64_t which) const {
    return {table.accept_entries + which * table::kAcceptQueueEntries, table::kAcceptQueueEntries,
            table.accept_published + which, accept_taken + which};
  }
};

using SystemRef = ringbuf::SystemAtomics::Ref<std::uint64_t>;
using DeviceRef = ringbuf::DeviceAtomics::Ref<std::uint64_t>;

/// True if the context ends. For calls that do not look at a socket's status, which also says so.
GPUSOCK_FN inline bool canceled(const Side& side) {
  return SystemRef(*const_cast<std::uint64_t*>(side.table.abort)).load(ringbuf::kRelaxed) != 0;  // T6, pairs with T5
}

/// Loads a status. It says whether the context ends even if the proxy that writes statuses stands still.
GPUSOCK_FN inline table::Status load_status(const Side& side, std::uint32_t slot) {
  const bool ends = side.table.statuses_are_on_device && canceled(side);  // before the acquire: the two loads overlap
  SystemRef word(side.table.proxy_words[slot].status);
  auto status = table::Status::unpack(word.load(ringbuf::kAcquire));  // T4, pairs with T3
  if (ends) status.flags |= table::kStatusCanceled;
  return status;
}

GPUSOCK_FN inline void ring_doorbell(const Side& side, Socket socket) {
#if !GPUSOCK_ON_GPU
  side.hooks->ring_doorbell(side.hooks->self, table::slot_of(socket));
#else
  (void)side, (void)socket;
#endif
}

/// Notes what the calling thread is doing (Hooks::note), and returns `result`.
GPUSOCK_FN inline void* note(const Side& side, Unfinished what, std::int32_t handle, void* result = nullptr) {
#if !GPUSOCK_ON_GPU
  const Hooks& hooks = *side.hooks;
  if (hooks.note == nullptr) return result;
  const auto end = what == Unfinished::nothing ? nullptr : hooks.end;
  return hooks.note(end, hooks.self, handle, static_cast<int>(what), result);
#else
  (void)side, (void)what, (void)handle;
  return result;
#endif
}

/// Notes that the calling thread owns a socket (Hooks::keep). False if there is no memory.
GPUSOCK_FN inline bool keep_owner(const Side& side, Socket socket) {
#if !GPUSOCK_ON_GPU
  const Hooks& hooks = *side.hooks;
  if (hooks.keep != nullptr) return hooks.keep(hooks.end, hooks.self, socket, static_cast<int>(Unfinished::owner));
#endif
  (void)side, (void)socket;
  return true;
}
GPUSOCK_FN inline void drop_owner(const Side& side, Socket socket) {
#if !GPUSOCK_ON_GPU
  if (side.hooks->drop != nullptr) side.hooks->drop(side.hooks->self, socket);
#endif
  (void)side, (void)socket;
}

/// The index of the calling thread's block in its grid, x fastest; -1 on a host thread.
GPUSOCK_FN inline std::int64_t running_block(const Side& side) {
#if GPUSOCK_ON_GPU
  (void)side;
  const std::int64_t x = gridDim.x, y = gridDim.y;
  return blockIdx.x + x * (blockIdx.y + y * blockIdx.z);
#else
  return side.hooks->running_block != nullptr ? side.hooks->running_block(side.hooks->self) : -1;
#endif
}

GPUSOCK_FN inline void ring_for_credit(const Side& side) {
#if !GPUSOCK_ON_GPU
  side.hooks->ring_for_credit(side.hooks->self);
#else
  (void)side;
#endif
}

#if !GPUSOCK_ON_GPU
/// The Adaptation of this socket, or nullptr.
inline Adaptation* adaptation(const Side& side, Socket socket) {
  return side.hooks->adaptations == nullptr ? nullptr : &side.hooks->adaptations[table::slot_of(socket)];
}
#endif

/// The `waited_ns` that a caller passes to Hooks::relax while it waits for a lock: long enough that the processor is
/// given away.
inline constexpr std::uint64_t kLockWaitNs = 10'000;

/// One turn of a wait for a lock that another caller is about to release.
GPUSOCK_FN inline void pause(const Side& side) {
#if GPUSOCK_ON_GPU
  (void)side;
  __nanosleep(20);
#else
  side.hooks->relax(side.hooks->self, clock_ns(), kLockWaitNs, false);
#endif
}

/// Takes a lock of one caller side (CallerSlot::request_lock, CallerSet::lock), which is held for a few accesses.
GPUSOCK_FN inline void lock(const Side& side, std::uint64_t& word) {
  while (DeviceRef(word).exchange(1, ringbuf::kAcquire) != 0) pause(side);  // T7, pairs with T8
}
GPUSOCK_FN inline void unlock(std::uint64_t& word) {
  DeviceRef(word).store(0, ringbuf::kRelease);  // T8, pairs with T7
}

/// A wait until a deadline of this caller side (Deadline::here()). After each turn its user looks again at what it
/// waits for, and whether the context ends.
class Wait {
 public:
  /// `timeout_ns`: the duration of Deadline::by_default(), read in the first turn.
  GPUSOCK_FN Wait(const Side& side, Deadline deadline, bool proxy_matters, const std::uint64_t& timeout_ns)
      : side_(side), deadline_(deadline), proxy_matters_(proxy_matters), timeout_ns_(timeout_ns) {}
  /// A wait that is not for a single socket.
  GPUSOCK_FN Wait(const Side& side, Deadline deadline, bool proxy_matters)
      : Wait(side, deadline, proxy_matters, side.timeout_ns) {}

  /// One turn. Returns 0 to look again, or -ETIMEDOUT or -EAGAIN to stop.
  GPUSOCK_FN int turn() {
    const std::uint64_t now_ns = clock_ns();
    if (turns_++ == 0) {
#if GPUSOCK_ON_GPU
      if (deadline_.is_now()) return -EAGAIN;  // the proxy runs beside the kernel
#endif
      started_ns_ = now_ns;
      if (deadline_.is_default()) {
        auto& timeout_ns = const_cast<std::uint64_t&>(timeout_ns_);
        deadline_ = deadline_.or_after(now_ns, DeviceRef(timeout_ns).load(ringbuf::kRelaxed));  // relaxed: by itself
      }
    } else if (deadline_.passed_at(now_ns)) {  // the first turn is for the proxy, even with Deadline::now()
      return deadline_.is_now() ? -EAGAIN : -ETIMEDOUT;
    }
    relax(now_ns);
    return 0;
  }

 private:
  GPUSOCK_FN void relax(std::uint64_t now_ns) {
    const std::uint64_t waited_ns = now_ns - started_ns_;
#if GPUSOCK_ON_GPU
    if (waited_ns > 2'000) __nanosleep(waited_ns > 100'000 ? 1'000 : 100);
#else
    side_.hooks->relax(side_.hooks->self, now_ns, deadline_.is_now() ? 0 : waited_ns, proxy_matters_);
#endif
  }

  const Side& side_;
  Deadline deadline_;
  bool proxy_matters_;
  const std::uint64_t& timeout_ns_;
  std::uint64_t turns_ = 0;
  std::uint64_t started_ns_ = 0;
};

}  // namespace gpusock::detail
