// An HTTP client in a kernel: each thread fetches the path over a connection of its own; what comes goes to stdout.
//   http_client example.org:80 /
#include <gpusock/gpusock.hpp>
#include <gpusock/io.cuh>

#include "examples/endpoints.hpp"
#include "program/arguments.hpp"
#include "program/environment.hpp"
#include "program/run.hpp"
#include "program/socket_failure.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace {

using gpusock::Deadline;
using gpusock::Endpoint;
using gpusock::Net;
using gpusock::Socket;
using gpusock::Text;
using gpusock::text;

constexpr std::size_t kTextBytesMax = 1024;  ///< of a path, of the host's name, and of a line of a head

/// One path, and what became of it.
struct Fetch {
  char path[kTextBytesMax];
  std::uint32_t path_bytes;
  std::int32_t status;  ///< of HTTP, or a negated errno
  bool connected;
  std::uint64_t bytes;  ///< of the body
};

/// What all threads need.
struct Job {
  Net net;
  Endpoint server;
  char host[kTextBytesMax];  ///< as the server knows itself
  std::uint32_t host_bytes;
  std::uint64_t timeout_ns;
  std::uint64_t body_bytes_max;
};

/// How a body's end is told (RFC 9112, 6.3).
struct Head {
  std::uint64_t status = 0;
  std::uint64_t content_length = ~std::uint64_t{0};  ///< the greatest number: it was not told
  bool chunked = false;
};

/// One answer, which one thread reads. Each call that fails returns a negated errno: -EPROTO for what is not HTTP,
/// -EMSGSIZE for what is too long.
class AnswerReader {
 public:
  using Lines = gpusock::Reader<gpusock::ThisThread>;

  __device__ AnswerReader(const Job& job, Socket socket, Lines& lines, Deadline until)
      : job_(job), socket_(socket), lines_(lines), until_(until) {}

  /// Reads heads until that of the final answer.
  __device__ int head(Head& head) {
    do {
      head = {};
      auto line = lines_.line(until_);
      if (!line) return error_of(line);
      Text first = line.text();
      if (!starts_with(take_word(first), text("HTTP/1."))) return -EPROTO;
      if (!parse_number(take_word(first), head.status)) return -EPROTO;
      for (line = lines_.line(until_); line && line.size != 0; line = lines_.line(until_))
        note_field(line.text(), head);
      if (!line) return error_of(line);
    } while (head.status / 100 == 1);  // an interim answer
    return 0;
  }

  /// Receives the body: how many bytes.
  __device__ std::int64_t body(const Head& head, char* to) {
    if (head.status == 204 || head.status == 304) return 0;
    if (head.chunked) return chunks(to);
    if (head.content_length != ~std::uint64_t{0}) return piece(to, 0, head.content_length);
    for (std::uint64_t done = 0;;) {  // until the end of the stream
      const auto got = job_.net.recv(gpusock::this_thread(), socket_, to + done, job_.body_bytes_max + 1 - done, 0,
                                     until_);
      if (got <= 0) return got < 0 ? got : static_cast<std::int64_t>(done);
      done += static_cast<std::uint64_t>(got);
      if (done > job_.body_bytes_max) return -EMSGSIZE;
    }
  }

 private:
  __device__ static int error_of(const gpusock::Received& line) {
    return line.ended() ? -EPROTO : static_cast<int>(line.size);
  }

  __device__ static void note_field(Text line, Head& head) {
    const std::size_t colon = find(line, ':');
    if (colon == line.bytes) return;
    const Text name = line.until(colon), value = trimmed(line.from(colon + 1));
    if (same_in_any_case(name, text("content-length"))) parse_number(value, head.content_length);
    if (same_in_any_case(name, text("transfer-encoding"))) head.chunked = same_in_any_case(value, text("chunked"));
  }

  /// So many bytes of the body, behind the `done` that are there.
  __device__ std::int64_t piece(char* to, std::uint64_t done, std::uint64_t bytes) {
    if (bytes > job_.body_bytes_max - done) return -EMSGSIZE;
    if (bytes == 0) return 0;
    const auto got = job_.net.recv(gpusock::this_thread(), socket_, to + done, bytes, gpusock::kWaitAll, until_);
    return got >= 0 && static_cast<std::uint64_t>(got) != bytes ? -EPROTO : got;
  }

  __device__ std::int64_t chunks(char* to) {
    for (std::uint64_t done = 0;;) {
      const auto size_line = lines_.line(until_);
      if (!size_line) return error_of(size_line);
      const Text digits = size_line.text().until(find(size_line.text(), ';'));  // extensions of a chunk do not matter
      std::uint64_t size = 0;
      if (!parse_number(trimmed(digits), size, 16)) return -EPROTO;
      const std::int64_t got = piece(to, done, size);
      if (got < 0) return got;
      done += size;
      auto line = lines_.line(until_);  // after a chunk an empty one; after the last chunk fields, then an empty one
      while (size == 0 && line && line.size != 0) line = lines_.line(until_);
      if (!line) return error_of(line);
      if (line.size != 0) return -EPROTO;
      if (size == 0) return static_cast<std::int64_t>(done);
    }
  }

  const Job& job_;
  Socket socket_;
  Lines& lines_;
  Deadline until_;
};

