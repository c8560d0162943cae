#pragma once
/// @file Endpoints as the examples take them.

#include <gpusock/gpusock.hpp>

#include <cerrno>
#include <string>

namespace examples {

/// The endpoint of a program that sends and receives bytes, not records. Throws Error (EINVAL) for one of records.
inline gpusock::Endpoint stream_endpoint(const std::string& text) {
  const gpusock::Endpoint at = gpusock::Endpoint::parse(text);
  if (at.type == gpusock::SocketType::stream) return at;
  throw gpusock::Error(EINVAL, "endpoint '" + text + "': this program's peers send streams: leave out type=seqpacket");
}

/// The endpoint of a program whose peers know nothing of links: plain TCP, whatever GPUSOCK_LINK says. Throws Error
/// (EINVAL) where the text itself names another link; `peers`: the programs that speak plain TCP.
inline gpusock::Endpoint plain_tcp_endpoint(const std::string& text, const std::string& peers) {
  gpusock::Endpoint at = stream_endpoint(text);
  if (text.find(",link=") == std::string::npos) at.link = gpusock::LinkKind::tcp;
  if (at.is_plain_tcp()) return at;
  throw gpusock::Error(EINVAL, "endpoint '" + text + "': " + peers + " plain TCP: leave out link=, or say link=tcp");
}

/// What is wrong with how an endpoint is written, or nothing; `parse` gives it. An unknown host name is not misuse.
template <class Parse>
std::string problem_of_endpoint(Parse parse) try {
  parse();
  return {};
} catch (const gpusock::Error& error) {
  return error.code().value() == EINVAL ? error.what() : "";
}

}  // namespace examples
