// What examples/http_server makes of the bytes that clients send. The same code runs in its kernels.
#include "examples/http_server/body.cuh"
#include "examples/http_server/routes.cuh"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <string_view>
#include <vector>

namespace http {
namespace {

std::string string_of(Text text) { return {text.data, text.bytes}; }

/// Cuts the next line off the front, as the server's Reader finds it: without its line feed. False: it has not come
/// whole, or is longer than a Reader takes.
bool take_line(std::string_view& rest, std::string_view& line) {
  const std::size_t end = rest.find('\n');
  if (end == std::string_view::npos || end >= kHeadBytesMax) return false;
  line = rest.substr(0, end);
  rest.remove_prefix(end + 1);
  return true;
}

/// The status that reading this head ends with, and how many bytes it took. The request refers to the bytes.
int read_head(std::string_view bytes, Request& request, std::size_t* taken = nullptr) {
  request = {};
  Head head;
  std::string_view rest = bytes, line;
  int status = kMoreNeeded;
  while (status == kMoreNeeded && take_line(rest, line)) status = head.take({line.data(), line.size()}, request);
  if (status == kMoreNeeded && rest.size() >= kHeadBytesMax) status = head.too_long();
  if (taken != nullptr) *taken = bytes.size() - rest.size();
  return status;
}

int status_of(const std::string& bytes) {
  Request request;
  return read_head(bytes, request);
}

std::string with_fields(const std::string& fields) { return "POST /echo HTTP/1.1\r\nHost: a\r\n" + fields + "\r\n"; }

TEST(HttpHead, ReadsMethodPathAndQuery) {
  Request request;
  const std::string bytes = "GET /primes?n=7?x HTTP/1.1\r\nHost: a\r\n\r\n";
  ASSERT_EQ(read_head(bytes, request), kComplete);
  EXPECT_EQ(request.method, Method::get);
  EXPECT_EQ(string_of(request.path), "/primes");
  EXPECT_EQ(string_of(request.query), "n=7?x");
  EXPECT_EQ(request.body, BodyKind::none);
  EXPECT_TRUE(request.keep_alive);
}

TEST(HttpHead, TakesTheTargetThatIsSentToProxies) {
  Request request;
  const std::string with_path = "GET HTTP://a:1/time?x HTTP/1.1\r\nHost: a\r\n\r\n";
  const std::string without = "GET http://a HTTP/1.1\r\nHost: a\r\n\r\n";
  ASSERT_EQ(read_head(with_path, request), kComplete);
  EXPECT_EQ(string_of(request.path), "/time");
  ASSERT_EQ(read_head(without, request), kComplete);
  EXPECT_EQ(string_of(request.path), "/");
  const std::string query_alone = "GET http://a?x=/time HTTP/1.1\r\nHost: a\r\n\r\n";
  ASSERT_EQ(read_head(query_alone, request), kComplete);
  EXPECT_EQ(string_of(request.path), "/");
  EXPECT_EQ(string_of(request.query), "x=/time");
}

TEST(HttpHead, RefusesTargetsThatAreNoPathAndNoUrl) {
  for (const char* target : {"time", "?n=1", "a:80", "https://a/", "http://", "http:///time", "http://a b/",
                             "http://a:x/", "http://u@a/", "http://[::1/", "/time#x", "**"}) {
    EXPECT_EQ(status_of("GET " + std::string(target) + " HTTP/1.1\r\nHost: a\r\n\r\n"), 400) << target;
  }
  EXPECT_EQ(status_of("OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n"), kComplete);
}

TEST(HttpHead, RefusesHostsThatCannotBe) {
  const auto status_with = [](const std::string& host) {
    return status_of("GET / HTTP/1.1\r\nHost: " + host + "\r\n\r\n");
  };
  for (const char* good : {"", "a", "a-b.example:80", "127.0.0.1:", "[::1]", "[fe80::1]:8080", "%41!$&'()*+,;=~_"}) {
    EXPECT_EQ(status_with(good), kComplete) << good;
  }
  for (const char* bad :
       {"a b", "a/../b", "u@a", "a:b", "a:80:80", ":80", "[::1", "[::1]80", "[x]", "a, b", "\xff", "a#", "a?"}) {
    EXPECT_EQ(status_with(bad), 400) << bad;
  }
}

TEST(HttpHead, IsCompleteAtItsLastByte) {
  const std::string head = "\r\n\r\nPOST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\n";
  Request request;
  for (std::size_t bytes = 0; bytes < head.size(); ++bytes)
    ASSERT_EQ(read_head(std::string_view(head).substr(0, bytes), request), kMoreNeeded) << bytes;
  std::size_t taken = 0;
  const std::string more = head + "abcGET";
  ASSERT_EQ(read_head(more, request, &taken), kComplete);
  EXPECT_EQ(taken, head.size());
}

TEST(HttpHead, KeepsOrEndsTheConnectionAsVersionAndFieldSay) {
  const auto keeps = [](const std::string& version, const std::string& connection) {
    Request request;
    const std::string field = connection.empty() ? "" : "Connection: " + connection + "\r\n";
    EXPECT_EQ(read_head("GET / " + version + "\r\nHost: a\r\n" + field + "\r\n", request), kComplete);
    return request.keep_alive;
  };
  EXPECT_TRUE(keeps("HTTP/1.1", ""));
  EXPECT_TRUE(keeps("HTTP/1.1", "keep-alive"));
  EXPECT_FALSE(keeps("HTTP/1.1", "close"));
  EXPECT_FALSE(keeps("HTTP/1.1", "x, Close"));
  EXPECT_FALSE(keeps("HTTP/1.0", ""));
  EXPECT_TRUE(keeps("HTTP/1.0", "Keep-Alive"));
  EXPECT_FALSE(keeps("HTTP/1.0", "keep-alive, close"));
}

TEST(HttpHead, RefusesMalformedRequestLines) {
  for (const char* line :
       {"GET", "GET /", "GET  / HTTP/1.1", "GET / HTTP/1.1 ", "GET / http/1.1", "GET / HTTP/1", "GET / HTTP/x.1",
        " GET / HTTP/1.1", "G@T / HTTP/1.1", "GET /\x01 HTTP/1.1", "GET /\xff HTTP/1.1", "GET /a b HTTP/1.1"}) {
    EXPECT_EQ(status_of(std::string(line) + "\r\nHost: a\r\n\r\n"), 400) << line;
  }
  EXPECT_EQ(status_of("GET / HTTP/1.1\nHost: a\n\n"), 400) << "lines end with CR LF";
  EXPECT_EQ(status_of("GET / HTTP/2.0\r\nHost: a\r\n\r\n"), 505);
  EXPECT_EQ(status_of("GET / HTTP/0.9\r\n\r\n"), 505);
  EXPECT_EQ(status_of("BREW / HTTP/1.1\r\nHost: a\r\n\r\n"), 501);
  EXPECT_EQ(status_of("BREW / HTTP/1.1\r\n\r\n"), 400) << "what is malformed is that, whatever the method";
  EXPECT_EQ(status_of("DELETE / HTTP/1.1\r\nHost: a\r\n\r\n"), kComplete) << "known, and a matter of the path";
}

TEST(HttpHead, RefusesMalformedFields) {
  for (const char* field :
       {"no colon", "Name : x", ": x", "Na me: x", " folded: x", "A: \x01", "A: b\rc", "Host: b",
        "Content-Length: ", "Content-Length: -1", "Content-Length: 1x", "Content-Length: 1, 1", "Content-Length: +1"}) {
    EXPECT_EQ(status_of(with_fields(std::string(field) + "\r\n")), 400) << field;
  }
  EXPECT_EQ(status_of("GET / HTTP/1.1\r\n\r\n"), 400) << "HTTP/1.1 needs Host";
  EXPECT_EQ(status_of("GET / HTTP/1.0\r\n\r\n"), kComplete) << "HTTP/1.0 does not";
  EXPECT_EQ(status_of(with_fields("Expect: miracles\r\n")), 417);
  EXPECT_EQ(status_of(with_fields("Transfer-Encoding: gzip\r\n")), 501);
}

TEST(HttpHead, RefusesTwoOpinionsAboutTheBodysLength) {
  EXPECT_EQ(status_of(with_fields("Content-Length: 1\r\nContent-Length: 1\r\n")), 400);
  EXPECT_EQ(status_of(with_fields("Content-Length: 1\r\nTransfer-Encoding: chunked\r\n")), 400);
  EXPECT_EQ(status_of(with_fields("Transfer-Encoding: chunked\r\nContent-Length: 1\r\n")), 400);
  EXPECT_EQ(status_of(with_fields("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n")), 400);
  EXPECT_EQ(status_of("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n"), 400);
}

TEST(HttpHead, TakesTheLargestLengthForOneThatDoesNotFit) {
  Request request;
  ASSERT_EQ(read_head(with_fields("Content-Length: 99999999999999999999999\r\n"), request), kComplete);
  EXPECT_EQ(request.content_length, ~std::uint64_t{0});
  ASSERT_EQ(read_head(with_fields("Content-Length: 18446744073709551614\r\n"), request), kComplete);
  EXPECT_EQ(request.content_length, ~std::uint64_t{0} - 1);
}

TEST(HttpHead, EndsAtItsLimit) {
  const std::string start = "GET / HTTP/1.1\r\nHost: a\r\nA: ", end = "\r\n\r\n";
  const std::string fits(kHeadBytesMax - start.size() - end.size(), 'x');
  EXPECT_EQ(status_of(start + fits + end), kComplete);
  EXPECT_EQ(status_of(start + fits + "x" + end), 431);
  EXPECT_EQ(status_of(start + fits + fits), 431) << "before its end has come";
  EXPECT_EQ(status_of("GET /" + std::string(kHeadBytesMax, 'x')), 414);
}

/// What is made of these bytes, whose data come in pieces of this size at most: the status, the body, and how many
/// bytes it took.
struct Decoded {
  int status;
  std::string body;
  std::size_t taken;
  bool operator==(const Decoded&) const = default;
};
std::ostream& operator<<(std::ostream& to, const Decoded& it) {
  return to << it.status << ' ' << it.body << ' ' << it.taken;
}

Decoded decode(std::string_view bytes, std::size_t piece, std::size_t body_bytes_max = 100) {
  Body body(BodyKind::chunked, 0);
  Decoded decoded{kMoreNeeded, "", 0};
  std::string_view rest = bytes, got;
  while (decoded.status == kMoreNeeded) {
    const bool data = body.next() == Body::Part::data;
    if (data || body.next() == Body::Part::data_end) {
      const std::size_t wanted = data ? std::min(piece, body.left()) : 2;
      if (rest.size() < wanted) break;
      got = rest.substr(0, wanted);
      rest.remove_prefix(wanted);
      if (data) decoded.body += got;
    } else if (!take_line(rest, got)) {
      if (rest.size() >= kHeadBytesMax) decoded.status = 431;
      break;
    }
    decoded.status = body.take({got.data(), got.size()}, body_bytes_max);
  }
  decoded.taken = bytes.size() - rest.size();
  EXPECT_EQ(body.bytes(), decoded.body.size());
  return decoded;
}

TEST(HttpChunks, AreJoinedWhateverTheirPieces) {
  const std::string body =
      "5\r\nhello\r\n1 \t;a=b;c=\"\xff;\"\r\n,\r\n00D\r\n twelve byte\r\r\n0\r\nTrailer: x\r\nEmpty:\r\n\r\n";
  const Decoded expected{kComplete, "hello, twelve byte\r", body.size()};
  for (std::size_t piece = 1; piece <= 14; ++piece) EXPECT_EQ(decode(body + "GET", piece), expected) << piece;
}

TEST(HttpChunks, MayBeMoreThanTheirLimitsHaveBytes) {
  std::string chunks;
  for (std::size_t i = 0; i < 2 * kHeadBytesMax; ++i) chunks += "1\r\nx\r\n";
  EXPECT_EQ(decode(chunks + "0\r\n\r\n", 7, 3 * kHeadBytesMax).status, kComplete);
}

TEST(HttpChunks, AreRefusedWhereMalformed) {
  for (const char* body : {"g\r\n",        "\r\n",           ";\r\n",          "1x\r\n",          "1\n",
                           "1\r1\n",       "1\r\nab\r\n",    "1\r\na\nb",      "1\r\na\rb",       "-1\r\n",
                           "0\r\n\n",      "0\r\nT: x\n",    "0\r\n\rx\n",     "5 garbage\r\n",   "5 \r\n",
                           "5 \t5\r\n",    "5 ;\n",          "5;\x01\r\n",     "5;a\x7f\r\n",     "0\r\nno colon\r\n",
                           "0\r\n: x\r\n", "0\r\nT : x\r\n", "0\r\n T: x\r\n", "0\r\nT: \x01\r\n"}) {
    EXPECT_EQ(decode(body, 1).status, 400) << body;
    EXPECT_EQ(decode(body, 100).status, 400) << body;
  }
}

TEST(HttpChunks, StayWithinTheLimits) {
  const std::string fits = "64\r\n" + std::string(100, 'x') + "\r\n0\r\n\r\n";
  EXPECT_EQ(decode(fits, 7).status, kComplete);
  EXPECT_EQ(decode("65\r\n", 7).status, 413);
  EXPECT_EQ(decode("64\r\n" + std::string(100, 'x') + "\r\n1\r\n", 7).status, 413);
  EXPECT_EQ(decode("ffffffffffffffff\r\n", 7).status, 413);
  EXPECT_EQ(decode("fffffffffffffffffffffff\r\n", 7).status, 413);
  EXPECT_EQ(decode("1;" + std::string(kHeadBytesMax + 1, 'x'), 7).status, 431);
  EXPECT_EQ(decode(std::string(kHeadBytesMax + 3, '0'), 7).status, 431);
  EXPECT_EQ(decode("1" + std::string(kHeadBytesMax + 1, ' '), 7).status, 431);
  EXPECT_EQ(decode("0\r\n" + std::string(kHeadBytesMax + 3, 'x'), 7).status, 431);
  EXPECT_EQ(decode("0\r\nT:" + std::string(kHeadBytesMax + 3, 'x'), 7).status, 431);
}

TEST(HttpRoutes, LeadToTheKindOrTheRefusal) {
  const auto routed = [](const std::string& line) {
    Request request;
    const std::string bytes = line + " HTTP/1.1\r\nHost: a\r\n\r\n";
    EXPECT_EQ(read_head(bytes, request), kComplete) << line;
    return route(request);
  };
  EXPECT_EQ(routed("GET /").kind, Kind::page);
  EXPECT_EQ(routed("HEAD /time").kind, Kind::time);
  EXPECT_EQ(routed("GET /stats?x").kind, Kind::stats);
  EXPECT_EQ(routed("POST /echo").kind, Kind::echo);
  EXPECT_EQ(routed("GET /primes?n=1000000").n, 1'000'000u);
  for (const char* good :
       {"GET /", "HEAD /time", "GET /stats?x", "POST /echo", "GET /primes?n=0", "GET /primes?n=1000000"}) {
    EXPECT_EQ(routed(good).status, kComplete) << good;
  }
  for (const char* bad :
       {"GET /primes", "GET /primes?n=", "GET /primes?n=1000001", "GET /primes?n=-1", "GET /primes?n=1&m=2"}) {
    EXPECT_EQ(routed(bad).status, 400) << bad;
  }
  for (const char* bad : {"GET /echo", "HEAD /echo", "POST /", "PUT /time", "OPTIONS /stats", "POST /primes?n=x"}) {
    EXPECT_EQ(routed(bad).status, 405) << bad;
  }
  for (const char* bad : {"GET /echo/", "GET //", "OPTIONS *", "PUT /nowhere"}) {
    EXPECT_EQ(routed(bad).status, 404) << bad;
  }
}

/// Whatever comes: an answer, and no byte looked at behind the end (which ASan would tell).
TEST(HttpHead, SurvivesRandomDamage) {
  const std::vector<std::string> seeds = {
      with_fields("Content-Length: 12\r\nExpect: 100-continue\r\nConnection: a, close\r\n"),
      "GET http://h/primes?n=12 HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
      with_fields("Transfer-Encoding: chunked\r\n")};
  const std::string spice = "\r\n :;,\t/?=0x\xff\x01";
  const unsigned seed = std::random_device{}();
  std::mt19937 random(seed);
  for (int turn = 0; turn < 20'000; ++turn) {
    std::string damaged = seeds[random() % seeds.size()];
    for (unsigned n = random() % 4; n > 0; --n) damaged[random() % damaged.size()] = spice[random() % spice.size()];
    if (random() % 4 == 0) damaged.erase(random() % damaged.size(), 1 + random() % 5);
    const std::vector<char> exact(damaged.begin(), damaged.end());  // no byte behind the end
    Request request;
    const int status = read_head({exact.data(), exact.size()}, request);
    ASSERT_TRUE(status == kMoreNeeded || status == kComplete || (status >= 400 && status < 600))
        << "seed " << seed << ": " << damaged;
  }
}

}  // namespace
}  // namespace http
