// examples/redis_client's reading of replies: an element lies in what was read, and more bytes change nothing of it.
#include "examples/redis_client/resp.cuh"
#include "tests/fuzz/target.hpp"

#include <memory>

namespace gpusock::fuzz::of_resp {
namespace {

void check(const redis::Parsed& parsed, const char* data, std::size_t bytes) {
  using redis::Element;
  if (parsed.element == Element::incomplete || parsed.element == Element::broken) return;
  FUZZ_CHECK(parsed.bytes >= 3 && parsed.bytes <= bytes);
  FUZZ_CHECK(data[parsed.bytes - 1] == '\n' && data[parsed.bytes - 2] == '\r');
  const bool has_text = parsed.element == Element::simple || parsed.element == Element::error ||
                        parsed.element == Element::bulk;
  FUZZ_CHECK(!has_text || (parsed.text >= data && parsed.text + parsed.text_bytes + 2 == data + parsed.bytes));
  FUZZ_CHECK(parsed.element != Element::array || parsed.number >= 0);
}

}  // namespace

FUZZ_TARGET(resp) {
  const std::string_view text = input.rest();
  for (std::size_t bytes = 0; bytes <= std::min<std::size_t>(text.size(), 64); ++bytes) {  // as it may arrive
    const auto part = std::make_unique<char[]>(bytes);
    std::copy_n(text.begin(), bytes, part.get());
    const redis::Parsed parsed = redis::parse_element(part.get(), bytes);
    check(parsed, part.get(), bytes);
    const redis::Parsed all = redis::parse_element(text.data(), text.size());
    const bool decided = parsed.element != redis::Element::incomplete;
    FUZZ_CHECK(!decided || (all.element == parsed.element && all.bytes == parsed.bytes && all.number == parsed.number));
  }
  std::size_t done = 0;
  while (done < text.size()) {  // all of a pipeline's
    const redis::Parsed parsed = redis::parse_element(text.data() + done, text.size() - done);
    check(parsed, text.data() + done, text.size() - done);
    if (parsed.element == redis::Element::incomplete || parsed.element == redis::Element::broken) break;
    done += parsed.bytes;
  }
}

}  // namespace gpusock::fuzz::of_resp
