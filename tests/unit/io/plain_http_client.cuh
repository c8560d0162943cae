#pragma once
// What the kernels of examples/http_client.cu would be without gpusock/io.cuh and gpusock/text.cuh: the same promises,
// by the calls of Net alone. The test of the example compares the lengths of the two, and io_test runs this one.

#include "gpusock/device.cuh"

namespace gpusock::conformance::plain {

constexpr std::size_t kTextBytesMax = 1024;  ///< of a path, of the host's name, and of a line of a head

/// As those of the example.
struct Fetch {
  const char *path, *host;
  std::size_t path_bytes, host_bytes;
  std::int32_t status;
  std::int64_t bytes;
};
struct Head {
  std::uint64_t status = 0, content_length = 0;
  bool has_length = false, chunked = false;
};

/// A part of a line.
struct Words {
  const char* at;
  std::size_t bytes;
};

__device__ inline char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 'a' - 'A') : c; }

__device__ inline Words trimmed(Words words) {
  while (words.bytes != 0 && (words.at[0] == ' ' || words.at[0] == '\t')) ++words.at, --words.bytes;
  while (words.bytes != 0 && (words.at[words.bytes - 1] == ' ' || words.at[words.bytes - 1] == '\t')) --words.bytes;
  return words;
}

template <std::size_t kBytes>
__device__ bool is(Words words, const char (&literal)[kBytes]) {
  if (words.bytes != kBytes - 1) return false;
  for (std::size_t i = 0; i < words.bytes; ++i) {
    if (lower(words.at[i]) != literal[i]) return false;
  }
  return true;
}

/// What comes before `c`, which is taken away too; all of it where there is none.
__device__ inline Words take_until(Words& words, char c) {
  std::size_t end = 0;
  while (end < words.bytes && words.at[end] != c) ++end;
  const Words taken{words.at, end};
  const std::size_t past = end < words.bytes ? end + 1 : end;
  words = {words.at + past, words.bytes - past};
  return taken;
}

__device__ inline bool parse(Words words, std::uint64_t& number, unsigned base) {
  number = 0;
  for (std::size_t i = 0; i < words.bytes; ++i) {
    const char c = lower(words.at[i]);
    const unsigned digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : base;
    if (digit >= base || number > (~std::uint64_t{0} - digit) / base) return false;
    number = number * base + digit;
  }
  return words.bytes != 0;
}

/// Reads a line without its end: its length, or an error.
__device__ inline std::int64_t read_line(const Net& net, Socket socket, char* line, Deadline until) {
  const auto me = this_thread();
  for (std::size_t filled = 0;;) {
    if (filled == kTextBytesMax) return -EMSGSIZE;
    const Span span = net.peek(me, socket, kTextBytesMax - filled, until);
    if (span.size == 0) return filled == 0 ? -EPIPE : -EPROTO;
    if (span.size < 0) return span.size;
    std::int64_t taken = 0;
    bool found = false;
    while (taken < span.size && !found) {
      line[filled] = static_cast<const char*>(span.data)[taken++];
      found = line[filled++] == '\n';
    }
    if (const int error = net.release(me, socket, static_cast<std::size_t>(taken)); error != 0) return error;
    if (!found) continue;
    --filled;
    return static_cast<std::int64_t>(filled != 0 && line[filled - 1] == '\r' ? filled - 1 : filled);
  }
}

/// Reads a head: 0, or an error; -EPROTO for what is not HTTP, -EBADMSG for an invalid Content-Length.
__device__ inline int read_head(const Net& net, Socket socket, char* line, Head& head, Deadline until) {
  std::int64_t bytes = read_line(net, socket, line, until);
  if (bytes < 0) return static_cast<int>(bytes);
  Words first{line, static_cast<std::size_t>(bytes)};
  const Words version = take_until(first, ' ');
  if (version.bytes < 7 || !is({version.at, 7}, "http/1.")) return -EPROTO;
  if (!parse(take_until(first, ' '), head.status, 10)) return -EPROTO;
  while ((bytes = read_line(net, socket, line, until)) > 0) {
    Words value{line, static_cast<std::size_t>(bytes)};
    const Words name = take_until(value, ':');
    if (name.bytes == static_cast<std::size_t>(bytes)) return -EPROTO;
    value = trimmed(value);
    if (is(name, "transfer-encoding")) head.chunked = is(value, "chunked");
    if (!is(name, "content-length")) continue;
    const std::uint64_t before = head.content_length;
    if (!parse(value, head.content_length, 10)) return -EBADMSG;
    if (head.has_length && before != head.content_length) return -EBADMSG;
    head.has_length = true;
  }
  return static_cast<int>(bytes);
}

