#pragma once
/// @file What another user of this host can try against a context. It is a process of its own, processes_test once
/// more, which gives its rights up first; what it tries and what came of that it says on its standard output, a line
/// each.

#include <sys/types.h>

#include <string>
#include <vector>

namespace gpusock::other_user {

/// How that process ends where it cannot become another user.
inline constexpr int kCannotBecome = 77;

/// What descriptor an attack finds its target at, where it was given one.
inline constexpr int kGiven = 3;

/// What comes of a message of one byte: its length, 0 at the end, -1 (errno); and the descriptor that came with it, or
/// -1.
struct Received {
  ssize_t bytes = 0;
  int descriptor = -1;
};
Received receive(int socket, int flags);

/// "visit NAME TICKET", "serve NAME", "open" or "look PID FOLDER"; the process's exit status.
int act(const std::vector<std::string>& arguments);

}  // namespace gpusock::other_user
