#pragma once
/// @file How the examples' servers begin to listen.

#include <gpusock/server.cuh>

#include "program/socket_failure.hpp"

#include <string>

namespace examples {

/// gpusock::open_listener(), for a program: where it fails, the message names `where`, as the user wrote it, and says
/// what the user can do. Throws what that throws, and program::SocketFailure.
inline gpusock::Listener listen(gpusock::Context& context, const gpusock::Endpoint& at, const std::string& where,
                                int backlog) try {
  return gpusock::open_listener(context, at, backlog);
} catch (const gpusock::Error& error) {
  using gpusock::program::Attempt;
  const int cause = error.code().value();
  if (gpusock::program::remedy(Attempt::listening, cause, at).empty()) throw;  // or it was not about listening
  throw gpusock::program::SocketFailure("listening on " + where, Attempt::listening, cause, at);
}

}  // namespace examples
