// examples/http_server's reading of requests: a status and nothing else, and nothing read but the bytes that have come.
#include "examples/http_server/body.cuh"
#include "examples/http_server/routes.cuh"
#include "tests/fuzz/target.hpp"

#include <memory>

namespace gpusock::fuzz::of_http {
namespace {

/// A piece of its own, so that reading beyond it is noticed.
class Exact {
 public:
  explicit Exact(std::string_view bytes) : bytes_(std::make_unique<char[]>(bytes.size())), size_(bytes.size()) {
    std::copy(bytes.begin(), bytes.end(), bytes_.get());
  }
  http::Text text() const { return {bytes_.get(), size_}; }
  bool has(const http::Text& part) const {
    return part.bytes == 0 || (part.data >= bytes_.get() && part.data + part.bytes <= bytes_.get() + size_) ||
           (part.bytes == 1 && *part.data == '/');  // the path of a URL that has none is a constant
  }

 private:
  std::unique_ptr<char[]> bytes_;
  std::size_t size_;
};

bool take_line(std::string_view& rest, std::string_view& line) {
  const std::size_t end = rest.find('\n');
  if (end == std::string_view::npos || end >= http::kHeadBytesMax) return false;
  line = rest.substr(0, end);
  rest.remove_prefix(end + 1);
  return true;
}

void read_head(std::string_view rest) {
  http::Head head;
  http::Request request{};
  int status = http::kMoreNeeded;
  for (std::string_view line; status == http::kMoreNeeded && take_line(rest, line);) {
    const Exact exact(line);
    status = head.take(exact.text(), request);
    if (head.lines() == 1 && status == http::kMoreNeeded) {
      FUZZ_CHECK(line.size() <= 1 || request.method == http::Method::other ||
                 (exact.has(request.path) && exact.has(request.query)));
      http::route(request);
      request.path = request.query = http::text("");  // their memory is the next line's
    }
  }
  FUZZ_CHECK(status == http::kMoreNeeded || status == http::kComplete || (status >= 400 && status < 600));
  FUZZ_CHECK(status != http::kComplete || !(request.body == http::BodyKind::chunked && request.http_1_0));
}

/// A body in chunks, whose data come in pieces of this size: the result, the body, and what is left.
int read_body(std::string_view& rest, std::size_t piece, std::string& decoded) {
  constexpr std::size_t kMax = 4096;
  http::Body body(http::BodyKind::chunked, 0);
  for (int status = http::kMoreNeeded;;) {
    std::string_view got;
    const bool data = body.next() == http::Body::Part::data;
    if (data || body.next() == http::Body::Part::data_end) {
      FUZZ_CHECK(!data || (body.left() != 0 && body.left() + body.bytes() <= kMax));
      const std::size_t wanted = data ? std::min(piece, body.left()) : 2;
      if (rest.size() < wanted) return status;
      got = rest.substr(0, wanted);
      rest.remove_prefix(wanted);
      if (data) decoded += got;
    } else if (!take_line(rest, got)) {
      return status;
    }
    status = body.take(Exact(got).text(), kMax);
    FUZZ_CHECK(body.bytes() == decoded.size());
    if (status != http::kMoreNeeded) return status;
  }
}

}  // namespace

FUZZ_TARGET(http) {
  const std::size_t piece = 1 + input.below(64);
  const std::string_view text = input.rest();
  read_head(text);

  std::string at_once, by_pieces;
  std::string_view left_at_once = text, left_by_pieces = text;
  const int status = read_body(left_at_once, text.size() + 1, at_once);
  const int other = read_body(left_by_pieces, piece, by_pieces);
  if (status == http::kMoreNeeded) return;  // of data that have not come whole, pieces are taken
  FUZZ_CHECK(status == other && at_once == by_pieces && left_at_once == left_by_pieces);
}

}  // namespace gpusock::fuzz::of_http
