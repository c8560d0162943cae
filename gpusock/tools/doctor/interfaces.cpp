#include "gpusock/tools/doctor/sources.hpp"

#include <ifaddrs.h>
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <memory>

namespace gpusock::doctor {
namespace {

/// Asks the kernel about one interface.
class Interrogation {
 public:
  explicit Interrogation(const std::string& name) : socket_(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {
    std::strncpy(request_.ifr_name, name.c_str(), IFNAMSIZ - 1);
  }
  ~Interrogation() {
    if (socket_ >= 0) close(socket_);
  }
  Interrogation(const Interrogation&) = delete;
  Interrogation& operator=(const Interrogation&) = delete;

  long mtu() { return ioctl(socket_, SIOCGIFMTU, &request_) == 0 ? request_.ifr_mtu : 0; }

  long mbit_per_s() {
    ethtool_cmd link{};
    link.cmd = ETHTOOL_GSET;
    request_.ifr_data = reinterpret_cast<char*>(&link);
    if (ioctl(socket_, SIOCETHTOOL, &request_) != 0) return 0;
    const std::uint32_t speed = ethtool_cmd_speed(&link);
    return speed == static_cast<std::uint32_t>(SPEED_UNKNOWN) ? 0 : speed;
  }

 private:
  int socket_;
  ifreq request_{};
};

}  // namespace

std::vector<Interface> ask_interfaces() {
  ifaddrs* first = nullptr;
  if (getifaddrs(&first) != 0) return {};
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> all(first, freeifaddrs);
  std::vector<Interface> interfaces;
  for (const ifaddrs* entry = first; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || entry->ifa_addr->sa_family != AF_PACKET)
      continue;  // each interface has one such entry
    constexpr unsigned kUsable = IFF_UP | IFF_RUNNING;
    Interrogation asked(entry->ifa_name);
    interfaces.push_back({entry->ifa_name, (entry->ifa_flags & IFF_LOOPBACK) != 0,
                          (entry->ifa_flags & kUsable) == kUsable, asked.mtu(), asked.mbit_per_s()});
  }
  std::sort(interfaces.begin(), interfaces.end(),
            [](const Interface& a, const Interface& b) { return a.name < b.name; });
  return interfaces;
}

}  // namespace gpusock::doctor
