#pragma once
// Samples with few features, and the files of LIBSVM that hold them. A line is a sample, "label index:value ...": the
// label is 1 or -1 (or 1 or 0), and the indices ascend from 1 on. "#" begins a comment. Needs only the standard
// library.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <istream>
#include <limits>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace libsvm {

/// Lists of entries, one after the other: of each sample its features, or of each feature its samples.
struct Lists {
  std::vector<std::uint32_t> begin{0};  ///< of each list, and after the last one
  std::vector<std::uint32_t> entries;
  std::vector<float> values;
};

struct Samples {
  std::vector<float> labels;   ///< 1 or -1
  Lists lists;                 ///< of each sample its features, which ascend from 0 on
  std::uint32_t features = 0;  ///< one more than the last one
};

inline constexpr std::uint32_t kFeaturesMax = 1 << 24;

/// Reads lines, one after the other. Its errors name the line and the reason.
class Reader {
 public:
  /// `name`: what errors call the lines.
  explicit Reader(std::string name) : name_(std::move(name)) {}

  void take(std::string_view line) {
    ++line_;
    rest_ = line.substr(0, line.find('#'));
    std::string_view word = next_word();
    if (word.empty()) return;
    samples_.labels.push_back(label_of(word));
    std::uint32_t before = 0;
    while (!(word = next_word()).empty()) before = take_pair(word, before);
    samples_.lists.begin.push_back(static_cast<std::uint32_t>(samples_.lists.entries.size()));
  }

  /// Returns the samples of all lines. At least one has a feature.
  Samples end() {
    if (samples_.features == 0) {
      throw std::runtime_error(name_ + (samples_.labels.empty() ? " has no samples" : " has no features"));
    }
    return std::move(samples_);
  }

 private:
  [[noreturn]] void refuse(std::string_view word, const std::string& reason) const {
    std::string shown(word.substr(0, 40));
    std::replace_if(
        shown.begin(), shown.end(), [](char one) { return one < ' ' || one > '~'; }, '?');
    throw std::runtime_error(name_ + ", line " + std::to_string(line_) + ": '" + shown +
                             (shown.size() < word.size() ? "...' " : "' ") + reason);
  }

  /// Cuts the next word off. It is empty at the end of the line.
  std::string_view next_word() {
    constexpr std::string_view kSpaces = " \t\r";
    rest_.remove_prefix(std::min(rest_.find_first_not_of(kSpaces), rest_.size()));
    const std::string_view word = rest_.substr(0, rest_.find_first_of(kSpaces));
    rest_.remove_prefix(word.size());
    return word;
  }

  /// A whole text as a number. "+1" is one, "+-1" is none.
  template <class Number>
  static std::errc parse(std::string_view text, Number& number) {
    if (text.size() > 1 && text[0] == '+' && text[1] != '-') text.remove_prefix(1);
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    return end == text.data() + text.size() ? error : std::errc::invalid_argument;
  }

  float label_of(std::string_view word) {
    double label = 0;
    if (parse(word, label) != std::errc() || (label != 1 && label != 0 && label != -1)) {
      refuse(word, "is no label: 1 or -1, or 1 or 0 is needed");
    }
    if (label == 1) return 1;
    if (negative_ != 1 && label != negative_) refuse(word, "is a third label: the file has both 0 and -1");
    negative_ = label;
    return -1;
  }

  /// Adds a feature, and returns its index.
  std::uint32_t take_pair(std::string_view word, std::uint32_t before) {
    const std::size_t colon = word.find(':');
    if (colon == std::string_view::npos) refuse(word, "has no colon: index:value is needed");
    std::uint64_t index = 0;
    const std::errc fault = parse(word.substr(0, colon), index);
    if (fault == std::errc::invalid_argument) refuse(word, "does not begin with an index, a whole number from 1 on");
    if (fault != std::errc() || index > kFeaturesMax) {
      refuse(word, "has an index above " + std::to_string(kFeaturesMax));
    }
    if (index == 0) refuse(word, "has index 0: indices begin with 1");
    if (index <= before) refuse(word, "comes after index " + std::to_string(before) + ": indices must ascend");
    const auto feature = static_cast<std::uint32_t>(index - 1);
    if (samples_.lists.entries.size() == std::numeric_limits<std::uint32_t>::max()) {
      refuse(word, "is more than the 2^32 - 1 values that a file may have");
    }
    samples_.lists.values.push_back(value_of(word, word.substr(colon + 1)));
    samples_.lists.entries.push_back(feature);
    samples_.features = std::max(samples_.features, feature + 1);
    return feature + 1;
  }

  float value_of(std::string_view word, std::string_view text) const {
    float value = 0;
    const std::errc fault = parse(text, value);
    if (fault == std::errc::result_out_of_range) {
      refuse(word, "has a value that is no float: it is too large or too small");
    }
    if (fault != std::errc() || !std::isfinite(value)) refuse(word, "does not end with a value, a finite number");
    return value;
  }

  std::string name_;
  std::string_view rest_;  ///< of the line
  std::size_t line_ = 0;
  double negative_ = 1;  ///< the label that is not 1, as soon as one was read
  Samples samples_;
};

/// Reads a file. Throws std::runtime_error, which says which line is wrong, and why.
inline Samples read(const std::string& file) {
  std::ifstream in(file);
  if (!in) throw std::runtime_error("cannot open " + file + ": name a file that this user may read");
  Reader reader(file);
  for (std::string line; std::getline(in, line);) reader.take(line);
  if (in.bad()) throw std::runtime_error("cannot read " + file);
  return reader.end();
}

/// The lines of a file that is read as the same samples, bit for bit.
inline std::string text_of(const Samples& samples) {
  std::string text;
  for (std::size_t i = 0; i < samples.labels.size(); ++i) {
    text += samples.labels[i] > 0 ? "1" : "-1";
    for (std::uint32_t k = samples.lists.begin[i]; k < samples.lists.begin[i + 1]; ++k) {
      char pair[40];
      std::snprintf(pair, sizeof pair, " %u:%.9g", samples.lists.entries[k] + 1, samples.lists.values[k]);
      text += pair;
    }
    text += '\n';
  }
  return text;
}

}  // namespace libsvm
