#pragma once
/// @file The head of a request, as in RFC 9112. It is read strictly: if two programs read a head differently, one
/// request can be smuggled inside another. Pure functions for kernels and host threads alike.

#include <gpusock/text.cuh>

namespace http {

using gpusock::find;
using gpusock::lower;
using gpusock::parse_number;
using gpusock::same;
using gpusock::same_in_any_case;
using gpusock::starts_with;
using gpusock::Text;
using gpusock::text;
using gpusock::TextBuffer;
using gpusock::trimmed;

/// A longer head is refused with 431, a longer first line with 414.
inline constexpr std::size_t kHeadBytesMax = 8 << 10;

/// The result of a step of reading: more bytes are needed, or this part is complete. Any other value is the status of
/// the answer that refuses it.
enum Reading : int { kMoreNeeded = 0, kComplete = 200 };

enum class Method : std::uint8_t { get, head, post, other };
enum class BodyKind : std::uint8_t { none, counted, chunked };

struct Request {
  Method method;
  BodyKind body;
  bool http_1_0;
  bool keep_alive;
  bool expects_continue;  ///< the client waits for "100 Continue" before it sends the body
  std::uint64_t content_length;
  Text path;   ///< as it was sent: a part of the head's first line
  Text query;  ///< what follows the first '?'
};

/// True if the name of a method or a field may have this character.
GPUSOCK_FN inline bool is_token_char(char c) {
  constexpr char kMarks[] = "!#$%&'*+-.^_`|~";
  const char small = lower(c);
  return (small >= 'a' && small <= 'z') || (c >= '0' && c <= '9') || find(text(kMarks), c) != sizeof kMarks - 1;
}

/// True if the value of a field may have this character: the tab, and what is not a control character.
GPUSOCK_FN inline bool is_field_char(char c) {
  const auto code = static_cast<unsigned char>(c);
  return (code >= 0x20 || c == '\t') && code != 0x7f;
}

namespace detail {

GPUSOCK_FN inline bool is_token(Text text) {
  for (std::size_t i = 0; i < text.bytes; ++i) {
    if (!is_token_char(text[i])) return false;
  }
  return text.bytes != 0;
}

GPUSOCK_FN inline bool is_field_value(Text text) {
  for (std::size_t i = 0; i < text.bytes; ++i) {
    if (!is_field_char(text[i])) return false;
  }
  return true;
}

/// Returns how many characters the host at the start of `text` has, with the brackets of an IPv6 address. If it is
/// malformed, returns one more than `text` has.
GPUSOCK_FN inline std::size_t host_bytes(Text text) {
  constexpr char kOfAddresses[] = "0123456789abcdefABCDEF:.", kOfNames[] = "-._~!$&'()*+,;=%";
  const bool brackets = text.bytes != 0 && text[0] == '[';
  std::size_t i = brackets ? 1 : 0;
  for (; i < text.bytes && text[i] != (brackets ? ']' : ':'); ++i) {
    const char small = lower(text[i]);
    const bool plain = (small >= 'a' && small <= 'z') || (small >= '0' && small <= '9');
    const bool fits = brackets ? find(http::text(kOfAddresses), text[i]) != sizeof kOfAddresses - 1
                               : plain || find(http::text(kOfNames), text[i]) != sizeof kOfNames - 1;
    if (!fits) return text.bytes + 1;
  }
  return brackets ? i + 1 : i;
}

/// True if `text` is a host, with or without a port after it.
GPUSOCK_FN inline bool is_host_and_port(Text text) {
  const std::size_t host = host_bytes(text);
  if (host > text.bytes || (host < text.bytes && (host == 0 || text[host] != ':'))) return false;
  for (std::size_t i = host + 1; i < text.bytes; ++i) {
    if (text[i] < '0' || text[i] > '9') return false;
  }
  return true;
}

/// Cuts the carriage return off the end of a line. Returns false if there is none.
GPUSOCK_FN inline bool take_return(Text& line) {
  if (line.bytes == 0 || line[line.bytes - 1] != '\r') return false;
  --line.bytes;
  return true;
}

/// Parses a field of any name. Returns false if it is invalid.
GPUSOCK_FN inline bool parse_any_field(Text line, gpusock::Field& field) {
  return gpusock::parse_field(line, field) && is_token(field.name) && is_field_value(field.value);
}

GPUSOCK_FN inline int parse_method(Text name, Method& method) {
  if (!is_token(name)) return 400;
  method = Method::other;
  if (same(name, text("GET"))) method = Method::get;
  if (same(name, text("HEAD"))) method = Method::head;
  if (same(name, text("POST"))) method = Method::post;
  if (method != Method::other) return kComplete;
  const bool known = same(name, text("PUT")) || same(name, text("DELETE")) || same(name, text("OPTIONS")) ||
                     same(name, text("PATCH")) || same(name, text("TRACE")) || same(name, text("CONNECT"));
  return known ? kComplete : 501;
}

/// Splits a target into path and query. A target is a path, a whole URL (as proxies get it), or "*".
GPUSOCK_FN inline int parse_target(Text target, Request& request) {
  for (std::size_t i = 0; i < target.bytes; ++i) {
    if (target[i] <= ' ' || target[i] > '~' || target[i] == '#') return 400;  // also refuses what is not ASCII
  }
  const Text scheme = text("http://");
  if (target.bytes >= scheme.bytes && same_in_any_case(target.until(scheme.bytes), scheme)) {
    target = target.from(scheme.bytes);
    std::size_t host = 0;
    while (host < target.bytes && target[host] != '/' && target[host] != '?') ++host;
    if (host == 0 || !is_host_and_port(target.until(host))) return 400;
    target = target.from(host);
    request.path = text("/");
  } else if (!starts_with(target, text("/")) && !same(target, text("*"))) {
    return 400;
  }
  const std::size_t path = find(target, '?');
  if (path != 0) request.path = target.until(path);
  request.query = path == target.bytes ? text("") : target.from(path + 1);
  return kComplete;
}

GPUSOCK_FN inline int parse_request_line(Text line, Request& request) {
  const std::size_t first = find(line, ' ');
  if (first == line.bytes) return 400;
  const Text rest = line.from(first + 1);
  const std::size_t second = find(rest, ' ');
  if (second == rest.bytes) return 400;
  const Text version = rest.from(second + 1);
  const auto digit = [](char c) { return c >= '0' && c <= '9'; };
  if (version.bytes != 8 || !starts_with(version, text("HTTP/"))) return 400;
  if (!digit(version[5]) || version[6] != '.' || !digit(version[7])) return 400;
  if (version[5] != '1') return 505;
  request.http_1_0 = version[7] == '0';
  request.keep_alive = !request.http_1_0;
  if (const int status = parse_target(rest.until(second), request); status != kComplete) return status;
  return parse_method(line.until(first), request.method);
}

/// How often the fields came that may come only once, and what the fields say about the connection.
struct Fields {
  int host = 0, length = 0, encoding = 0;
  bool keep = false, close = false;
};

GPUSOCK_FN inline void parse_connection(Text value, Fields& fields) {
  while (value.bytes != 0) {
    const std::size_t comma = find(value, ',');
    const Text option = trimmed(value.until(comma));
    fields.keep = fields.keep || same_in_any_case(option, text("keep-alive"));
    fields.close = fields.close || same_in_any_case(option, text("close"));
    value = comma == value.bytes ? value.from(comma) : value.from(comma + 1);
  }
}

GPUSOCK_FN inline int parse_field(Text line, Request& request, Fields& fields) {
  gpusock::Field field;
  if (!parse_any_field(line, field)) return 400;  // also refuses a line that continues the one before
  if (field.is("host")) {
    ++fields.host;
    if (!is_host_and_port(field.value)) return 400;
  } else if (field.is("content-length")) {
    ++fields.length;
    if (!parse_number(field.value, request.content_length)) return 400;
    request.body = BodyKind::counted;
  } else if (field.is("transfer-encoding")) {
    ++fields.encoding;
    if (!same_in_any_case(field.value, "chunked")) return 501;
    request.body = BodyKind::chunked;
  } else if (field.is("connection")) {
    parse_connection(field.value, fields);
  } else if (field.is("expect")) {
    if (!same_in_any_case(field.value, "100-continue")) return 417;
    request.expects_continue = !request.http_1_0;
  }
  return kComplete;
}

}  // namespace detail

/// Reads a head line by line.
class Head {
 public:
  /// Takes the next line, without its line feed. Returns kMoreNeeded; kComplete after the empty line that ends the
  /// fields; or the status of a refusal.
  GPUSOCK_FN_APART int take(Text line, Request& request) {
    bytes_ += line.bytes + 1;
    if (bytes_ > kHeadBytesMax) return too_long();
    if (!detail::take_return(line)) return 400;
    if (line.bytes == 0) return lines_ == 0 ? kMoreNeeded : end(request);  // empty lines before a request are ignored
    const int status = ++lines_ == 1 ? detail::parse_request_line(line, request)
                                     : detail::parse_field(line, request, fields_);
    if (lines_ == 1) first_ = status;
    // An unknown method is refused only if everything else is right.
    return status == kComplete || (status == 501 && lines_ == 1) ? kMoreNeeded : status;
  }

  /// The status for a line that is longer than a head may be.
  GPUSOCK_FN int too_long() const { return lines_ == 0 ? 414 : 431; }
  /// How many lines were not empty.
  GPUSOCK_FN std::size_t lines() const { return lines_; }

 private:
  GPUSOCK_FN int end(Request& request) const {
    if (fields_.host > 1 || (fields_.host == 0 && !request.http_1_0)) return 400;
    if (fields_.length + fields_.encoding > 1 || (fields_.encoding != 0 && request.http_1_0))
      return 400;  // this is how requests are smuggled
    request.keep_alive = !fields_.close && (request.keep_alive || fields_.keep);
    return first_;
  }

  std::size_t bytes_ = 0;
  std::size_t lines_ = 0;
  int first_ = kMoreNeeded;  // the status of the first line
  detail::Fields fields_;
};

}  // namespace http
