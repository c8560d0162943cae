// examples/http_server's reading of requests: the same whatever pieces the bytes come in, and nothing read but them.
#include "examples/http_server/chunked.cuh"
#include "examples/http_server/routes.cuh"
#include "tests/fuzz/target.hpp"

#include <memory>
#include <vector>

namespace gpusock::fuzz::of_http {
namespace {

bool inside(const http::Text& part, const char* whole, std::size_t bytes) {
  if (part.bytes == 0) return true;
  if (part.data >= whole && part.data + part.bytes <= whole + bytes) return true;
  return part.bytes == 1 && *part.data == '/';  // the path of a URL that has none is a constant
}

/// A body in chunks, in pieces of these sizes: the result, and what was decoded.
int decode(std::string_view body, std::size_t piece, std::string& decoded, std::size_t& read) {
  std::vector<char> buffer(body.begin(), body.end());
  http::ChunkDecoder decoder;
  http::ChunkPositions at{0, 0};
  int status = http::kMoreNeeded;
  for (std::size_t end = 0; status == http::kMoreNeeded && end < buffer.size();) {
    end = std::min(buffer.size(), end + piece);
    status = decoder.decode(buffer.data(), at, end, 4096);
    FUZZ_CHECK(at.write <= at.read && at.read <= end && at.write <= 4096);
    FUZZ_CHECK(status != http::kMoreNeeded || at.read == end);
  }
  decoded.assign(buffer.data(), at.write);
  read = at.read;
  return status;
}

}  // namespace

FUZZ_TARGET(http) {
  const std::size_t piece = 1 + input.below(64);
  const std::string_view text = input.rest();
  const auto copy = std::make_unique<char[]>(text.size());  // of exactly this size, so that reading on is noticed
  std::copy(text.begin(), text.end(), copy.get());

  http::HeadScan whole, pieces;
  const int status = whole.look({copy.get(), text.size()});
  int same = http::kMoreNeeded;
  for (std::size_t end = 0; same == http::kMoreNeeded && end < text.size();) {
    end = std::min(text.size(), end + piece);
    same = pieces.look({copy.get(), end});
  }
  FUZZ_CHECK(status == same);
  FUZZ_CHECK(status == http::kMoreNeeded || whole.bytes() == pieces.bytes());
  if (status == http::kComplete) {
    FUZZ_CHECK(whole.bytes() <= text.size());
    http::Request request;
    const int head = http::parse_head({copy.get(), whole.bytes()}, request);
    FUZZ_CHECK(head == http::kComplete || (head >= 400 && head < 600));
    if (head == http::kComplete) {
      FUZZ_CHECK(inside(request.path, copy.get(), whole.bytes()) && inside(request.query, copy.get(), whole.bytes()));
      FUZZ_CHECK(!(request.body == http::BodyKind::chunked && request.http_1_0));
    }
  }

  std::string at_once, by_pieces;
  std::size_t read_at_once = 0, read_by_pieces = 0;
  const int body = decode(text, text.size() + 1, at_once, read_at_once);
  FUZZ_CHECK(body == decode(text, piece, by_pieces, read_by_pieces));
  FUZZ_CHECK(at_once == by_pieces && read_at_once == read_by_pieces);
}

}  // namespace gpusock::fuzz::of_http
