// The reader of data sets: any file gives an array that is as it says, or an Error.
#include "apps/param_sync/data/idx.hpp"
#include "gpusock/error.hpp"
#include "tests/fuzz/target.hpp"

#include <sys/mman.h>
#include <unistd.h>

namespace gpusock::fuzz::of_idx {

FUZZ_TARGET(idx) {
  const std::size_t dimensions = 1 + input.below(3);
  const std::string_view content = input.rest();
  const int file = memfd_create("idx", MFD_CLOEXEC);
  FUZZ_CHECK(file >= 0 && write(file, content.data(), content.size()) == static_cast<ssize_t>(content.size()));
  try {
    const auto array = param_sync::read_idx("/proc/self/fd/" + std::to_string(file), dimensions);
    FUZZ_CHECK(array.shape.size() == dimensions);
    std::size_t bytes = 1;
    for (const std::uint32_t size : array.shape) bytes *= size;
    FUZZ_CHECK(array.bytes.size() == bytes && array.items() * array.item_bytes() == bytes);
  } catch (const Error& error) {
    FUZZ_CHECK(error.code().value() == EINVAL);
  }
  close(file);
}

}  // namespace gpusock::fuzz::of_idx
