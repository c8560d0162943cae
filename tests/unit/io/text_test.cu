// Text, numbers in it, and names of errors.
#include <gpusock/text.cuh>

#include <gtest/gtest.h>

#include <limits>
#include <string>

namespace gpusock {
namespace {

Text of(const std::string& text) { return {text.data(), text.size()}; }
std::string string_of(Text text) { return {text.data, text.bytes}; }

template <class Number>
std::string written(Number number) {
  return string_of(Decimal(number).text());
}

TEST(Decimals, AreWrittenInDigits) {
  EXPECT_EQ(written(0), "0");
  EXPECT_EQ(written(-7), "-7");
  EXPECT_EQ(written(std::uint8_t{255}), "255");
  EXPECT_EQ(written(std::numeric_limits<std::int64_t>::min()), "-9223372036854775808");
  EXPECT_EQ(written(std::numeric_limits<std::uint64_t>::max()), "18446744073709551615");
}

TEST(Fields, AreANameAndAValue) {
  Field field;
  for (const char* none : {"", "name", ": value", ":"}) EXPECT_FALSE(parse_field(of(none), field)) << none;
  ASSERT_TRUE(parse_field("Content-Length: \t12 ", field));
  EXPECT_TRUE(field.is("content-length"));
  EXPECT_FALSE(field.is("content"));
  EXPECT_EQ(string_of(field.value), "12");
  ASSERT_TRUE(parse_field("a:b:c", field));
  EXPECT_EQ(string_of(field.value), "b:c");
  ASSERT_TRUE(parse_field("a:", field));
  EXPECT_EQ(field.value.bytes, 0u);
}

TEST(Numbers, AreReadOfDigitsAlone) {
  std::uint64_t number = 0;
  for (const char* none : {"", "-", "-1", "+1", " 1", "1 ", "1x", "0x1"})
    EXPECT_FALSE(parse_number(of(none), number)) << none;
  ASSERT_TRUE(parse_number(of("18446744073709551615"), number));
  EXPECT_EQ(number, std::numeric_limits<std::uint64_t>::max());
  ASSERT_TRUE(parse_number(of("18446744073709551616"), number));
  EXPECT_EQ(number, std::numeric_limits<std::uint64_t>::max());
}

TEST(Numbers, HaveAnotherBaseWhereItIsNamed) {
  std::uint64_t number = 0;
  for (const char* none : {"", "g", "0x1", "-1", "1 "}) EXPECT_FALSE(parse_number(of(none), number, 16)) << none;
  ASSERT_TRUE(parse_number(of("1aF"), number, 16));
  EXPECT_EQ(number, 0x1afu);
  ASSERT_TRUE(parse_number(of("ffffffffffffffff"), number, 16));
  EXPECT_EQ(number, std::numeric_limits<std::uint64_t>::max());
  ASSERT_TRUE(parse_number(of("10000000000000000"), number, 16));
  EXPECT_EQ(number, std::numeric_limits<std::uint64_t>::max());
  EXPECT_FALSE(parse_number(of("2"), number, 2));
  ASSERT_TRUE(parse_number(of("Zz"), number, 36));
  EXPECT_EQ(number, 35u * 37u);
}

TEST(Numbers, HaveASignWhereTheyMay) {
  std::int64_t number = 0;
  for (const char* none : {"", "-", "--1", "+1", "1-"}) EXPECT_FALSE(parse_number(of(none), number)) << none;
  ASSERT_TRUE(parse_number(of("-42"), number));
  EXPECT_EQ(number, -42);
  ASSERT_TRUE(parse_number(of("-9223372036854775808"), number));
  EXPECT_EQ(number, std::numeric_limits<std::int64_t>::min());
  ASSERT_TRUE(parse_number(of("-9223372036854775809"), number));
  EXPECT_EQ(number, std::numeric_limits<std::int64_t>::min());
  ASSERT_TRUE(parse_number(of("99999999999999999999"), number));
  EXPECT_EQ(number, std::numeric_limits<std::int64_t>::max());
}

TEST(Words, AreTakenOneByOne) {
  const std::string line = "  SET  key the value ";
  Text rest = of(line);
  EXPECT_EQ(string_of(take_word(rest)), "SET");
  EXPECT_EQ(string_of(take_word(rest)), "key");
  EXPECT_EQ(string_of(rest), "the value ");
  EXPECT_EQ(string_of(take_word(rest)), "the");
  EXPECT_EQ(string_of(take_word(rest)), "value");
  EXPECT_EQ(take_word(rest).bytes, 0u);
  EXPECT_EQ(string_of(trimmed(of(line))), "SET  key the value");
}

template <class Value>
concept IsAppended = requires(TextBuffer buffer, Value value) {
  buffer << value;
};
static_assert(IsAppended<char> && IsAppended<unsigned short> && IsAppended<Text>);
static_assert(!IsAppended<bool> && !IsAppended<double> && !IsAppended<float>, "they would become characters");

TEST(TextBuffer, CutsOffWhatHasNoRoom) {
  char memory[8];
  TextBuffer buffer(memory, sizeof memory);
  buffer << "ab" << ' ' << -12;
  EXPECT_EQ(string_of(buffer.text()), "ab -12");
  EXPECT_FALSE(buffer.full());
  buffer << "xyz";
  EXPECT_EQ(string_of(buffer.text()), "ab -12xy");
  EXPECT_TRUE(buffer.full());
}

TEST(ErrorNames, AreThoseOfErrno) {
  EXPECT_EQ(string_of(error_name(-ECONNRESET)), "ECONNRESET");
  EXPECT_EQ(string_of(error_name(ETIMEDOUT)), "ETIMEDOUT");
  EXPECT_EQ(string_of(error_name(-EALREADY)), "EALREADY");
  EXPECT_EQ(string_of(error_name(-ENOENT)), "ENOENT");
  EXPECT_EQ(string_of(error_name(0)), "ok");
  EXPECT_EQ(string_of(error_name(-100'000)), "error");
}

}  // namespace
}  // namespace gpusock
