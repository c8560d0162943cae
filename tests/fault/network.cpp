#include "network.hpp"

#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <system_error>
#include <vector>

namespace gpusock::fault {
namespace {

constexpr const char* kLoopback = "lo";

/// What may be taken down; empty: nothing.
std::vector<std::string> interfaces;
bool is_own = false;
bool tcp_gives_up = false;

/// How often TCP tries again before it gives a connection up: by default for a quarter of an hour. In a network of our
/// own that is down, once: the tests wait for it. While it is up, TCP must keep its patience: where processors are
/// busy, it would give up connections to peers that are only slow, or stopped.
constexpr const char* kTriesByDefault = "15";
constexpr const char* kTriesWhileDown = "1";

void set_interface_up(const std::string& interface, bool up) {
  const int any = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  ifreq request{};
  interface.copy(request.ifr_name, IFNAMSIZ - 1);
  request.ifr_flags = up ? IFF_UP : 0;
  const int result = ioctl(any, SIOCSIFFLAGS, &request);
  const int error = errno;
  close(any);
  if (result != 0)
    throw std::system_error(error, std::generic_category(), (up ? "bringing up " : "taking down ") + interface);
}

bool set_tcp_tries(const char* tries) {
  std::FILE* file = std::fopen("/proc/sys/net/ipv4/tcp_retries2", "w");
  if (file == nullptr) return false;
  const bool written = std::fputs(tries, file) >= 0;
  return std::fclose(file) == 0 && written;
}

}  // namespace

bool enter_own_network() {
  if (const char* named = std::getenv("GPUSOCK_TEST_NETDEV")) {
    // Both ends are on this machine. The system carries TCP between its own addresses on the loopback, also if the
    // interface that has an address is down. Without the loopback a connection cannot even do its handshake.
    interfaces = {named, kLoopback};
    return true;
  }
  // Root needs no user namespace; others do, and may be denied one.
  if (unshare(CLONE_NEWNET) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0) {
    std::fprintf(stderr, "no network of its own (%s): tests that cut it are skipped\n", std::strerror(errno));
    return false;
  }
  interfaces = {kLoopback};
  set_network_up(true);
  is_own = true;
  tcp_gives_up = set_tcp_tries(kTriesByDefault);
  return true;
}

bool can_cut_network() { return !interfaces.empty(); }

bool has_own_network() { return is_own; }

bool can_lose_network() { return tcp_gives_up; }

bool has_nic(const std::string& link) {
  const char* provider = std::getenv("GPUSOCK_FABRIC_PROVIDER");
  return link == "verbs" || (link == "fabric" && provider != nullptr && std::string(provider) == "verbs");
}

void set_network_up(bool up) {
  for (const std::string& interface : interfaces) set_interface_up(interface, up);
  if (tcp_gives_up) set_tcp_tries(up ? kTriesByDefault : kTriesWhileDown);
}

}  // namespace gpusock::fault
