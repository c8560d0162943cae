#include "network.hpp"

#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <system_error>

namespace gpusock::fault {
namespace {

bool own_network = false;

}  // namespace

bool enter_own_network() {
  // Root needs no user namespace; others do, and may be denied one.
  own_network = unshare(CLONE_NEWNET) == 0 || unshare(CLONE_NEWUSER | CLONE_NEWNET) == 0;
  if (!own_network) {
    std::fprintf(stderr, "no network of its own (%s): tests that cut it are skipped\n", std::strerror(errno));
    return false;
  }
  set_network_up(true);
  return true;
}

bool in_own_network() { return own_network; }

void set_network_up(bool up) {
  const int any = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  ifreq request{};
  std::strcpy(request.ifr_name, "lo");
  request.ifr_flags = up ? IFF_UP : 0;
  const int result = ioctl(any, SIOCSIFFLAGS, &request);
  const int error = errno;
  close(any);
  if (result != 0) throw std::system_error(error, std::generic_category(), up ? "bringing lo up" : "taking lo down");
}

}  // namespace gpusock::fault
