#include "data/csv.hpp"
#include "data/dataset.hpp"
#include "data/table.hpp"

#include "tests/support/error_of.hpp"
#include "tests/support/folder.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <cmath>
#include <cstring>

namespace param_sync {
namespace {

using gpusock::test::error_of;
using gpusock::test::Folder;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// A NumPy array as numpy.save writes it, of version 1.
template <class Element>
std::string npy(const std::string& descr, const std::string& shape, const std::vector<Element>& elements,
                const std::string& order = "False") {
  std::string header = "{'descr': '" + descr + "', 'fortran_order': " + order + ", 'shape': (" + shape + "), }";
  header.resize(117, ' ');
  header += '\n';
  std::string all = "\x93NUMPY\x01";
  all += '\0';
  all += static_cast<char>(header.size());
  all += '\0';
  all += header;
  all.append(reinterpret_cast<const char*>(elements.data()), elements.size() * sizeof(Element));
  return all;
}

Table table_of(const std::string& content) {
  const Folder folder;
  return read_table(folder.write("table", content));
}

std::string error_of_table(const std::string& content) {
  return error_of([&] { table_of(content); });
}

TEST(Csv, HasFieldsAndRecords) {
  CsvReader reader("a, b ,\"c,\"\"d\"\"\n\"\r\n\n\r\n1,,\"2\" \n3");
  EXPECT_THAT(*reader.next(), ElementsAre("a", "b", "c,\"d\"\n"));
  EXPECT_EQ(reader.line(), 1u);
  EXPECT_THAT(*reader.next(), ElementsAre("1", "", "2"));
  EXPECT_EQ(reader.line(), 5u) << "a line break in quotes counts, too";
  EXPECT_THAT(*reader.next(), ElementsAre("3"));
  EXPECT_FALSE(reader.next());
}

TEST(Tables, AreReadFromCsv) {
  const Table table = table_of("length,width,kind\n1.5,-2e1,rose\n+3,0.5,aster\n\n7,8,rose\n");
  EXPECT_EQ(table.columns, 2u);
  EXPECT_THAT(table.values, ElementsAre(1.5f, -20.0f, 3.0f, 0.5f, 7.0f, 8.0f));
  EXPECT_THAT(table.classes, ElementsAre("aster", "rose"));
  EXPECT_THAT(table.labels, ElementsAre(1, 0, 1));
}

TEST(Tables, NumberClassesInTheirOrder) {
  const Table table = table_of("1,10\n2,9\n3,-1\n");
  EXPECT_THAT(table.classes, ElementsAre("-1", "9", "10"));
  EXPECT_THAT(table.labels, ElementsAre(2, 1, 0));
  EXPECT_EQ(table.rows(), 3u) << "the first line has numbers alone, so it is no header";
}

TEST(Tables, AreReadFromArraysOfAnyType) {
  const std::vector<double> values{1, 2, 0, 3, 4, 1};
  const auto expect = [&](const std::string& content) {
    const Table table = table_of(content);
    EXPECT_EQ(table.columns, 2u);
    EXPECT_THAT(table.values, ElementsAre(1.0f, 2.0f, 3.0f, 4.0f));
    EXPECT_THAT(table.labels, ElementsAre(0, 1));
  };
  expect(npy("<f8", "2, 3", values));
  expect(npy("<f4", "2, 3", std::vector<float>(values.begin(), values.end())));
  expect(npy("<i8", "2, 3", std::vector<std::int64_t>(values.begin(), values.end())));
  expect(npy("|u1", "2, 3", std::vector<std::uint8_t>(values.begin(), values.end())));
}

TEST(Tables, MayBeCompressed) {
  const Folder folder;
  const auto file = folder.path() / "table.csv.gz";
  const gzFile out = gzopen(file.c_str(), "wb");
  gzputs(out, "1,a\n2,b\n");
  gzclose(out);
  EXPECT_EQ(read_table(file).rows(), 2u);
}

TEST(Tables, SayWhatIsWrongAndWhere) {
  EXPECT_THAT(error_of_table(""), HasSubstr("no rows of numbers"));
  EXPECT_THAT(error_of_table("a,b\n"), HasSubstr("no rows of numbers"));
  EXPECT_THAT(error_of([] { load_dataset("/nonexistent/table.csv", 0); }),
              HasSubstr("cannot open /nonexistent/table.csv"));
  EXPECT_THAT(error_of_table("1,a\nx,b\n"), HasSubstr("line 2: 'x' in column 1 is no number"));
  EXPECT_THAT(error_of_table("1,a\n,b\n"), HasSubstr("line 2: '' in column 1 is no number"));
  EXPECT_THAT(error_of_table("x,1,a\n1,2,b\n"), HasSubstr("line 1: 'x' in column 1 is no number"));
  EXPECT_THAT(error_of_table("1,a\n2,\n"), HasSubstr("line 2: the class, in the last column, is empty"));
  EXPECT_THAT(error_of_table("1,1\n2,0.5\n"), HasSubstr("the last column: '0.5' is no whole number"));
  EXPECT_THAT(error_of_table("1,1\n2,1.0\n"), HasSubstr("1 and 1.0 are one number"));
  EXPECT_THAT(error_of_table("1;a\n2;b\n"), HasSubstr("divided by commas"));
  EXPECT_THAT(error_of_table("1,a\n2,3,b\n"), HasSubstr("line 2: 3 columns, and the rows before have 2"));
  EXPECT_THAT(error_of_table("1\n2\n"), HasSubstr("line 1: 1 columns"));
  EXPECT_THAT(error_of_table("1,a\nnan,b\n"), HasSubstr("line 2: a number that is not finite"));
  EXPECT_THAT(error_of_table("1,a\n1e39,b\n"), HasSubstr("line 2: a number that is not finite, or too large"));
  EXPECT_THAT(error_of_table("1,a\n1,a\n"), HasSubstr("1 different values, and not 2 to 256"));
  EXPECT_THAT(error_of_table("1,a\n1,\"b\n"), HasSubstr("line 2: a quote is not closed"));
  EXPECT_THAT(error_of_table("1,a\n1,\"b\"c\n"), HasSubstr("line 2: text follows a field in quotes"));
  std::string many;
  for (int i = 0; i < 300; ++i) many += "1," + std::to_string(i) + "\n";
  EXPECT_THAT(error_of_table(many), HasSubstr("300 different values"));
}

TEST(Tables, SayWhatIsWrongWithAnArray) {
  const std::vector<float> six(6);
  EXPECT_THAT(error_of_table(npy("<f4", "2, 4", six)),
              HasSubstr("24 bytes of elements, and its header says 2 x 4 of 4"));
  EXPECT_THAT(error_of_table(npy("<f4", "6,", six)), HasSubstr("no shape of two dimensions"));
  EXPECT_THAT(error_of_table(npy("<f4", "1, 2, 3", six)), HasSubstr("no shape of two dimensions"));
  EXPECT_THAT(error_of_table(npy("<f4", "2, 3", six, "True")), HasSubstr("Fortran's order"));
  EXPECT_THAT(error_of_table(npy(">f4", "2, 3", six)), HasSubstr("its elements are '>f4', and none of"));
  EXPECT_THAT(error_of_table(npy("<f4", "18446744073709551615, 18446744073709551615", six)), HasSubstr("24 bytes"));
  EXPECT_THAT(error_of_table(npy("<f4", "18446744073709551616, 1", six)), HasSubstr("no shape of two dimensions"));
  EXPECT_THAT(error_of_table(npy("<f4", "2, 3", std::vector<float>{1, 2, 0.5f, 1, 2, 1})),
              HasSubstr("row 0: the class, in the last column, is no whole number"));
  EXPECT_THAT(error_of_table("\x93NUMPY"), HasSubstr("header ends early"));
  EXPECT_THAT(error_of_table(npy("<f4", "2, 3", six).substr(0, 40)), HasSubstr("header ends early"));
}

TEST(Tables, AreDividedForTestingAndStandardized) {
  const Folder folder;
  std::string content;
  for (int i = 0; i < 50; ++i) content += std::to_string(i * i) + ",7," + std::to_string(i % 3) + "\n";
  const auto file = folder.write("table.csv", content);
  const Dataset data = load_dataset(file, 0);
  EXPECT_EQ(data.classes, 3u);
  EXPECT_EQ(data.train.count(), 40u);
  EXPECT_EQ(data.test.count(), 10u);
  double sum = 0, squares = 0;
  for (std::size_t row = 0; row < 40; ++row) {
    sum += data.train.values[2 * row];
    squares += data.train.values[2 * row] * data.train.values[2 * row];
    EXPECT_EQ(data.train.values[2 * row + 1], 0) << "a column that is the same in all rows";
  }
  EXPECT_NEAR(sum, 0, 1e-4);
  EXPECT_NEAR(squares / 40, 1, 1e-4);
  EXPECT_EQ(data.fingerprint(), load_dataset(file, 0).fingerprint());
  EXPECT_EQ(load_dataset(file, 7).train.values.size(), 14u);
  const DatasetShape shape = read_dataset_shape(file, 7);
  EXPECT_EQ(shape.samples, 7u);
  EXPECT_EQ(shape.sample.pixels(), 2u);
  folder.write("other.csv", "8" + content);
  EXPECT_NE(data.fingerprint(), load_dataset(folder.path() / "other.csv", 0).fingerprint());
  EXPECT_THAT(error_of([&] { load_dataset(folder.write("short.csv", "1,a\n2,b\n"), 0); }), HasSubstr("at least 5"));
}

}  // namespace
}  // namespace param_sync
