#pragma once
/// @file The copies of a context's rings between device memory and host memory, also those that outlive their
/// connection.

#include "host_proxy/memory/copier.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace gpusock::proxy {

/// Not thread-safe: the proxy's step uses it.
class DeviceCopies {
 public:
  /// One copy has at most `copy_bytes_max` bytes. The default is long enough to be worth starting.
  explicit DeviceCopies(std::unique_ptr<Copier> copier, std::uint64_t copy_bytes_max = 64 << 10)
      : copy_bytes_max_(copy_bytes_max), copier_(std::move(copier)) {}
  DeviceCopies(const DeviceCopies&) = delete;
  DeviceCopies& operator=(const DeviceCopies&) = delete;

  Copier& copier() { return *copier_; }
  std::uint64_t copy_bytes_max() const { return copy_bytes_max_; }

  /// The most copies that one ring has under way.
  static constexpr std::size_t kCopiesPerRing = 2;

  /// Makes room for the copies that a ring may leave, so that keep_until_ended() cannot fail. If it throws
  /// std::bad_alloc, it has not added the ring. Otherwise remove_ring() follows.
  void add_ring() {
    left_.reserve(left_.size() + kCopiesPerRing * (rings_ + 1));
    ++rings_;
  }
  void remove_ring() { --rings_; }

  /// Takes over a copy of a connection that is over: keeps the memory until the copy has ended.
  void keep_until_ended(Copier::Copy copy, std::shared_ptr<void> memory) { left_.push_back({copy, std::move(memory)}); }
  /// Lets go of the memory of copies that have ended.
  void collect();

 private:
  struct Left {
    Copier::Copy copy;
    std::shared_ptr<void> memory;
  };

  std::uint64_t copy_bytes_max_;
  std::vector<Left> left_;
  std::size_t rings_ = 0;
  std::unique_ptr<Copier> copier_;  // the last member: it waits for its copies before their memory goes
};

}  // namespace gpusock::proxy
