#pragma once
/// @file Which port of which RDMA device an IP address of this host belongs to, and how the port is addressed.

#include <infiniband/verbs.h>
#include <sys/socket.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace gpusock::rdma {

/// A port, and what connections on it are made with.
struct Port {
  std::string device;  ///< "mlx5_0", "rxe0"
  std::uint8_t number = 1;
  bool ethernet = false;  ///< RoCE v2, else InfiniBand
  std::uint8_t gid_index = 0;
  ibv_gid gid{};
  std::uint16_t lid = 0;  ///< InfiniBand
  std::uint16_t pkey_index = 0;
  ibv_mtu mtu = IBV_MTU_1024;  ///< active
};

/// A device and port, and the partition (0: none is known).
struct Place {
  std::string device;
  std::uint8_t port = 1;
  std::uint16_t pkey = 0;
};

/// Where this local address is, asked of librdmacm. A loopback address is on the first port that is up. Nothing where
/// there is no such device; `reason` then says why.
std::optional<Place> find_place(const sockaddr& local, std::string& reason);

/// The GID to use of an Ethernet port: RoCE v2 with this address; for a loopback address RoCE v2 over IPv4 before IPv6.
std::optional<ibv_gid_entry> choose_gid(std::span<const ibv_gid_entry> entries, std::uint32_t port,
                                        const sockaddr& local);

/// How the port at this place is addressed. Throws std::system_error where it cannot be used.
Port describe_port(ibv_context* device, const Place& place, const sockaddr& local);

/// True for 127.0.0.0/8 and ::1.
bool is_loopback(const sockaddr& address);

}  // namespace gpusock::rdma
