#include "host_proxy/base/standard_error.hpp"

#include "host_proxy/base/descriptor.hpp"
#include "host_proxy/base/signals.hpp"

#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

namespace gpusock::proxy {
namespace {

bool write_to(int descriptor, const std::string& text) {
  const FileSizeSignalBlocked blocked;  // it may be a file
  return ::write(descriptor, text.data(), text.size()) >= 0;
}

/// Opens the pipe or terminal again for this one write: O_NONBLOCK on descriptor 2 itself would change it for every
/// other writer, and a descriptor that is kept would keep the pipe open after the program has closed its own.
bool try_write(const std::string& text) {
  struct stat facts {};
  if (fstat(STDERR_FILENO, &facts) != 0) return false;
  if (S_ISREG(facts.st_mode)) return write_to(STDERR_FILENO, text);
  if (S_ISSOCK(facts.st_mode)) return ::send(STDERR_FILENO, text.data(), text.size(), MSG_DONTWAIT | MSG_NOSIGNAL) >= 0;
  const Descriptor again(::open("/proc/self/fd/2", O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  if (again) return write_to(again.get(), text);
  pollfd room{STDERR_FILENO, POLLOUT, 0};  // another user's, or there is no /proc: then it can only be known whether
                                           // there is room now
  return ::poll(&room, 1, 0) == 1 && (room.revents & POLLOUT) != 0 && write_to(STDERR_FILENO, text);
}

}  // namespace

void StandardError::write(std::string line) {
  if (dropped_ != 0)
    line.insert(0, "gpusock: " + std::to_string(dropped_) + " line(s) were lost: standard error was full\n");
  if (line.size() > PIPE_BUF) {  // more than a pipe takes in one piece
    line.resize(PIPE_BUF - 4);
    line += "...\n";
  }
  dropped_ = try_write(line) ? 0 : dropped_ + 1;
}

}  // namespace gpusock::proxy
