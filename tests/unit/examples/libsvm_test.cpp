// Which samples examples/libsvm.hpp reads from the lines of a file, and what it says of lines that it does not take.
#include "examples/sparse_samples.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace libsvm {
namespace {

Samples samples_of(const std::string& text) {
  Reader reader("FILE");
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) reader.take(line);
  return reader.end();
}

std::string error_of(const std::string& text) {
  try {
    samples_of(text);
    return "";
  } catch (const std::runtime_error& error) {
    return error.what();
  }
}

void expect_same(const Samples& one, const Samples& other) {
  EXPECT_EQ(one.labels, other.labels);
  EXPECT_EQ(one.lists.begin, other.lists.begin);
  EXPECT_EQ(one.lists.entries, other.lists.entries);
  EXPECT_EQ(one.lists.values, other.lists.values);
  EXPECT_EQ(one.features, other.features);
}

TEST(Libsvm, ReadsLabelsIndicesAndValues) {
  const Samples samples = samples_of("+1 1:0.5 3:-2e-1\n-1 2:+7\n");
  EXPECT_EQ(samples.labels, (std::vector<float>{1, -1}));
  EXPECT_EQ(samples.lists.begin, (std::vector<std::uint32_t>{0, 2, 3}));
  EXPECT_EQ(samples.lists.entries, (std::vector<std::uint32_t>{0, 2, 1}));
  EXPECT_EQ(samples.lists.values, (std::vector<float>{0.5f, -0.2f, 7}));
  EXPECT_EQ(samples.features, 3u);
}

TEST(Libsvm, LabelsMayBeOneAndZero) { EXPECT_EQ(samples_of("0 1:1\n1.0 1:1\n").labels, (std::vector<float>{-1, 1})); }

TEST(Libsvm, TakesCommentsEmptyLinesSpacesAndLinesOfWindows) {
  expect_same(samples_of("# a file\n\n 1\t1:2   4:3 # why 5:6\r\n   \r\n-1 1:4\r\n"), samples_of("1 1:2 4:3\n-1 1:4"));
}

TEST(Libsvm, ASampleMayHaveNoFeatures) {
  const Samples samples = samples_of("1\n-1 2:1\n1\n");
  EXPECT_EQ(samples.labels.size(), 3u);
  EXPECT_EQ(samples.lists.begin, (std::vector<std::uint32_t>{0, 0, 1, 1}));
}

