#include "runs/node_process.hpp"

#include "command_line/options.hpp"

#include "gpusock/gpusock.hpp"

#include <fcntl.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <utility>
#include <vector>

extern char** environ;

namespace param_sync {
namespace {

constexpr int kChildControlFd = 3;

std::vector<std::string> node_arguments(const Config& config, const std::string& program, int rank) {
  std::vector<std::string> arguments{program};
  for (auto& argument : to_arguments(config)) arguments.push_back(std::move(argument));
  arguments.insert(arguments.end(), {"--rank", std::to_string(rank), "--control-fd", std::to_string(kChildControlFd)});
  // With --replicas rank 0 may be lost: then another node takes its place.
  if ((rank == 0 || config.replicas > 1) && !config.weights_file.empty()) {
    arguments.insert(arguments.end(), {"--save-weights", config.weights_file});
  }
  return arguments;
}

/// Starts the program with `fd` as kChildControlFd. Returns 0 or an errno.
int spawn(std::vector<std::string> arguments, int fd, pid_t& pid) {
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, fd, kChildControlFd);
  posix_spawnattr_t attributes;  // unblocks signals: they end a node until it blocks them itself
  posix_spawnattr_init(&attributes);
  sigset_t none;
  sigemptyset(&none);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
  const int error = posix_spawn(&pid, argv[0], &actions, &attributes, argv.data(), environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  return error;
}

}  // namespace

NodeProcess::NodeProcess(NodeProcess&& other) noexcept
    : pid(std::exchange(other.pid, -1)), control(std::move(other.control)), exited(other.exited) {}

NodeProcess::~NodeProcess() {
  if (pid < 0) return;
  if (!exited) kill(pid, SIGKILL);
  waitpid(pid, nullptr, 0);
}

NodeProcess start_node(const Config& config, const std::string& program, int rank) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    throw gpusock::Error(errno, "cannot make a socket pair");
  }
  if (ends[1] == kChildControlFd) {  // duplicating it onto itself would keep close-on-exec
    ends[1] = fcntl(kChildControlFd, F_DUPFD_CLOEXEC, kChildControlFd + 1);
    ::close(kChildControlFd);
  }
  pid_t pid = -1;
  const int error = spawn(node_arguments(config, program, rank), ends[1], pid);
  ::close(ends[1]);
  if (error != 0) {
    ::close(ends[0]);
    throw gpusock::Error(error, "cannot start " + program);
  }
  return {pid, ends[0]};
}

}  // namespace param_sync
