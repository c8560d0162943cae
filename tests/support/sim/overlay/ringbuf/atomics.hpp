#pragma once
/// @file Stands for the production header of the same name in the simulation, where everything runs on one thread: each
/// access is a place where the schedule may turn to another fiber. What reorderings the orders allow is tests/model's
/// matter, not explored here.

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace gpusock::sim {
void may_turn();

/// Stores through the mapping of a device's memory arrive later (window.hpp). Mappings are in this many reserved bytes.
inline constexpr std::size_t kReservedForMappings = 64 << 20;
std::byte* reserved_for_mappings();
void bar_write(void* at, std::uint64_t value, std::size_t bytes);

inline bool is_in_bar(const void* at) {
  static const std::byte* const reserved = reserved_for_mappings();
  return static_cast<std::size_t>(static_cast<const std::byte*>(at) - reserved) < kReservedForMappings;
}
}  // namespace gpusock::sim

namespace cuda {
using std::memory_order_seq_cst;
enum thread_scope { thread_scope_system };
/// Nobody reorders accesses here.
inline void atomic_thread_fence(std::memory_order, thread_scope) {}
}  // namespace cuda

namespace gpusock::ringbuf {

template <class T>
class SimulatedRef {
 public:
  explicit SimulatedRef(T& word) : word_(word) {}

  T load(std::memory_order) const {
    sim::may_turn();
    return word_;
  }
  void store(T value, std::memory_order) const {
    sim::may_turn();
    if (sim::is_in_bar(&word_)) return sim::bar_write(&word_, value, sizeof value);
    word_ = value;
  }
  T exchange(T value, std::memory_order) const {
    return update([value](T) { return value; });
  }
  T fetch_add(T value, std::memory_order) const {
    return update([value](T before) { return static_cast<T>(before + value); });
  }
  T fetch_or(T value, std::memory_order) const {
    return update([value](T before) { return static_cast<T>(before | value); });
  }
  T fetch_and(T value, std::memory_order) const {
    return update([value](T before) { return static_cast<T>(before & value); });
  }
  bool compare_exchange_strong(T& expected, T value, std::memory_order, std::memory_order) const {
    sim::may_turn();
    if (word_ != expected) {
      expected = word_;
      return false;
    }
    word_ = value;
    return true;
  }
  bool compare_exchange_weak(T& expected, T value, std::memory_order success, std::memory_order failure) const {
    return compare_exchange_strong(expected, value, success, failure);
  }

 private:
  template <class Change>
  T update(Change change) const {
    sim::may_turn();
    const T before = word_;
    word_ = change(before);
    return before;
  }

  T& word_;
};

struct SystemAtomics {
  template <class T>
  using Ref = SimulatedRef<T>;
};
struct DeviceAtomics {
  template <class T>
  using Ref = SimulatedRef<T>;
};

inline constexpr auto kRelaxed = std::memory_order_relaxed;
inline constexpr auto kAcquire = std::memory_order_acquire;
inline constexpr auto kRelease = std::memory_order_release;
inline constexpr auto kAcqRel = std::memory_order_acq_rel;

inline constexpr std::uint64_t kWordStride = 128;

}  // namespace gpusock::ringbuf
