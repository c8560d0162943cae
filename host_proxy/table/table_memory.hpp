#pragma once
/// @file Owns the memory of the socket table that callers and proxy share.

#include "host_proxy/memory/platform.hpp"
#include "host_proxy/table/socket_table.hpp"

#include <array>
#include <cstdint>
#include <memory>

namespace gpusock::proxy {

/// Who opens sockets: a context's host threads, or its kernels. On the CPU device both are the host side.
enum class SideKind : int { host = 0, device = 1 };

/// ProxySlots are in three pools of `sockets_max` each: those that host threads open, those that kernels open, and
/// those of accepted connections. Without a device side its pool is empty.
class TableMemory {
 public:
  TableMemory(std::shared_ptr<Platform> platform, std::uint32_t sockets_max, bool has_device_side);
  ~TableMemory();
  TableMemory(const TableMemory&) = delete;
  TableMemory& operator=(const TableMemory&) = delete;

  table::TableView view(SideKind side) const;
  /// Ends every call on the table with -ECANCELED.
  void cancel();

  bool has_device_side() const { return has_device_side_; }
  std::uint32_t sockets_max() const { return sockets_max_; }
  std::uint32_t slots() const { return slots_; }
  /// Poll sets, of both sides.
  std::uint32_t sets() const { return sets_.count; }
  /// `callers`: that side's own state of all sets.
  table::PollSetView sets(SideKind side, table::CallerSet* callers) const;
  /// The first slot of a pool.
  std::uint32_t opened_by(SideKind side) const { return side == SideKind::host ? 0 : sockets_max_; }
  std::uint32_t accepted() const { return slots_ - sockets_max_; }

 private:
  struct FreeQueue {
    std::uint64_t* entries = nullptr;
    std::uint64_t* published = nullptr;
  };

  std::shared_ptr<Platform> platform_;
  std::uint32_t sockets_max_;
  bool has_device_side_;
  std::uint32_t slots_;
  std::uint64_t free_capacity_;
  std::size_t bytes_ = 0;
  std::byte* memory_ = nullptr;
  table::TableView common_;
  table::PollSetView sets_;
  std::array<FreeQueue, 2> free_;
  std::uint64_t* abort_ = nullptr;
};

}  // namespace gpusock::proxy
