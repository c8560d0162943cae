#include "plan/store_codec.hpp"

#include "gpusock/error.hpp"

#include <cerrno>
#include <charconv>
#include <optional>
#include <string>

namespace param_sync {
namespace {

/// Reads "NAME:SHARE". Returns nothing if the text is something else.
std::optional<double> share_after(std::string_view name, std::string_view text) {
  constexpr double kShareMax = 0.5;  // a float that is sent with its number takes the bytes of two
  if (!text.starts_with(name)) return std::nullopt;
  double share = 0;
  const char* const end = text.data() + text.size();
  const auto read = std::from_chars(text.data() + name.size(), end, share);
  const bool is_share = read.ec == std::errc() && read.ptr == end && share > 0 && share < kShareMax;
  return is_share ? std::optional(share) : std::nullopt;
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
      if (const auto share = share_after(name, push)) {
        codec.share = *share;
        codec.takes_random = name == "random:";
        return codec;
      }
    }
    codec.push = wire_format_of(push);
    return codec;
  } catch (const gpusock::Error&) {
    throw gpusock::Error::with_cause(
        EINVAL, "'" + std::string(text) +
                    "' is neither PUSH nor PUSH,PULL, of fp32, bf16, fp16 and int8; PUSH may be top:SHARE, too (the "
                    "largest floats; the others are kept for later pushes), or random:SHARE, with a share of less than "
                    "0.5");
  }
}

}  // namespace param_sync
