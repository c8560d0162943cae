// The reader of tables: any file gives a table that is as it says, or an Error.
#include "apps/param_sync/data/table.hpp"
#include "gpusock/error.hpp"
#include "tests/fuzz/target.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <cmath>

namespace gpusock::fuzz::of_table {

FUZZ_TARGET(table) {
  const std::string_view content = input.rest();
  const int file = memfd_create("table", MFD_CLOEXEC);
  FUZZ_CHECK(file >= 0 && write(file, content.data(), content.size()) == static_cast<ssize_t>(content.size()));
  try {
    const auto table = param_sync::read_table("/proc/self/fd/" + std::to_string(file));
    FUZZ_CHECK(table.values.size() == table.rows() * table.columns && table.columns != 0);
    FUZZ_CHECK(table.classes.size() >= 2 && table.classes.size() <= param_sync::Table::kClassesMax);
    for (const std::uint8_t label : table.labels) FUZZ_CHECK(label < table.classes.size());
    for (const float value : table.values) FUZZ_CHECK(std::isfinite(value));
  } catch (const Error& error) {
    FUZZ_CHECK(error.code().value() == EINVAL);
  }
  close(file);
}

}  // namespace gpusock::fuzz::of_table
