#include "gpusock/gpusock.hpp"

#include <gtest/gtest.h>

#include <cerrno>
#include <cstdint>

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

}  // namespace
}  // namespace gpusock
