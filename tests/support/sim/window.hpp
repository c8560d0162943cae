#pragma once
/// @file Device memory that a simulated host stores into: what it stores arrives later, in its order. Loading through
/// the mapping faults.

#include "host_proxy/memory/device_window.hpp"
#include "tests/support/sim/schedule.hpp"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

namespace gpusock::sim {

class LateWindow final : public proxy::DeviceWindow {
 public:
  LateWindow(Schedule& schedule, std::size_t bytes);
  ~LateWindow() override;  ///< what is under way arrives nowhere

  std::byte* device() const override { return memory_->bytes.data(); }
  std::byte* mapping() const override { return mapping_; }

  /// A store through a mapping (is_in_bar()).
  static void bar_write(void* at, std::uint64_t value, std::size_t bytes);
  /// Everything that is under way arrives.
  void settle();

 private:
  struct Store {
    std::size_t at;
    std::uint64_t value;
    std::size_t bytes;
  };
  struct Memory {
    std::vector<std::byte> bytes;
    std::deque<Store> under_way;

    void arrive_one();
  };

  Schedule& schedule_;
  std::shared_ptr<Memory> memory_;
  std::byte* mapping_;
  std::size_t mapped_bytes_;
  std::uint64_t last_ns_ = 0;
};

}  // namespace gpusock::sim
