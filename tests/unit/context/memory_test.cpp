#include "gpusock/gpusock.hpp"
#include "tests/support/sanitized.hpp"

#include <gtest/gtest.h>

#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <vector>

namespace gpusock {
namespace {

/// The errno with which memory of `count` elements is refused; 0 where it is not.
template <class Memory>
int refusal(Context& context, std::size_t count) {
  try {
    Memory memory(context, count);
  } catch (const Error& error) {
    return error.code().value();
  }
  return 0;
}

TEST(Memory, CountsWhoseBytesWrapAreRefused) {
  Context context;
  for (const std::size_t count : {SIZE_MAX / 8 + 1, SIZE_MAX / 8 + 3, SIZE_MAX, SIZE_MAX / 16 + 1}) {
    EXPECT_EQ(refusal<Mapped<std::uint64_t>>(context, count), ENOMEM) << count;
    EXPECT_EQ(refusal<DeviceBuffer<std::uint64_t>>(context, count), ENOMEM) << count;
  }
  EXPECT_EQ(refusal<Mapped<char>>(context, SIZE_MAX), ENOMEM);
  EXPECT_EQ(refusal<Mapped<std::uint64_t>>(context, 0), 0);
}

TEST(Memory, BytesOfDeviceBuffersAreCounted) {
  Context context;
  const Mapped<float> mapped(context, 10);
  EXPECT_EQ(context.stats().device_bytes, 0);
  const DeviceBuffer<float> kept(context, 3);
  {
    const DeviceBuffer<float> freed(context, 5);
    EXPECT_EQ(context.stats().device_bytes, 32);
  }
  EXPECT_EQ(context.stats().device_bytes, 12);
}

/// Bytes of memory that this process has in use.
std::size_t resident_bytes() {
  std::size_t all_pages = 0, pages = 0;
  std::ifstream("/proc/self/statm") >> all_pages >> pages;
  return pages * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

template <class Memory>
void expect_to_take_memory_once_used() {
  constexpr std::size_t kBytes = 512 << 20;
  Context context;
  const std::size_t before = resident_bytes();
  const Memory memory(context, kBytes);
  EXPECT_LT(resident_bytes(), before + kBytes / 4);
}

TEST(Memory, TakesTimeAndMemoryOnceItIsUsed) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer has memory of its own for each byte";
  expect_to_take_memory_once_used<DeviceBuffer<char>>();
  expect_to_take_memory_once_used<Mapped<char>>();
}

TEST(Memory, IsZeroAndAlignedWhateverItsSize) {
  Context context;
  for (const std::size_t bytes : {std::size_t{1}, std::size_t{1} << 16, (std::size_t{1} << 20) - 1,
                                  std::size_t{1} << 20, (std::size_t{3} << 20) + 5}) {
    for (int again = 0; again < 2; ++again) {  // what was freed may come again
      DeviceBuffer<char> buffer(context, bytes);
      Mapped<char> mapped(context, bytes);
      const std::vector<char> zeros(bytes), others(bytes, 'x');
      std::vector<char> seen = others;
      buffer.copy_out(seen);
      EXPECT_TRUE(seen == zeros);
      EXPECT_EQ(std::memcmp(mapped.data(), zeros.data(), bytes), 0);
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer.data()) % 256, 0u);
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(mapped.data()) % 256, 0u);
      buffer.copy_in(others);
      std::memcpy(mapped.data(), others.data(), bytes);
    }
  }
}

}  // namespace
}  // namespace gpusock
