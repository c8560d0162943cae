#include "data/npy.hpp"

#include <array>
#include <charconv>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>

namespace param_sync {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";

[[noreturn]] void refuse_array(const std::string& why) { throw std::invalid_argument(why); }

/// What follows a key in the header, which is a Python dictionary.
std::string_view after_key(std::string_view header, std::string_view key) {
  const std::size_t at = header.find("'" + std::string(key) + "':");
  if (at == std::string_view::npos) refuse_array("its header has no '" + std::string(key) + "'");
  header.remove_prefix(at + key.size() + 3);
  header.remove_prefix(std::min(header.find_first_not_of(' '), header.size()));
  return header;
}

/// Takes a number from the front of the text.
std::size_t take_size(std::string_view& text) {
  std::size_t number = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), number);
  if (read.ec != std::errc()) refuse_array("it has no shape of two dimensions");
  text.remove_prefix(static_cast<std::size_t>(read.ptr - text.data()));
  return number;
}

void take_text(std::string_view& text, std::string_view what) {
  if (!text.starts_with(what)) refuse_array("it has no shape of two dimensions");
  text.remove_prefix(what.size());
}

/// The numbers of a type of elements, as the header names it.
template <class Element>
double element(const char* from) {
  Element value{};
  std::memcpy(&value, from, sizeof value);
  return static_cast<double>(value);
}

struct ElementType {
  std::string_view name;
  std::size_t bytes;
  double (*read)(const char* from);
};

constexpr std::array kTypes{
    ElementType{"<f4", 4, element<float>},         ElementType{"<f8", 8, element<double>},
    ElementType{"|u1", 1, element<std::uint8_t>},  ElementType{"|i1", 1, element<std::int8_t>},
    ElementType{"<u2", 2, element<std::uint16_t>}, ElementType{"<i2", 2, element<std::int16_t>},
    ElementType{"<u4", 4, element<std::uint32_t>}, ElementType{"<i4", 4, element<std::int32_t>},
    ElementType{"<u8", 8, element<std::uint64_t>}, ElementType{"<i8", 8, element<std::int64_t>}};

const ElementType& type_of(std::string_view header) {
  const std::string_view after = after_key(header, "descr");
  for (const ElementType& type : kTypes) {
    if (after.starts_with("'" + std::string(type.name) + "'")) return type;
  }
  refuse_array("its elements are " + std::string(after.substr(0, after.find(','))) +
               ", and none of float32, float64 and integers in little-endian order");
}

}  // namespace

bool is_npy(std::string_view content) { return content.starts_with(kMagic); }

NpyArray read_npy(std::string_view content) {
  const auto byte = [&](std::size_t at) { return std::size_t{static_cast<std::uint8_t>(content[at])}; };
  if (!is_npy(content) || content.size() < 12) refuse_array("its header ends early");
  const bool is_first = byte(6) == 1;  // the header's length has 2 bytes there, and 4 in later versions
  if (byte(6) < 1 || byte(6) > 3)
    refuse_array("it is of version " + std::to_string(byte(6)) + " of the format, not 1 to 3");
  const std::size_t begin = is_first ? 10 : 12;
  const std::size_t length = byte(8) | byte(9) << 8 | (is_first ? 0 : byte(10) << 16 | byte(11) << 24);
  if (content.size() - begin < length) refuse_array("its header ends early");
  const std::string_view header = content.substr(begin, length);
  if (!after_key(header, "fortran_order").starts_with("False")) {
    refuse_array("it is in Fortran's order: write it with numpy.ascontiguousarray");
  }
  const ElementType& type = type_of(header);
  std::string_view shape = after_key(header, "shape");
  NpyArray array;
  take_text(shape, "(");
  array.rows = take_size(shape);
  take_text(shape, ", ");
  array.columns = take_size(shape);
  take_text(shape, ")");
  const std::string_view data = content.substr(begin + length);
  const bool fits = array.columns == 0 || array.rows <= data.size() / type.bytes / array.columns;
  if (!fits || array.rows * array.columns * type.bytes != data.size()) {
    refuse_array("it has " + std::to_string(data.size()) + " bytes of elements, and its header says " +
                 std::to_string(array.rows) + " x " + std::to_string(array.columns) + " of " +
                 std::to_string(type.bytes));
  }
  array.values.reserve(array.rows * array.columns);
  for (std::size_t i = 0; i < array.rows * array.columns; ++i) {
    array.values.push_back(type.read(data.data() + i * type.bytes));
  }
  return array;
}

}  // namespace param_sync
