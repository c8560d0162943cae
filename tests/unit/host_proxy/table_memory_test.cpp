// The memory of the socket table, where there is too little of it.
#include "gpusock/error.hpp"
#include "host_proxy/table/table_memory.hpp"
#include "tests/unit/host_proxy/pinning_platform.hpp"

#include <gtest/gtest.h>

#include <cerrno>
#include <cstddef>
#include <functional>
#include <memory>
#include <new>

namespace gpusock::proxy {
namespace {

/// Counts the pieces of shared memory that are in use. `window` is called for a window.
class CountingPlatform final : public PinningPlatform {
 public:
  void* allocate_shared(std::size_t bytes) override {
    void* const memory = PinningPlatform::allocate_shared(bytes);
    ++shared;
    return memory;
  }
  void free_shared(void* memory, std::size_t bytes) noexcept override {
    --shared;
    PinningPlatform::free_shared(memory, bytes);
  }
  std::unique_ptr<DeviceWindow> make_window(std::size_t) override {
    window();
    return nullptr;
  }

  int shared = 0;
  std::function<void()> window = [] {};
};

TEST(TableMemory, ReturnsItsMemoryIfThereIsNoneForAWindow) {
  const auto platform = std::make_shared<CountingPlatform>();
  for (const RingPlacement words : {RingPlacement::device, RingPlacement::automatic}) {
    platform->window = [] { throw std::bad_alloc(); };
    EXPECT_THROW(TableMemory(platform, 4, true, words), std::bad_alloc);
    EXPECT_EQ(platform->shared, 0);
  }
  platform->window = [] { throw Error(ENOMEM, "a window"); };
  EXPECT_THROW(TableMemory(platform, 4, true, RingPlacement::device), Error);
  EXPECT_EQ(platform->shared, 0);
}

TEST(TableMemory, AutomaticWordsAreInHostMemoryIfThereIsNoWindow) {
  const auto platform = std::make_shared<CountingPlatform>();
  platform->window = [] { throw Error(ENOMEM, "a window"); };
  {
    const TableMemory table(platform, 4, true, RingPlacement::automatic);
    EXPECT_FALSE(table.has_device_words());
    EXPECT_NE(table.why_no_device_words().find("a window"), std::string::npos);
    EXPECT_EQ(platform->shared, 1);
  }
  EXPECT_EQ(platform->shared, 0);
}

}  // namespace
}  // namespace gpusock::proxy
