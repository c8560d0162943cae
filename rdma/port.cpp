#include "rdma/port.hpp"

#include "rdma/error.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <rdma/rdma_cma.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <vector>

namespace gpusock::rdma {
namespace {

struct DeviceListDeleter {
  void operator()(ibv_device** list) const { ibv_free_device_list(list); }
};
struct ContextDeleter {
  void operator()(ibv_context* context) const { ibv_close_device(context); }
};
struct IdDeleter {
  void operator()(rdma_cm_id* id) const { rdma_destroy_id(id); }
};

const sockaddr_in& as_ipv4(const sockaddr& address) { return reinterpret_cast<const sockaddr_in&>(address); }
const sockaddr_in6& as_ipv6(const sockaddr& address) { return reinterpret_cast<const sockaddr_in6&>(address); }

std::string to_text(const sockaddr& address) {
  char text[INET6_ADDRSTRLEN] = "?";
  const void* bytes = address.sa_family == AF_INET ? static_cast<const void*>(&as_ipv4(address).sin_addr)
                                                   : &as_ipv6(address).sin6_addr;
  inet_ntop(address.sa_family, bytes, text, sizeof text);
  return text;
}

/// The RoCE v2 GID of an IP address: an IPv6 address itself, or ::ffff:a.b.c.d for an IPv4 address.
ibv_gid gid_of(const sockaddr& address) {
  ibv_gid gid{};
  if (address.sa_family == AF_INET) {
    gid.raw[10] = gid.raw[11] = 0xff;
    std::memcpy(gid.raw + 12, &as_ipv4(address).sin_addr, 4);
  } else {
    std::memcpy(gid.raw, &as_ipv6(address).sin6_addr, 16);
  }
  return gid;
}

bool is_ipv4(const ibv_gid& gid) {
  static constexpr std::uint8_t kPrefix[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  return std::memcmp(gid.raw, kPrefix, sizeof kPrefix) == 0;
}

/// Throws if memory or descriptors ran out: such an error does not mean that there is no device.
void fail_if_short(int error, const char* what) {
  if (error == ENOMEM || error == EMFILE || error == ENFILE) fail(error, what);
}

std::optional<PortId> first_port_up(std::string& reason) {
  int count = 0;
  errno = 0;
  const std::unique_ptr<ibv_device*, DeviceListDeleter> list(ibv_get_device_list(&count));
  if (list == nullptr) fail_if_short(errno, "listing the RDMA devices");
  for (int i = 0; list != nullptr && i < count; ++i) {
    const std::unique_ptr<ibv_context, ContextDeleter> context(ibv_open_device(list.get()[i]));
    if (context == nullptr) fail_if_short(errno, "opening an RDMA device");
    if (context == nullptr) continue;
    ibv_device_attr device{};
    const int asked = ibv_query_device(context.get(), &device);
    fail_if_short(asked, "asking how many ports an RDMA device has");
    for (std::uint8_t port = 1; asked == 0 && port <= device.phys_port_cnt; ++port) {
      ibv_port_attr facts{};
      const int told = ibv_query_port(context.get(), port, &facts);
      fail_if_short(told, "asking whether a port of an RDMA device is up");
      if (told == 0 && facts.state == IBV_PORT_ACTIVE) return PortId{ibv_get_device_name(list.get()[i]), port, 0};
    }
  }
  reason = count == 0 ? "this machine has no RDMA device" : "no port of an RDMA device is up (ibv_devinfo shows them)";
  return std::nullopt;
}

std::uint16_t find_pkey_index(ibv_context* device, std::uint8_t port, int table_length, std::uint16_t pkey) {
  constexpr std::uint16_t kMembership = 0x8000, kDefault = 0x7fff;
  const std::uint16_t wanted = pkey == 0 ? kDefault : pkey & ~kMembership;
  for (int index = 0; index < table_length; ++index) {
    __be16 entry = 0;
    if (ibv_query_pkey(device, port, index, &entry) == 0 && (ntohs(entry) & ~kMembership) == wanted) {
      return static_cast<std::uint16_t>(index);
    }
  }
  return 0;
}

}  // namespace

bool is_loopback(const sockaddr& address) {
  return address.sa_family == AF_INET ? (ntohl(as_ipv4(address).sin_addr.s_addr) >> 24) == 127
                                      : IN6_IS_ADDR_LOOPBACK(&as_ipv6(address).sin6_addr) != 0;
}

std::optional<PortId> find_port(const sockaddr& local, std::string& reason) {
  if (is_loopback(local)) return first_port_up(reason);
  rdma_cm_id* made = nullptr;
  if (rdma_create_id(nullptr, &made, nullptr, RDMA_PS_TCP) != 0) {
    fail_if_short(errno, "opening librdmacm");
    reason = errno == ENODEV || errno == ENOENT
                 ? "this machine has no RDMA device"
                 : std::string("librdmacm: ") + std::strerror(errno) + " (is /dev/infiniband/rdma_cm there?)";
    return std::nullopt;
  }
  const std::unique_ptr<rdma_cm_id, IdDeleter> id(made);
  sockaddr_storage address{};
  std::memcpy(&address, &local, local.sa_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6));
  if (local.sa_family == AF_INET) {
    reinterpret_cast<sockaddr_in&>(address).sin_port = 0;  // any port: nothing listens on it
  } else {
    reinterpret_cast<sockaddr_in6&>(address).sin6_port = 0;
  }
  const int bound = rdma_bind_addr(id.get(), reinterpret_cast<sockaddr*>(&address));
  if (bound != 0) fail_if_short(errno, "looking for the RDMA device of an address");
  if (bound != 0 || id->verbs == nullptr) {
    reason = "no RDMA device has the address " + to_text(local) + " (rdma link shows which interfaces have one)";
    return std::nullopt;
  }
  return PortId{ibv_get_device_name(id->verbs->device), id->port_num, ntohs(id->route.addr.addr.ibaddr.pkey)};
}

std::optional<ibv_gid_entry> choose_gid(std::span<const ibv_gid_entry> entries, std::uint32_t port,
                                        const sockaddr& local) {
  const ibv_gid wanted = gid_of(local);
  const bool any = is_loopback(local);
  std::optional<ibv_gid_entry> best;
  for (const ibv_gid_entry& entry : entries) {
    if (entry.port_num != port || entry.gid_type != IBV_GID_TYPE_ROCE_V2) continue;
    if (!any && std::memcmp(entry.gid.raw, wanted.raw, sizeof wanted.raw) == 0) return entry;
    if (any && (!best || (is_ipv4(entry.gid) && !is_ipv4(best->gid)))) best = entry;
  }
  return best;
}

Port describe_port(ibv_context* device, const PortId& port_id, const sockaddr& local) {
  const std::string name = port_id.device + " port " + std::to_string(port_id.port);
  ibv_port_attr facts{};
  if (const int error = ibv_query_port(device, port_id.port, &facts); error != 0)
    fail(error, "asking RDMA device " + name);
  if (facts.state != IBV_PORT_ACTIVE) fail(ENETDOWN, "RDMA device " + name + " is not up");
  Port port{.device = port_id.device, .number = port_id.port};
  port.ethernet = facts.link_layer == IBV_LINK_LAYER_ETHERNET;
  port.lid = facts.lid;
  port.mtu = facts.active_mtu;
  port.pkey_index = find_pkey_index(device, port_id.port, facts.pkey_tbl_len, port_id.pkey);
  std::vector<ibv_gid_entry> entries(static_cast<std::size_t>(facts.gid_tbl_len));
  const ssize_t count = ibv_query_gid_table(device, entries.data(), entries.size(), 0);
  if (count < 0) fail_if_short(static_cast<int>(-count), "asking for the addresses of an RDMA device");
  entries.resize(count > 0 ? static_cast<std::size_t>(count) : 0);
  if (port.ethernet) {
    const auto chosen = choose_gid(entries, port_id.port, local);
    if (!chosen) fail(EADDRNOTAVAIL, "RDMA device " + name + " has no RoCE v2 address for " + to_text(local));
    port.gid = chosen->gid;
    port.gid_index = static_cast<std::uint8_t>(chosen->gid_index);
  } else if (ibv_query_gid(device, port_id.port, 0, &port.gid) != 0) {
    fail(EADDRNOTAVAIL, "RDMA device " + name + " has no GID");
  }
  return port;
}

}  // namespace gpusock::rdma