/// Reads so many bytes: 0, or an error.
__device__ inline std::int64_t read_all(const Net& net, Socket socket, char* to, std::uint64_t bytes, Deadline until) {
  if (bytes == 0) return 0;
  const std::int64_t got = net.recv(this_thread(), socket, to, bytes, kWaitAll, until);
  return got < 0 ? got : static_cast<std::uint64_t>(got) == bytes ? 0 : got == 0 ? -EPIPE : -EPROTO;
}

/// Reads a body in chunks: how many bytes, or an error.
__device__ inline std::int64_t read_chunks(const Net& net, Socket socket, char* line, char* to, std::uint64_t room,
                                           Deadline until) {
  for (std::uint64_t done = 0, size = 1;; done += size) {
    std::int64_t bytes = read_line(net, socket, line, until);
    if (bytes < 0) return bytes;
    Words words{line, static_cast<std::size_t>(bytes)};
    if (!parse(trimmed(take_until(words, ';')), size, 16)) return -EPROTO;
    if (size > room - done) return -EMSGSIZE;
    bytes = read_all(net, socket, to + done, size, until);
    if (bytes == 0) bytes = read_line(net, socket, line, until);
    while (size == 0 && bytes > 0) bytes = read_line(net, socket, line, until);
    if (bytes != 0) return bytes < 0 ? bytes : -EPROTO;
    if (size == 0) return static_cast<std::int64_t>(done);
  }
}

/// Reads all up to the end: how many bytes, or an error.
__device__ inline std::int64_t read_to_end(const Net& net, Socket socket, char* to, std::uint64_t room,
                                           Deadline until) {
  const auto me = this_thread();
  for (std::uint64_t done = 0;;) {
    char beyond = 0;
    const bool full = done == room;
    const std::int64_t got = net.recv(me, socket, full ? &beyond : to + done, full ? 1 : room - done, 0, until);
    if (got == 0) return static_cast<std::int64_t>(done);
    if (got < 0 || full) return got < 0 ? got : -EMSGSIZE;
    done += static_cast<std::uint64_t>(got);
  }
}

/// Reads a body: how many bytes, or an error.
__device__ inline std::int64_t read_body(const Net& net, Socket socket, const Head& head, char* line, char* to,
                                         std::uint64_t room, Deadline until) {
  if (head.status == 204 || head.status == 304) return 0;
  if (head.chunked) return read_chunks(net, socket, line, to, room, until);
  if (!head.has_length) return read_to_end(net, socket, to, room, until);
  if (head.content_length > room) return -EMSGSIZE;
  const std::int64_t error = read_all(net, socket, to, head.content_length, until);
  return error != 0 ? error : static_cast<std::int64_t>(head.content_length);
}

/// Sends a request: 0, or an error.
__device__ inline std::int64_t send_request(const Net& net, Socket socket, const Fetch& fetch, Deadline until) {
  const auto put = [&](const char* text, std::size_t bytes, int flags) {
    return net.send(this_thread(), socket, text, bytes, flags, until);
  };
  std::int64_t sent = put("GET ", 4, kWaitAll | kMore);
  if (sent >= 0) sent = put(fetch.path, fetch.path_bytes, kWaitAll | kMore);
  if (sent >= 0) sent = put(" HTTP/1.1\r\nHost: ", 17, kWaitAll | kMore);
  if (sent >= 0) sent = put(fetch.host, fetch.host_bytes, kWaitAll | kMore);
  constexpr char kRest[] = "\r\nUser-Agent: gpusock\r\nConnection: close\r\n\r\n";
  if (sent >= 0) sent = put(kRest, sizeof kRest - 1, kWaitAll);
  return sent < 0 ? sent : 0;
}

/// Fetches a path. One thread.
__global__ void fetch_one(Net net, Endpoint server, Fetch* fetch, char* body, std::uint64_t room,
                          std::uint64_t timeout_ns) {
  const auto me = this_thread();
  const Deadline until = Deadline::after_ns(timeout_ns);
  char line[kTextBytesMax];
  const Socket socket = net.connect(me, server, until);
  fetch->status = socket;
  if (socket < 0) return;
  send_request(net, socket, *fetch, until);  // where that fails, the server may have answered before
  Head head;
  int error = 0;
  do {
    head = {};
    error = read_head(net, socket, line, head, until);
  } while (error == 0 && head.status / 100 == 1);  // an interim answer
  fetch->bytes = error != 0 ? error : read_body(net, socket, head, line, body, room, until);
  fetch->status = static_cast<std::int32_t>(fetch->bytes < 0 ? fetch->bytes : static_cast<std::int64_t>(head.status));
  net.close(me, socket);
}

}  // namespace gpusock::conformance::plain
