// How schedules become tables, and tensors parts.
#include "executor/program.hpp"
#include "schedule/schemes.hpp"

#include <gtest/gtest.h>

namespace {

using namespace param_sync;
using executor::Cut;
using executor::Floats;

TEST(CutOfATensor, PassesCoverEachChunkOnceAndInOrder) {
  for (const std::uint64_t floats : {0, 1, 2, 7, 100, 1001}) {
    for (const std::uint32_t chunks : {1u, 3u, 16u, 200u}) {
      for (const std::uint64_t unit : {1, 3, 64, 5000}) {
        const Cut cut{floats, unit, chunks};
        std::uint64_t next = 0;
        for (std::uint32_t chunk = 0; chunk < chunks; ++chunk) {
          for (std::uint64_t pass = 0; pass < cut.passes(); ++pass) {
            const Floats part = cut.part(chunk, pass);
            ASSERT_EQ(part.begin, next);
            ASSERT_LE(part.count(), unit);
            next = part.end;
          }
        }
        EXPECT_EQ(next, floats);
        EXPECT_GE(cut.passes(), 1u);
      }
    }
  }
}

}  // namespace
