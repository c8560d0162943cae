#pragma once
/// @file Answers: how they are written, and what of them is still to be sent.

#include "examples/http_server/request.cuh"

#include <gpusock/io.cuh>

namespace http {

inline constexpr std::size_t kAnswerHeadBytes = 256;
inline constexpr std::size_t kAnswerBodyBytes = 4 << 10;  // the longest body that the server writes itself

/// What follows after an answer is sent.
enum class After : std::uint8_t { next_request, rest_of_body, close };

struct Answer {
  gpusock::Writer<gpusock::ThisThread> writer;
  char buffer[kAnswerHeadBytes + kAnswerBodyBytes];  ///< the writer's memory
  char own_body[kAnswerBodyBytes];                   ///< memory for a body whose size is not known yet
  Text rest;                                         ///< rest to send: a longer body, in the request's memory
  After after;
};

GPUSOCK_FN_APART inline Text reason_of(int status) {
  switch (status) {
    case 200:
      return text("OK");
    case 404:
      return text("Not Found");
    case 405:
      return text("Method Not Allowed");
    case 408:
      return text("Request Timeout");
    case 413:
      return text("Content Too Large");
    case 414:
      return text("URI Too Long");
    case 417:
      return text("Expectation Failed");
    case 431:
      return text("Request Header Fields Too Large");
    case 501:
      return text("Not Implemented");
    case 505:
      return text("HTTP Version Not Supported");
    default:
      return text("Bad Request");
  }
}

/// What the head of an answer depends on.
struct AnswerShape {
  int status;
  bool keep_alive;
  bool to_http_1_0;
  bool to_head;  ///< the answer to HEAD: the body is described, not sent
  Text allow;    ///< with 405: the methods that are allowed
  Text media_type;
};

/// Writes the head for `body`. After that the answer is ready to be sent.
GPUSOCK_FN_APART inline void write_head(Answer& answer, const AnswerShape& shape, Text body) {
  auto& head = answer.writer;
  head << "HTTP/1.1 " << shape.status << " " << reason_of(shape.status) << "\r\nServer: gpusock\r\n"
       << "Content-Type: " << shape.media_type << "\r\nContent-Length: " << body.bytes << "\r\n";
  if (shape.allow.bytes != 0) head << "Allow: " << shape.allow << "\r\n";
  if (!shape.keep_alive) head << "Connection: close\r\n";
  if (shape.keep_alive && shape.to_http_1_0) head << "Connection: keep-alive\r\n";
  head << "\r\n";
  const bool fits = body.bytes <= kAnswerBodyBytes;
  if (fits && !shape.to_head) head << body;
  answer.rest = fits || shape.to_head ? text("") : body;
  answer.after = shape.keep_alive ? After::next_request : After::close;
}

/// Writes the interim answer that asks for the body.
GPUSOCK_FN inline void write_continue(Answer& answer) {
  answer.writer << "HTTP/1.1 100 Continue\r\n\r\n";
  answer.rest = text("");
  answer.after = After::rest_of_body;
}

/// Writes the answer that refuses a request, with a body of one line that gives the status.
GPUSOCK_FN inline void write_refusal(Answer& answer, AnswerShape shape) {
  TextBuffer body(answer.own_body, sizeof answer.own_body);
  body << shape.status << " " << reason_of(shape.status) << "\n";
  shape.media_type = text("text/plain");
  write_head(answer, shape, {answer.own_body, body.bytes()});
}

}  // namespace http
