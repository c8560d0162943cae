// What a folder of checkpoints lets a run go on from.
#include "checkpoint/checkpoint.hpp"

#include "report/failure.hpp"

#include "gpusock/error.hpp"
#include "tests/support/error_of.hpp"
#include "tests/support/folder.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

namespace param_sync {
namespace {

using gpusock::test::error_of;
using gpusock::test::Folder;
using ::testing::AllOf;
using ::testing::HasSubstr;

const Checkpoint kTen{10, {1, 2, 3}, {4, 5, 6}};
const Checkpoint kTwenty{20, {7, 8, 9}, {4, 5, 6}};

std::vector<std::uint64_t> settings_of(int nodes) {
  std::vector<std::uint64_t> settings(static_cast<std::size_t>(HelloField::rank), 77);
  settings[static_cast<std::size_t>(HelloField::nodes)] = static_cast<std::uint64_t>(nodes);
  return settings;
}

CheckpointFiles files_of(const Folder& folder, int rank, int nodes) {
  return {folder.path(), rank, nodes, settings_of(nodes)};
}

TEST(Checkpoint, ARunOfMoreOrFewerNodesIsNotBegunAnew) {
  Folder folder;
  for (const int rank : {0, 1}) files_of(folder, rank, 2).write(kTen);
  EXPECT_EQ(files_of(folder, 1, 2).latest(), 10U);
  EXPECT_EQ(files_of(folder, 1, 2).read(10, 3).weights, kTen.weights);
  for (const int rank : {0, 1, 2}) {
    EXPECT_THAT(error_of<gpusock::Error>([&] { files_of(folder, rank, 3).latest(); }), HasSubstr("another --nodes"));
  }
  EXPECT_THAT(error_of<gpusock::Error>([&] { files_of(folder, 0, 1).read(files_of(folder, 0, 1).latest(), 3); }),
              HasSubstr("another --nodes"));
}

TEST(Checkpoint, ARankThatWasLostBeforeItsFirstOneBeginsAnew) {
  Folder folder;
  for (const int rank : {0, 1}) files_of(folder, rank, 3).write(kTen);
  for (const int rank : {0, 1, 2}) EXPECT_EQ(files_of(folder, rank, 3).latest(), 0U);
}

TEST(Checkpoint, AnyFlippedBitIsDamageAndTheStepThatIsIntactIsNamed) {
  Folder folder;
  for (const int rank : {0, 1}) {
    files_of(folder, rank, 2).write(kTen);
    files_of(folder, rank, 2).write(kTwenty);
  }
  const std::string name = folder.path().string() + "/rank-1-step-20.checkpoint";
  std::ifstream in(name, std::ios::binary);
  const std::string whole{std::istreambuf_iterator<char>(in), {}};
  for (std::size_t byte = 0; byte < whole.size(); byte += 7) {
    std::string bytes = whole;
    bytes[byte] = static_cast<char>(bytes[byte] ^ 1);
    std::ofstream(name, std::ios::binary) << bytes;
    EXPECT_THAT(error_of<gpusock::Error>([&] { files_of(folder, 1, 2).read(20, 3); }),
                AllOf(HasSubstr("is damaged"), HasSubstr("--resume 10")))
        << byte;
  }
  std::ofstream(folder.path().string() + "/rank-0-step-10.checkpoint", std::ios::binary) << "x";
  EXPECT_THAT(error_of<gpusock::Error>([&] { files_of(folder, 1, 2).read(20, 3); }), HasSubstr("no older one"));
}

}  // namespace
}  // namespace param_sync
