#pragma once
/// @file Finds the RDMA device and port to which an IP address of this host belongs, and the port's RDMA addresses.

#include <infiniband/verbs.h>
#include <sys/socket.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace gpusock::rdma {

/// A port, and the parameters of connections on it.
struct Port {
  std::string device;  ///< "mlx5_0", "rxe0"
  std::uint8_t number = 1;
  bool ethernet = false;  ///< true: RoCE v2; false: InfiniBand
  std::uint8_t gid_index = 0;
  ibv_gid gid{};
  std::uint16_t lid = 0;  ///< on InfiniBand
  std::uint16_t pkey_index = 0;
  ibv_mtu mtu = IBV_MTU_1024;  ///< active
};

/// A device, its port, and the partition (0: unknown).
struct PortId {
  std::string device;
  std::uint8_t port = 1;
  std::uint16_t pkey = 0;
};

/// Asks librdmacm for the device and port of a local address. A loopback address is on the first port that is up.
/// Returns nothing if there is no such device or port; `reason` then says why.
std::optional<PortId> find_port(const sockaddr& local, std::string& reason);

/// The RoCE v2 GID of this address on an Ethernet port. For a loopback address, any RoCE v2 GID, preferably of IPv4.
std::optional<ibv_gid_entry> choose_gid(std::span<const ibv_gid_entry> entries, std::uint32_t port,
                                        const sockaddr& local);

/// Returns the addresses and parameters of the port with this id. Throws std::system_error if it cannot be used.
Port describe_port(ibv_context* device, const PortId& port_id, const sockaddr& local);

/// True for 127.0.0.0/8 and ::1.
bool is_loopback(const sockaddr& address);

}  // namespace gpusock::rdma
