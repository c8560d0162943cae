#include "data/idx.hpp"

#include "idx_bytes.hpp"

#include "tests/support/error_of.hpp"
#include "tests/support/folder.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <zlib.h>

namespace param_sync {
namespace {

using gpusock::test::error_of;
using gpusock::test::Folder;
using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::idx_bytes;

std::filesystem::path write_gzip(const Folder& folder, const std::string& name,
                                 const std::vector<std::uint8_t>& bytes) {
  const auto file = folder.path() / name;
  const gzFile out = gzopen(file.c_str(), "wb");
  gzwrite(out, bytes.data(), static_cast<unsigned>(bytes.size()));
  gzclose(out);
  return file;
}

const std::vector<std::uint8_t> kTwelve{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};

TEST(Idx, ReadsPlainFiles) {
  Folder folder;
  const IdxArray array = read_idx(folder.write("images", idx_bytes({3, 2, 2}, kTwelve)), 3);
  EXPECT_EQ(array.shape, (std::vector<std::uint32_t>{3, 2, 2}));
  EXPECT_EQ(array.bytes, kTwelve);
  EXPECT_EQ(array.items(), 3u);
  EXPECT_EQ(array.item_bytes(), 4u);
}

TEST(Idx, ReadsNoMoreItemsThanAreWanted) {
  const Folder folder;
  const auto file = folder.write("images", idx_bytes({1000, 2, 2}, kTwelve));  // it ends after three
  const IdxArray array = read_idx(file, 3, 2);
  EXPECT_EQ(array.items(), 1000u);
  EXPECT_EQ(array.bytes, std::vector<std::uint8_t>(kTwelve.begin(), kTwelve.begin() + 8));
  EXPECT_THAT(error_of([&] { read_idx(file, 3, 4); }), HasSubstr("ends after 12 of the 4000 bytes it claims"));
  const auto longer = folder.write("longer", idx_bytes({2, 2, 2}, kTwelve));
  EXPECT_THAT(error_of([&] { read_idx(longer, 3, 2); }), HasSubstr("longer than the 8 bytes"));
}

TEST(Idx, ReadsCompressedFiles) {
  Folder folder;
  EXPECT_EQ(read_idx(write_gzip(folder, "labels.gz", idx_bytes({12}, kTwelve)), 1).bytes, kTwelve);
}

TEST(Idx, NamesAFileThatIsNotThere) {
  EXPECT_THAT(error_of([] { read_idx("/nonexistent/labels", 1); }),
              AllOf(HasSubstr("/nonexistent/labels"), HasSubstr("--data")));
}

TEST(Idx, RefusesAnEmptyFile) {
  Folder folder;
  EXPECT_THAT(error_of([&] { read_idx(folder.write("empty", ""), 1); }),
              AllOf(HasSubstr("empty"), HasSubstr("header")));
}

TEST(Idx, RefusesAHeaderThatEndsEarly) {
  Folder folder;
  auto bytes = idx_bytes({3, 2, 2}, {});
  bytes.resize(bytes.size() - 1);
  EXPECT_THAT(error_of([&] { read_idx(folder.write("f", bytes), 3); }), HasSubstr("after 15 of 16 bytes"));
}

TEST(Idx, RefusesOtherMagicNumbers) {
  Folder folder;
  auto bytes = idx_bytes({12}, kTwelve);
  bytes[0] = 'P';
  EXPECT_THAT(error_of([&] { read_idx(folder.write("f", bytes), 1); }), HasSubstr("not an IDX file"));
}

TEST(Idx, RefusesElementsThatAreNotBytes) {
  Folder folder;
  auto bytes = idx_bytes({12}, kTwelve);
  bytes[2] = 0x0d;  // float
  EXPECT_THAT(error_of([&] { read_idx(folder.write("f", bytes), 1); }), HasSubstr("type 13, expected 8"));
}

TEST(Idx, RefusesLabelsWhereImagesAreExpected) {
  Folder folder;
  const auto file = folder.write("f", idx_bytes({12}, kTwelve));
  EXPECT_THAT(error_of([&] { read_idx(file, 3); }), HasSubstr("has 1 dimensions, expected 3 (images)"));
}

TEST(Idx, RefusesADimensionOfZero) {
  Folder folder;
  EXPECT_THAT(error_of([&] { read_idx(folder.write("f", idx_bytes({0}, {})), 1); }), HasSubstr("dimension 0 is zero"));
}

TEST(Idx, RefusesSizesWhoseProductOverflows) {
  Folder folder;
  const auto file = folder.write("f", idx_bytes({0x80000000u, 0x80000000u, 4}, {}));
  EXPECT_THAT(error_of([&] { read_idx(file, 3); }), HasSubstr("more than 1 GiB"));
}

TEST(Idx, RefusesTruncatedData) {
  Folder folder;
  const auto file = folder.write("f", idx_bytes({13}, kTwelve));
  EXPECT_THAT(error_of([&] { read_idx(file, 1); }), HasSubstr("ends after 12 of the 13 bytes it claims"));
}

TEST(Idx, AClaimThatIsNotKeptCostsLittleMemory) {
  Folder folder;
  const auto file = folder.write("f", idx_bytes({1u << 30}, kTwelve));
  const auto most_kib = [] {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_maxrss;
  };
  const long before_kib = most_kib();
  EXPECT_THAT(error_of([&] { read_idx(file, 1); }), HasSubstr("ends after 12 of the 1073741824 bytes it claims"));
  EXPECT_LT(most_kib() - before_kib, 256 << 10);
}

TEST(Idx, RefusesOneByteTooMany) {
  Folder folder;
  const auto file = folder.write("f", idx_bytes({11}, kTwelve));
  EXPECT_THAT(error_of([&] { read_idx(file, 1); }), HasSubstr("longer than the 11 bytes"));
}

TEST(Idx, RefusesTruncatedCompression) {
  Folder folder;
  std::vector<std::uint8_t> noise(100'000);
  for (std::size_t i = 0; i < noise.size(); ++i) noise[i] = static_cast<std::uint8_t>(i * i * 2654435761u >> 13);
  const auto file = write_gzip(folder, "f.gz", idx_bytes({100'000}, noise));
  std::filesystem::resize_file(file, std::filesystem::file_size(file) / 2);
  EXPECT_THAT(error_of([&] { read_idx(file, 1); }), AllOf(HasSubstr("f.gz"), HasSubstr("ends")));
}

TEST(Idx, RefusesDamagedCompression) {
  Folder folder;
  const auto file = write_gzip(folder, "f.gz", idx_bytes({12}, kTwelve));
  std::fstream damage(file, std::ios::in | std::ios::out | std::ios::binary);
  damage.seekp(-8, std::ios::end);  // the check sum
  damage.write("\x12\x34\x56\x78", 4);
  damage.close();
  EXPECT_THAT(error_of([&] { read_idx(file, 1); }), HasSubstr("cannot be decompressed"));
}

}  // namespace
}  // namespace param_sync
