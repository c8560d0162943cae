// What a folder of checkpoints lets a run go on from.
#include "checkpoint/checkpoint.hpp"

#include "report/failure.hpp"

#include "gpusock/error.hpp"
#include "tests/support/error_of.hpp"
#include "tests/support/folder.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <iterator>

namespace param_sync {
namespace {

using gpusock::test::error_of;
using gpusock::test::Folder;
using ::testing::AllOf;
using ::testing::HasSubstr;

const Checkpoint kTen{10, {1, 2, 3, 4, 5, 6}, {7, 8, 9, 10, 11, 12}};
const Checkpoint kTwenty{20, {6, 5, 4, 3, 2, 1}, {7, 8, 9, 10, 11, 12}};

std::vector<std::uint64_t> settings_of(int nodes) {
  std::vector<std::uint64_t> settings(static_cast<std::size_t>(RunSetting::rank), 77);
  settings[static_cast<std::size_t>(RunSetting::nodes)] = static_cast<std::uint64_t>(nodes);
  return settings;
}

/// A model of six parameters: a layer with two inputs and two outputs.
CheckpointFiles files_of(const Folder& folder, int rank, int nodes) {
  return {folder.path(), rank, make_layout(std::array{2U, 2U}, nodes), settings_of(nodes)};
}

std::string bytes_of(const std::string& name) {
  std::ifstream in(name, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

/// What a file with this header and these tensors is refused with.
std::string refusal_of(std::string header, const std::string& tensors) {
  const std::uint64_t length = header.size();
  header.insert(0, reinterpret_cast<const char*>(&length), sizeof length);
  const std::string zeros = R"("crc32":"00000000")";
  const unsigned long crc = crc32_z(crc32_z(0, reinterpret_cast<const Bytef*>(header.data()), header.size()),
                                    reinterpret_cast<const Bytef*>(tensors.data()), tensors.size());
  if (const std::size_t at = header.find(zeros); at != std::string::npos) {
    header.replace(at, zeros.size(), fmt::format(R"("crc32":"{:08x}")", crc));
  }
  Folder folder;
  folder.write("rank-0-step-10.safetensors", header + tensors);
  return error_of<gpusock::Error>([&] { files_of(folder, 0, 1).read(10); });
}

TEST(Checkpoint, ARunOfMoreOrFewerNodesIsNotBegunAnew) {
  Folder folder;
  for (const int rank : {0, 1}) files_of(folder, rank, 2).write(kTen);
  EXPECT_EQ(files_of(folder, 1, 2).latest(), 10U);
  EXPECT_EQ(files_of(folder, 1, 2).read(10).weights, kTen.weights);
  EXPECT_EQ(files_of(folder, 1, 2).read(10).states, kTen.states);
  for (const int rank : {0, 1, 2}) {
    EXPECT_THAT(error_of<gpusock::Error>([&] { files_of(folder, rank, 3).latest(); }), HasSubstr("another --nodes"));
  }
  EXPECT_THAT(error_of<gpusock::Error>([&] { files_of(folder, 0, 1).read(files_of(folder, 0, 1).latest()); }),
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
  const std::string name = folder / "rank-1-step-20.safetensors";
  const std::string whole = bytes_of(name);
  for (std::size_t byte = 0; byte < whole.size(); byte += 7) {
    std::string bytes = whole;
    bytes[byte] = static_cast<char>(bytes[byte] ^ 1);
    std::ofstream(name, std::ios::binary) << bytes;
    EXPECT_THAT(error_of<gpusock::Error>([&] { files_of(folder, 1, 2).read(20); }),
                AllOf(HasSubstr("is damaged"), HasSubstr("--resume 10")))
        << byte;
  }
  std::ofstream(folder.path().string() + "/rank-0-step-10.safetensors", std::ios::binary) << "x";
  EXPECT_THAT(error_of<gpusock::Error>([&] { files_of(folder, 1, 2).read(20); }), HasSubstr("no older one"));
}

TEST(Checkpoint, FilesOfOtherProgramsAreRefused) {
  const std::string deep = std::string(8'000, '[') + std::string(8'000, ']');
  for (const std::string& header :
       {std::string(), std::string("{}"), std::string("[]"), std::string("{"),
        std::string(R"({"__metadata__":{"format":"pt"}})"), std::string(R"({"__metadata__":{"crc32":"0000)"),
        std::string(R"({"__metadata__":["crc32"],"crc32":"00000000"})"), deep,
        R"({"crc32":"00000000","__metadata__":)" + deep + "}"}) {
    EXPECT_THAT(refusal_of(header, ""), HasSubstr("no checkpoint")) << header.substr(0, 40);
  }
  EXPECT_THAT(refusal_of(R"({"__metadata__":{"crc32":"00000000","version":["77"]}})", "abcd"),
              HasSubstr("another version"));
}

TEST(Checkpoint, TheHeaderDoesNotSayHowMuchIsRead) {
  Folder folder;
  files_of(folder, 0, 1).write(kTen);
  const std::string whole = bytes_of(folder / "rank-0-step-10.safetensors");
  std::string about = whole.substr(8, whole.find('}') - 8 + 1);  // the metadata
  about.replace(about.find(R"("crc32":")") + 9, 8, "00000000");
  const std::string liar = about +
                           R"(,"layers.0.weight":{"dtype":"F32","shape":[1],"data_offsets":[0,1099511627776]}})";
  EXPECT_THAT(refusal_of(liar, "abcd"), HasSubstr("is damaged"));
  EXPECT_THAT(refusal_of(liar, std::string(49, 'x')), HasSubstr("is damaged"));
  EXPECT_EQ(refusal_of(liar, std::string(48, 'x')), "") << "settings, CRC and size are those of such a run";
  for (const std::uint64_t length : {std::uint64_t{1} << 62, ~std::uint64_t{0}, std::uint64_t{16} << 10}) {
    folder.write("rank-0-step-10.safetensors",
                 std::string(reinterpret_cast<const char*>(&length), 8) + whole.substr(8));
    EXPECT_THAT(error_of<gpusock::Error>([&] { files_of(folder, 0, 1).read(10); }), HasSubstr("is damaged"));
  }
}

TEST(Checkpoint, AnotherRanksOrStepsFileIsToldByItsContent) {
  Folder folder;
  for (const int rank : {0, 1}) files_of(folder, rank, 2).write(kTen);
  for (const char* name : {"/rank-1-step-10.safetensors", "/rank-0-step-20.safetensors"}) {
    std::filesystem::copy(folder / "rank-0-step-10.safetensors", folder.path().string() + name,
                          std::filesystem::copy_options::overwrite_existing);
  }
  struct Misnamed {
    int rank;
    std::uint64_t step;
  };
  for (const Misnamed& at : {Misnamed{1, 10}, Misnamed{0, 20}}) {
    EXPECT_THAT(error_of<gpusock::Error>([&] { files_of(folder, at.rank, 2).read(at.step); }),
                HasSubstr("give it its name back"));
  }
}

TEST(Checkpoint, AnEarlierVersionsAreRefusedWithWhatToDo) {
  Folder folder;
  folder.write("rank-0-step-10.checkpoint", std::string("gpscheck"));
  EXPECT_THAT(error_of<gpusock::Error>([&] { files_of(folder, 0, 1); }),
              AllOf(HasSubstr("rank-0-step-10.checkpoint is of an earlier version"), HasSubstr("another folder")));
}

}  // namespace
}  // namespace param_sync
