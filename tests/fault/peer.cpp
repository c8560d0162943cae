#include "peer.hpp"

#include "kernel_peer.hpp"
#include "obedient_peer.hpp"

#include "tests/support/patience.hpp"
#include "tests/support/shm_leftovers.hpp"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <system_error>

extern char** environ;

namespace gpusock::fault {
namespace {

void require(bool holds, const char* what) {
  if (!holds) throw std::system_error(errno, std::generic_category(), what);
}

void wait_for_end_of_input() {
  char byte;
  while (::read(STDIN_FILENO, &byte, 1) > 0) {
  }
}

}  // namespace

int be_peer(const std::string& role, const std::string& endpoint) {
  if (role == "plain" || role == "gpusock") return obey(role == "plain");
  if (role == "kernel") return echo_in_kernel(endpoint);
  Context context(patient_options());
  const Net net = context.net();
  const Socket listener = net.listen(this_thread(), Endpoint::parse(endpoint), 16, patience());
  Endpoint local;
  if (listener < 0 || net.getsockname(listener, local) != 0) return 1;
  std::puts(local.host_port().c_str());
  std::fflush(stdout);
  wait_for_end_of_input();
  return 0;
}

Peer::Peer(const std::string& role, const std::string& endpoint) {
  int in[2], out[2];
  require(pipe2(in, O_CLOEXEC) == 0 && pipe2(out, O_CLOEXEC) == 0, "pipe2");
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, in[0], STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
  std::string self = "/proc/self/exe", flag = "--peer", of_role = role, at = endpoint;
  char* const arguments[] = {self.data(), flag.data(), of_role.data(), at.data(), nullptr};
  const int error = posix_spawn(&process_, self.c_str(), &actions, nullptr, arguments, environ);
  posix_spawn_file_actions_destroy(&actions);
  close(in[0]);
  close(out[1]);
  to_peer_ = in[1];
  from_peer_ = out[0];
  if (error != 0) throw std::system_error(error, std::generic_category(), "posix_spawn");
}

Peer::~Peer() {
  kill_and_wait();
  close(to_peer_);
  close(from_peer_);
}

void Peer::say(const std::string& command) const {
  const std::string line = command + "\n";
  require(::write(to_peer_, line.data(), line.size()) == static_cast<ssize_t>(line.size()), "writing to the peer");
}

void Peer::stop() const {
  ::kill(process_, SIGSTOP);
  waitpid(process_, nullptr, WUNTRACED);  // its threads go on until each has taken the signal
}

void Peer::go_on() const { ::kill(process_, SIGCONT); }

#if defined(GPUSOCK_DEVICE_CUDA) && !defined(GPUSOCK_CUDA_DOUBLE)
void Peer::stop_host() const { stop(); }
void Peer::let_host_go_on() const { go_on(); }
#else
void Peer::stop_host() const {
  say("stop");
  require(read_line() == "stop", "stopping the peer");
}
void Peer::let_host_go_on() const {
  say("go_on");
  require(read_line() == "go_on", "letting the peer go on");
}
#endif

void Peer::kill_and_wait() {
  if (process_ < 0) return;
  ::kill(process_, SIGKILL);
  waitpid(process_, nullptr, 0);
  remove_shm_files_of(process_);
  process_ = -1;
}

std::string Peer::read_line() const {
  std::string line;
  char byte;
  while (::read(from_peer_, &byte, 1) == 1 && byte != '\n') line += byte;
  return line;
}

}  // namespace gpusock::fault
