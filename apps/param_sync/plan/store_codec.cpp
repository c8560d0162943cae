#include "plan/store_codec.hpp"

#include "gpusock/error.hpp"

#include <cerrno>
#include <charconv>
#include <string>

namespace param_sync {
namespace {

/// Reads SHARE or RATE/s. Returns false if the text is something else.
bool read_amount(std::string_view text, StoreCodec& codec) {
  constexpr double kShareMax = 0.5;  // a float that is sent with its number takes the bytes of two
  constexpr double kRateMin = 1, kRateMax = 1e15;
  double number = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), number);
  if (read.ec != std::errc()) return false;
  text.remove_prefix(static_cast<std::size_t>(read.ptr - text.data()));
  if (text.empty()) {
    codec.share = number;
    return number > 0 && number < kShareMax;
  }
  constexpr std::string_view kUnits = "KMG";
  const std::size_t unit = kUnits.find(text.front());
  if (unit != std::string_view::npos) {
    for (std::size_t i = 0; i <= unit; ++i) number *= 1024;
    text.remove_prefix(1);
  }
  codec.bytes_per_s = number;
  return text == "/s" && number >= kRateMin && number <= kRateMax;
}

}  // namespace

StoreCodec store_codec_of(std::string_view text) {
  StoreCodec codec;
  if (text.empty()) return codec;
  const std::size_t comma = text.find(',');
  const std::string_view push = text.substr(0, comma);
  try {
    if (comma != std::string_view::npos) codec.pull = wire_format_of(text.substr(comma + 1));
    for (const std::string_view name : {"top:", "random:"}) {
      if (!push.starts_with(name) || !read_amount(push.substr(name.size()), codec)) continue;
      codec.takes_random = name == "random:";
      return codec;
    }
    codec.push = wire_format_of(push);
    return codec;
  } catch (const gpusock::Error&) {
    throw gpusock::Error::with_cause(
        EINVAL, "'" + std::string(text) +
                    "' is neither PUSH nor PUSH,PULL, of fp32, bf16, fp16 and int8; PUSH may be top:SHARE, too (the "
                    "largest floats; the others are kept for later pushes), with a share of less than 0.5, top:RATE/s "
                    "(as many as so many bytes a second allow, from 1/s on, such as 500K/s or 2M/s, powers of 1024), "
                    "or random: instead of top:");
  }
}

}  // namespace param_sync
