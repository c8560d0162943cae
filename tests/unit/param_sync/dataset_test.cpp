#include "data/dataset.hpp"

#include "idx_bytes.hpp"

#include "tests/support/error_of.hpp"
#include "tests/support/folder.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <cstdlib>
#include <set>
#include <stdexcept>

namespace param_sync {
namespace {

using gpusock::test::error_of;
using gpusock::test::Folder;
using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::idx_bytes;
using ::testing::Not;

/// Five training and two test images of 2 x 1 pixels.
void write_dataset(const Folder& folder) {
  folder.write("train-images-idx3-ubyte", idx_bytes({5, 2, 1}, {0, 1, 10, 11, 20, 21, 30, 31, 40, 41}));
  folder.write("train-labels-idx1-ubyte", idx_bytes({5}, {0, 1, 2, 1, 0}));
  folder.write("t10k-images-idx3-ubyte", idx_bytes({2, 2, 1}, {5, 6, 7, 8}));
  folder.write("t10k-labels-idx1-ubyte", idx_bytes({2}, {3, 0}));
}

TEST(Dataset, LoadsTheFourFiles) {
  Folder folder;
  write_dataset(folder);
  const Dataset data = load_dataset(folder.path(), 0);
  EXPECT_EQ(data.train.count(), 5u);
  EXPECT_EQ(data.train.pixels(), 2u);
  EXPECT_EQ(data.test.labels, (std::vector<std::uint8_t>{3, 0}));
  EXPECT_EQ(data.classes, 4u) << "the largest label is a test sample's";
}

TEST(Dataset, KeepsTheFirstSamplesOfALimit) {
  Folder folder;
  write_dataset(folder);
  const Dataset data = load_dataset(folder.path(), 3);
  EXPECT_EQ(data.train.labels, (std::vector<std::uint8_t>{0, 1, 2}));
  EXPECT_EQ(data.train.images.size(), 6u);
  EXPECT_EQ(data.test.count(), 2u);
  EXPECT_NE(data.fingerprint(), load_dataset(folder.path(), 0).fingerprint());
}

TEST(Dataset, TellsImagesApartNotOnlyLabels) {
  Folder folder;
  write_dataset(folder);
  const std::uint64_t before = load_dataset(folder.path(), 0).fingerprint();
  EXPECT_EQ(before, load_dataset(folder.path(), 0).fingerprint());
  folder.write("train-images-idx3-ubyte", idx_bytes({5, 2, 1}, {0, 1, 10, 11, 20, 21, 30, 31, 40, 42}));
  const std::uint64_t other_training_image = load_dataset(folder.path(), 0).fingerprint();
  folder.write("t10k-images-idx3-ubyte", idx_bytes({2, 2, 1}, {5, 6, 7, 9}));
  EXPECT_NE(before, other_training_image);
  EXPECT_NE(other_training_image, load_dataset(folder.path(), 0).fingerprint());
}

TEST(Dataset, SaysWhichFileIsMissing) {
  Folder folder;
  write_dataset(folder);
  std::filesystem::remove(folder.path() / "t10k-labels-idx1-ubyte");
  EXPECT_THAT(error_of([&] { load_dataset(folder.path(), 0); }),
              AllOf(HasSubstr("t10k-labels-idx1-ubyte"), HasSubstr(folder.path().string()), HasSubstr("--data")));
}

/// Root may search every folder, so a test that root runs does this part as another user.
class AsOrdinaryUser {
 public:
  AsOrdinaryUser() {
    if (was_ == 0 && seteuid(kNobody) != 0) throw std::runtime_error("seteuid");
  }
  ~AsOrdinaryUser() {
    if (was_ == 0 && seteuid(0) != 0) std::abort();
  }

 private:
  static constexpr uid_t kNobody = 65534;
  uid_t was_ = geteuid();
};

TEST(Dataset, SaysThatAFolderCannotBeReadAndNotThatFilesAreMissing) {
  Folder folder;
  write_dataset(folder);
  std::filesystem::permissions(folder.path(), std::filesystem::perms::none);
  {
    const AsOrdinaryUser user;
    EXPECT_THAT(error_of([&] { load_dataset(folder.path(), 0); }),
                AllOf(HasSubstr("Permission denied"), HasSubstr(folder.path().string()), Not(HasSubstr("install"))));
  }
  std::filesystem::permissions(folder.path(), std::filesystem::perms::owner_all);
  std::filesystem::create_symlink("loop", folder.path() / "loop");
  EXPECT_THAT(error_of([&] { load_dataset(folder.path() / "loop", 0); }),
              AllOf(HasSubstr("symbolic links"), HasSubstr("loop"), Not(HasSubstr("install"))));
}

TEST(Dataset, RefusesImagesWithoutLabels) {
  Folder folder;
  write_dataset(folder);
  folder.write("train-labels-idx1-ubyte", idx_bytes({4}, {0, 1, 2, 1}));
  EXPECT_THAT(error_of([&] { load_dataset(folder.path(), 0); }), AllOf(HasSubstr("5 images"), HasSubstr("4 labels")));
}

TEST(Dataset, RefusesTestImagesOfAnotherSize) {
  Folder folder;
  write_dataset(folder);
  folder.write("t10k-images-idx3-ubyte", idx_bytes({2, 1, 1}, {5, 6}));
  EXPECT_THAT(error_of([&] { load_dataset(folder.path(), 0); }), HasSubstr("have 2 pixels, test images 1"));
}

TEST(VisitingOrder, SharesEachStepAmongTheNodesWithoutOverlap) {
  std::set<std::uint32_t> seen;
  for (int rank = 0; rank < 3; ++rank) {
    const auto order = visiting_order(100, 7, 0, rank, 3, 8);
    EXPECT_EQ(order.size(), 100 / 24 * 8u);
    for (const std::uint32_t sample : order) {
      EXPECT_LT(sample, 100u);
      EXPECT_TRUE(seen.insert(sample).second) << sample << " is visited twice";
    }
  }
  EXPECT_EQ(seen.size(), 96u);
}

TEST(VisitingOrder, DiffersByEpochAndSeedOnly) {
  const auto order = visiting_order(64, 1, 0, 0, 2, 8);
  EXPECT_EQ(order, visiting_order(64, 1, 0, 0, 2, 8));
  EXPECT_NE(order, visiting_order(64, 1, 1, 0, 2, 8));
  EXPECT_NE(order, visiting_order(64, 2, 0, 0, 2, 8));
}

}  // namespace
}  // namespace param_sync