__device__ std::int32_t fetch_on(const Job& job, Socket socket, Fetch& fetch, char* body, Deadline until) {
  const auto me = gpusock::this_thread();
  char in[kTextBytesMax], out[kTextBytesMax];
  gpusock::Writer writer(me, job.net, socket, out, sizeof out, job.timeout_ns);
  writer << "GET " << Text{fetch.path, fetch.path_bytes} << " HTTP/1.1\r\nHost: " << Text{job.host, job.host_bytes}
         << "\r\nUser-Agent: gpusock\r\nConnection: close\r\n\r\n";
  if (const int error = writer.flush(); error != 0) return error;
  AnswerReader::Lines lines(me, job.net, socket, in, sizeof in);
  AnswerReader reader(job, socket, lines, until);
  Head head;
  if (const int error = reader.head(head); error != 0) return error;
  const std::int64_t bytes = reader.body(head, body);
  if (bytes < 0) return static_cast<std::int32_t>(bytes);
  fetch.bytes = static_cast<std::uint64_t>(bytes);
  return static_cast<std::int32_t>(head.status);
}

/// Each thread fetches one path; all of it within the timeout.
__global__ void fetch_all(const Job* job, Fetch* fetches, unsigned count, char* bodies) {
  const unsigned index = blockIdx.x * blockDim.x + threadIdx.x;
  if (index >= count) return;
  const auto me = gpusock::this_thread();
  const Deadline until = Deadline::after_ns(job->timeout_ns);
  Fetch& fetch = fetches[index];
  const Socket socket = job->net.connect(me, job->server, until);
  fetch.status = socket;
  if (socket < 0) return;
  fetch.connected = true;
  fetch.status = fetch_on(*job, socket, fetch, bodies + index * (job->body_bytes_max + 1), until);
  job->net.close(me, socket);
}

struct Settings {
  std::string where, path;
  std::uint64_t body_bytes_max = 1 << 20;
  unsigned times = 1, timeout_ms = 10'000;
};

Endpoint endpoint_of(const Settings& settings) {
  return examples::plain_tcp_endpoint(settings.where, "web servers speak");
}

std::string problem_of(const Settings& settings) {
  if (settings.path.empty() || settings.path[0] != '/') return "a path begins with '/'";
  if (settings.path.size() > kTextBytesMax || settings.where.size() > kTextBytesMax) return "that is too long";
  const bool odd = std::any_of(settings.path.begin(), settings.path.end(), [](char c) { return c <= ' ' || c == 127; });
  return odd ? "blanks and control characters in a path are written as %20 and the like" : "";
}

std::string reason(const Fetch& fetch, const Endpoint& to) {
  if (!fetch.connected) {
    const std::string to_do = gpusock::program::remedy(gpusock::program::Attempt::connecting, -fetch.status, to);
    return "connecting: " + std::generic_category().message(-fetch.status) + (to_do.empty() ? "" : ": " + to_do);
  }
  if (fetch.status == -EPROTO) return "what came back is not HTTP/1.1, or not whole";
  if (fetch.status == -EMSGSIZE) return "the answer is too long; --body-max allows for more";
  return std::generic_category().message(-fetch.status);
}

int run(const Settings& settings) {
  gpusock::Context context(gpusock::Options::from_env());
  const Endpoint server = endpoint_of(settings);
  gpusock::Mapped<Job> job(context, 1);
  gpusock::Mapped<Fetch> fetches(context, settings.times);
  gpusock::Mapped<char> bodies(context, settings.times * (settings.body_bytes_max + 1));
  const std::string host = settings.where.substr(0, settings.where.find(','));
  job[0].net = context.net();
  job[0].server = server;
  job[0].host_bytes = static_cast<std::uint32_t>(host.copy(job[0].host, kTextBytesMax));
  job[0].timeout_ns = settings.timeout_ms * std::uint64_t{1'000'000};
  job[0].body_bytes_max = settings.body_bytes_max;
  for (Fetch& fetch : fetches)
    fetch.path_bytes = static_cast<std::uint32_t>(settings.path.copy(fetch.path, kTextBytesMax));
  constexpr unsigned kThreads = 32;
  gpusock::launch(context, {.grid = (settings.times + kThreads - 1) / kThreads, .block = kThreads}, fetch_all,
                  job.data(), fetches.data(), settings.times, bodies.data());
  context.synchronize();
  int status = EXIT_SUCCESS;
  for (unsigned i = 0; i < settings.times; ++i) {
    const Fetch& fetch = fetches[i];
    if (fetch.status < 0) throw std::runtime_error(settings.where + settings.path + ": " + reason(fetch, server));
    std::cout.write(bodies.data() + i * (settings.body_bytes_max + 1), static_cast<std::streamsize>(fetch.bytes));
    if (fetch.status / 100 == 2) continue;
    std::cerr << settings.where << settings.path << ": the server answered with status " << fetch.status << '\n';
    status = EXIT_FAILURE;
  }
  return status;
}

}  // namespace

int main(int argc, char** argv) {
  gpusock::program::Arguments arguments(
      "Fetches a path from a web server (http, not https) in a kernel, and prints it.");
  Settings settings;
  arguments.positional("ENDPOINT", settings.where, "host:port of the server");
  arguments.positional("PATH", settings.path, "what to fetch, as /index.html");
  arguments.number("--times", settings.times, "threads that each fetch it, over connections of their own", 1, 512);
  arguments.number("--timeout-ms", settings.timeout_ms, "milliseconds for all of it", 1, 3'600'000);
  arguments.bytes("--body-max", settings.body_bytes_max, "the largest body", 1, 64 << 20);
  arguments.check([&] { return problem_of(settings); });
  arguments.check([&] {
    return gpusock::program::problem_of_memory(settings.times * settings.body_bytes_max, "--times x --body-max");
  });
  arguments.check(gpusock::program::problem_of_environment);
  arguments.check([&] { return examples::problem_of_endpoint([&] { return endpoint_of(settings); }); });
  if (const auto status = arguments.parse(argc, argv)) return *status;
  return gpusock::program::run("http_client", [&] { return run(settings); });
}
