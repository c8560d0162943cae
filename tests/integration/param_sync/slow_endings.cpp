/// @file Is loaded into a program before its libraries (LD_PRELOAD). It acts as an operating system that needs long to
/// free a process that has ended: waitpid() returns only when somebody has opened the named pipe SLOW_ENDINGS_GATE to
/// write.

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

extern "C" pid_t waitpid(pid_t pid, int* status, int options) {
  int here = 0;
  const pid_t got = wait4(pid, &here, options, nullptr);
  const char* const gate = std::getenv("SLOW_ENDINGS_GATE");
  if (gate != nullptr && got > 0 && (WIFEXITED(here) || WIFSIGNALED(here))) close(open(gate, O_RDONLY));
  if (status != nullptr) *status = here;
  return got;
}