TEST(Libsvm, TakesNumbersOfAnyLengthThatAreFloats) {
  const std::string zeros(100'000, '0');
  EXPECT_EQ(samples_of("1 1:0." + zeros + "\n1 " + zeros + "2:1." + zeros + "\n").lists.values,
            (std::vector<float>{0, 1}));
  EXPECT_EQ(samples_of("1 " + std::to_string(kFeaturesMax) + ":3.4028235e38\n").features, kFeaturesMax);
}

TEST(Libsvm, NamesTheLineAndTheReason) {
  struct Case {
    std::string line, reason;
  };
  const std::string digits(1'000, '9');
  for (const Case& one : std::vector<Case>{
           {"1 5", "'5' has no colon: index:value is needed"},
           {"1 1:1 0x", "'0x' has no colon: index:value is needed"},
           {"1 0:1", "'0:1' has index 0: indices begin with 1"},
           {"1 2:1 1:1", "'1:1' comes after index 2: indices must ascend"},
           {"1 2:1 2:1", "'2:1' comes after index 2: indices must ascend"},
           {"1 -1:1", "'-1:1' does not begin with an index, a whole number from 1 on"},
           {"1 1.5:1", "'1.5:1' does not begin with an index, a whole number from 1 on"},
           {"1 :1", "':1' does not begin with an index, a whole number from 1 on"},
           {"1 qid:1", "'qid:1' does not begin with an index, a whole number from 1 on"},
           {"1 16777217:1", "'16777217:1' has an index above 16777216"},
           {"1 4294967297:1", "'4294967297:1' has an index above 16777216"},
           {"1 " + digits + ":1", "'" + digits.substr(0, 40) + "...' has an index above 16777216"},
           {"1 1:nan", "'1:nan' does not end with a value, a finite number"},
           {"1 1:inf", "'1:inf' does not end with a value, a finite number"},
           {"1 1:", "'1:' does not end with a value, a finite number"},
           {"1 1:2:3", "'1:2:3' does not end with a value, a finite number"},
           {"1 1:+-2", "'1:+-2' does not end with a value, a finite number"},
           {"1 1:++2", "'1:++2' does not end with a value, a finite number"},
           {"1 1:0x10", "'1:0x10' does not end with a value, a finite number"},
           {"1 1:1,5", "'1:1,5' does not end with a value, a finite number"},
           {"1 1:1e39", "'1:1e39' has a value that is no float: it is too large or too small"},
           {"1 1:1e-9999", "'1:1e-9999' has a value that is no float: it is too large or too small"},
           {"1 1:" + digits,
            "'1:" + digits.substr(0, 38) + "...' has a value that is no float: it is too large or too small"},
           {"2 1:1", "'2' is no label: 1 or -1, or 1 or 0 is needed"},
           {"nan 1:1", "'nan' is no label: 1 or -1, or 1 or 0 is needed"},
           {"yes 1:1", "'yes' is no label: 1 or -1, or 1 or 0 is needed"},
           {"1:1 2:1", "'1:1' is no label: 1 or -1, or 1 or 0 is needed"},
           {"1e999 1:1", "'1e999' is no label: 1 or -1, or 1 or 0 is needed"},
           {std::string("1 1:1\0", 6), "'1:1?' does not end with a value, a finite number"},
       }) {
    EXPECT_EQ(error_of("1 1:1\n# comment\n" + one.line + "\n1 1:1\n"), "FILE, line 3: " + one.reason);
  }
}

TEST(Libsvm, TakesTwoLabelsAlone) {
  EXPECT_EQ(error_of("1 1:1\n-1 1:1\n1 1:1\n0 1:1\n"),
            "FILE, line 4: '0' is a third label: the file has both 0 and -1");
  EXPECT_EQ(error_of("0 1:1\n-1 1:1\n"), "FILE, line 2: '-1' is a third label: the file has both 0 and -1");
}

TEST(Libsvm, RefusesFilesWithoutSamplesOrFeatures) {
  EXPECT_EQ(error_of(""), "FILE has no samples");
  EXPECT_EQ(error_of("\n# nothing\n"), "FILE has no samples");
  EXPECT_EQ(error_of("1\n-1\n"), "FILE has no features");
}

TEST(Libsvm, RefusesFilesThatAreNotThereOrNoFiles) {
  const std::string folder = std::filesystem::temp_directory_path();
  EXPECT_THROW(read(folder + "/no_such_file.svm"), std::runtime_error);
  EXPECT_THROW(read(folder), std::runtime_error);
}

TEST(Libsvm, ReadsWhatItWritesBitForBit) {
  const Samples made = sparse_samples::make({.samples = 500, .features = 100, .seed = 3});
  EXPECT_EQ(made.labels.size(), 500u);
  expect_same(samples_of(text_of(made)), made);
}

TEST(SparseSamples, PartsOfRanksAreAllSamples) {
  const Samples all = sparse_samples::make({.samples = 50, .features = 20, .seed = 1});
  std::string text;
  const std::vector<Samples> parts{sparse_samples::part_of(all, 0, 3), sparse_samples::part_of(all, 1, 3),
                                   sparse_samples::part_of(all, 2, 3)};
  for (std::size_t i = 0; i < 50; ++i) text += text_of(sparse_samples::part_of(parts[i % 3], i / 3, 50));
  EXPECT_EQ(text, text_of(all));
}

TEST(SparseSamples, ByFeatureHasTheSameNumbers) {
  const Lists lists = sparse_samples::by_feature(samples_of("1 1:5 3:6\n1 3:7\n").lists, 4);
  EXPECT_EQ(lists.begin, (std::vector<std::uint32_t>{0, 1, 1, 3, 3}));
  EXPECT_EQ(lists.entries, (std::vector<std::uint32_t>{0, 0, 1}));
  EXPECT_EQ(lists.values, (std::vector<float>{5, 6, 7}));
}

}  // namespace
}  // namespace libsvm
