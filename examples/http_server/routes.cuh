#pragma once
/// @file What the server serves: the kind of request that belongs to each path.

#include "examples/http_server/request.cuh"

namespace http {

/// Requests of one kind make a cohort.
enum class Kind : std::uint8_t { page, time, primes, echo, stats };
inline constexpr int kKinds = 5;

/// The greatest n of /primes?n=.
inline constexpr std::uint64_t kPrimesMax = 1'000'000;

GPUSOCK_FN inline Text name_of(Kind kind) {
  switch (kind) {
    case Kind::page:
      return text("page");
    case Kind::time:
      return text("time");
    case Kind::primes:
      return text("primes");
    case Kind::echo:
      return text("echo");
    case Kind::stats:
      break;
  }
  return text("stats");
}

/// What the request asks for.
struct Route {
  int status;  ///< kComplete, or the status of a refusal: 400, 404, 405
  Kind kind;
  std::uint64_t n;  ///< the n of /primes
};

GPUSOCK_FN inline Route route(const Request& request) {
  Route to{kComplete, Kind::page, 0};
  const Text path = request.path;
  if (same(path, text("/echo"))) {
    to.kind = Kind::echo;
    if (request.method != Method::post) to.status = 405;
    return to;
  }
  if (same(path, text("/time"))) {
    to.kind = Kind::time;
  } else if (same(path, text("/stats"))) {
    to.kind = Kind::stats;
  } else if (same(path, text("/primes"))) {
    to.kind = Kind::primes;
    const bool right = starts_with(request.query, text("n=")) && parse_number(request.query.from(2), to.n) &&
                       to.n <= kPrimesMax;
    if (!right) to.status = 400;
  } else if (!same(path, text("/"))) {
    to.status = 404;
  }
  if (to.status != 404 && request.method != Method::get && request.method != Method::head) to.status = 405;
  return to;
}

}  // namespace http
