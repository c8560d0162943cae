#pragma once
/// @file The endpoints that the examples take.

#include <gpusock/gpusock.hpp>

#include <cerrno>
#include <string>

namespace examples {

/// Parses the endpoint of a program that sends and receives bytes. Throws Error (EINVAL) if it is one for records.
inline gpusock::Endpoint stream_endpoint(const std::string& text) {
  const gpusock::Endpoint at = gpusock::Endpoint::parse(text);
  if (at.type == gpusock::SocketType::stream) return at;
  throw gpusock::Error(EINVAL, "endpoint '" + text + "': this program's peers send streams: leave out type=seqpacket");
}

/// Parses the endpoint of a program whose peers know nothing of links: plain TCP, whatever GPUSOCK_LINK says. Throws
/// Error (EINVAL) if the text names another link; in the message `peers` says which programs speak plain TCP.
inline gpusock::Endpoint plain_tcp_endpoint(const std::string& text, const std::string& peers) {
  gpusock::Endpoint at = stream_endpoint(text);
  if (text.find(",link=") == std::string::npos) at.link = gpusock::LinkKind::tcp;
  if (at.is_plain_tcp()) return at;
  throw gpusock::Error(EINVAL, "endpoint '" + text + "': " + peers + " plain TCP: leave out link=, or say link=tcp");
}

/// Says what is wrong with an endpoint's text, which `parse` parses; empty if nothing is. An unknown host is no misuse.
template <class Parse>
std::string problem_of_endpoint(Parse parse) try {
  parse();
  return {};
} catch (const gpusock::Error& error) {
  return error.code().value() == EINVAL ? error.what() : "";
}

}  // namespace examples
