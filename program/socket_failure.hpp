#pragma once
/// @file Why a program could not listen or connect, and what its user can do: the same words in all programs.

#include "gpusock/endpoint.hpp"

#include <stdexcept>
#include <string>

namespace gpusock::program {

enum class Attempt { listening, connecting };

/// What the user can do if the attempt failed with this errno, as a clause without a full stop. Empty if the errno
/// itself says enough. Reads GPUSOCK_SECRET, GPUSOCK_FABRIC_PROVIDER and GPUSOCK_LOG, on which the answer depends.
std::string remedy(Attempt attempt, int error, const Endpoint& at);

/// Thrown if a socket could not be opened. Its text is "listening on 127.0.0.1:80: Permission denied: " and the remedy.
class SocketFailure : public std::runtime_error {
 public:
  /// The text `what` says what was tried, and where, in the user's words; `at` is the same address.
  SocketFailure(const std::string& what, Attempt attempt, int error, const Endpoint& at);
};

}  // namespace gpusock::program
