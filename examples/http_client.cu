// An HTTP client in a kernel: each thread fetches the path over a connection of its own. The bodies go to stdout.
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
using gpusock::Field;
using gpusock::Net;
using gpusock::Socket;
using gpusock::Text;

constexpr std::size_t kTextBytesMax = 1024;  ///< of a path, of the server's name, and of a line of a head

/// One path, and the result of fetching it.
struct Fetch {
  char path[kTextBytesMax];
  std::uint32_t path_bytes;
  std::int32_t status;  ///< status of HTTP, or a negated errno
  bool connected;
  std::int64_t bytes;  ///< of the body
};

/// What all threads need.
struct Job {
  Net net;
  Endpoint server;
  char host[kTextBytesMax];  ///< for the field Host: what the user gave as host and port
  std::uint32_t host_bytes;
  std::uint64_t timeout_ns;
  std::uint64_t body_bytes_max;
};

using Reader = gpusock::Reader<gpusock::ThisThread>;

/// What a head says about the body (RFC 9112, 6.3).
struct Head {
  std::uint64_t status = 0;
  std::uint64_t content_length = 0;
  bool has_length = false, chunked = false;
};

/// Reads a head. Returns 0 or an error: -EPROTO if it is not HTTP, -EBADMSG for an invalid Content-Length.
__device__ int read_head(Reader& reader, Head& head, Deadline until) {
  auto line = reader.line(until);
  Text first = line.text();
  if (!line) return line.error();
  if (!starts_with(take_word(first), "HTTP/1.") || !parse_number(take_word(first), head.status)) return -EPROTO;
  for (line = reader.line(until); line && line.size != 0; line = reader.line(until)) {
    Field field;
    if (!parse_field(line.text(), field)) return -EPROTO;
    if (field.is("transfer-encoding")) head.chunked = same_in_any_case(field.value, "chunked");
    if (!field.is("content-length")) continue;
    const std::uint64_t before = head.content_length;
    if (!parse_number(field.value, head.content_length)) return -EBADMSG;
    if (head.has_length && before != head.content_length) return -EBADMSG;
    head.has_length = true;
  }
  return line.error();
}

/// Reads a body in chunks. Returns how many bytes it has, or an error.
__device__ std::int64_t read_chunks(Reader& reader, char* to, std::uint64_t room, Deadline until) {
  for (std::uint64_t done = 0, size = 1;; done += size) {
    auto line = reader.line(until);
    if (!line) return line.error();
    if (!parse_number(trimmed(line.text().until(find(line.text(), ';'))), size, 16)) return -EPROTO;
    if (size > room - done) return -EMSGSIZE;
    if (size != 0) line = reader.read(to + done, size, until);
    if (line) line = reader.line(until);  // after a chunk: an empty line; at the end: fields, then an empty line
    while (size == 0 && line && line.size != 0) line = reader.line(until);
    if (!line || line.size != 0) return line ? -EPROTO : line.error();
    if (size == 0) return static_cast<std::int64_t>(done);
  }
}

/// Reads a body. Returns how many bytes it has, or an error.
__device__ std::int64_t read_body(Reader& reader, const Head& head, char* to, std::uint64_t room, Deadline until) {
  if (head.status == 204 || head.status == 304) return 0;
  if (head.chunked) return read_chunks(reader, to, room, until);
  if (head.has_length && head.content_length > room) return -EMSGSIZE;
  if (head.has_length && head.content_length == 0) return 0;
  const auto body = head.has_length ? reader.read(to, head.content_length, until) : reader.read_to_end(to, room, until);
  return body ? body.size : body.error();
}

__device__ std::int32_t fetch_on(const Job& job, Socket socket, Fetch& fetch, char* body, Deadline until) {
  const auto me = gpusock::this_thread();
  char in[kTextBytesMax], out[kTextBytesMax];
  gpusock::Writer writer(me, job.net, socket, out, sizeof out, job.timeout_ns);
  writer << "GET " << Text{fetch.path, fetch.path_bytes} << " HTTP/1.1\r\nHost: " << Text{job.host, job.host_bytes}
         << "\r\nUser-Agent: gpusock\r\nConnection: close\r\n\r\n";
  writer.flush();  // if that fails, the server may have answered already: reading says what is wrong
  Reader reader(me, job.net, socket, in, sizeof in);
  Head head;
  do {
    head = {};
    if (const int error = read_head(reader, head, until); error != 0) return error;
  } while (head.status / 100 == 1);  // skips interim answers
  fetch.bytes = read_body(reader, head, body, job.body_bytes_max, until);
  return static_cast<std::int32_t>(fetch.bytes < 0 ? fetch.bytes : static_cast<std::int64_t>(head.status));
}

/// Each thread fetches one path. All of that must end within the timeout.
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
  fetch.status = fetch_on(*job, socket, fetch, bodies + index * job->body_bytes_max, until);
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
    return "connecting: " + gpusock::describe_errno(-fetch.status) + (to_do.empty() ? "" : ": " + to_do);
  }
  if (fetch.status == -EPROTO || fetch.status == -EPIPE) return "what came back is not HTTP/1.1, or not whole";
  if (fetch.status == -EBADMSG) return "the answer's Content-Length is invalid, or there are two that differ";
  if (fetch.status == -EMSGSIZE) return "the answer is too long; --body-max allows for more";
  return gpusock::describe_errno(-fetch.status);
}

int run(const Settings& settings) {
  gpusock::Context context(gpusock::Options::from_env());
  const Endpoint server = endpoint_of(settings);
  gpusock::Mapped<Job> job(context, 1);
  gpusock::Mapped<Fetch> fetches(context, settings.times);
  gpusock::Mapped<char> bodies(context, settings.times * settings.body_bytes_max);
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
    std::cout.write(bodies.data() + i * settings.body_bytes_max, static_cast<std::streamsize>(fetch.bytes));
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
