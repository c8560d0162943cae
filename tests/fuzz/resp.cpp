// examples/redis_client's reading of replies: what a line says lies in that line, and has a size that can be.
#include "examples/redis_client/resp.cuh"
#include "tests/fuzz/target.hpp"

#include <memory>

namespace gpusock::fuzz::of_resp {
namespace {

void check(std::string_view line) {
  using redis::Element;
  const auto exact = std::make_unique<char[]>(line.size());  // so that reading on is noticed
  std::copy(line.begin(), line.end(), exact.get());
  const redis::Head head = redis::parse_head({exact.get(), line.size()});
  if (head.element == Element::broken) return;
  FUZZ_CHECK(!line.empty() && head.text.data == exact.get() + 1 && head.text.bytes == line.size() - 1);
  FUZZ_CHECK(head.number <= redis::kNumberMax && head.number >= -redis::kNumberMax);
  const bool followed = head.element == Element::bulk || head.element == Element::array;
  FUZZ_CHECK(!followed || head.number >= 0);
  const bool numeric = followed || head.element == Element::integer || head.element == Element::nil;
  FUZZ_CHECK(!numeric || std::to_string(head.number).size() <= line.size() - 1);
}

}  // namespace

FUZZ_TARGET(resp) {
  for (std::string_view text = input.rest();;) {
    const std::size_t end = text.find('\r');
    check(text.substr(0, end));
    if (end == std::string_view::npos) break;
    text.remove_prefix(end + 1);
  }
}

}  // namespace gpusock::fuzz::of_resp
