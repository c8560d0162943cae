#pragma once
/// @file How the examples' servers begin to listen.

#include <gpusock/server.cuh>

#include "program/socket_failure.hpp"

#include <string>
#include <string_view>

namespace examples {

/// Calls gpusock::open_listener(). If it cannot listen, throws program::SocketFailure, whose message names `where`, as
/// the user wrote it, and says what the user can do. Throws the other errors of open_listener(), too.
inline gpusock::Listener listen(gpusock::Context& context, const gpusock::Endpoint& at, const std::string& where,
                                int backlog) try {
  return gpusock::open_listener(context, at, backlog);
} catch (const gpusock::Error& error) {
  using gpusock::program::Attempt;
  if (!std::string_view(error.what()).starts_with("listening at ")) throw;  // the launch failed
  throw gpusock::program::SocketFailure("listening on " + where, Attempt::listening, error.code().value(), at);
}

}  // namespace examples
