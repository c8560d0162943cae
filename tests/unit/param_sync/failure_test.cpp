#include "failure.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>

namespace param_sync {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(Failure, NamesWhoLostWhom) {
  EXPECT_EQ(describe({1, FailureKind::gather, 2, ECONNRESET}, 0, "127.0.0.1:7002"),
            "rank 0: lost rank 2: connection reset by peer (127.0.0.1:7002, while receiving its gradients)");
}

TEST(Failure, TellsAnOrderlyEndFromAReset) {
  EXPECT_THAT(describe({1, FailureKind::pull, 1, 0}, 3, ""),
              StartsWith("rank 3: lost rank 1: it closed the connection"));
}

TEST(Failure, SaysWhichSettingDiffers) {
  EXPECT_THAT(describe({1, FailureKind::mismatch, 1, EPROTO, HelloField::seed, 1, 2}, 0, ""),
              HasSubstr("another --seed: 2 there, 1 here"));
}

TEST(Failure, EveryKindHasAMessageOfItsOwn) {
  for (auto kind = FailureKind::listen; kind <= FailureKind::late;
       kind = static_cast<FailureKind>(static_cast<std::uint32_t>(kind) + 1)) {
    const std::string text = describe({1, kind, 1, ETIMEDOUT, HelloField::nodes}, 0, "h:1");
    EXPECT_THAT(text, StartsWith("rank 0: "));
    EXPECT_THAT(text, ::testing::Not(HasSubstr("unknown")));
  }
}

}  // namespace
}  // namespace param_sync
