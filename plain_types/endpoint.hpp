#pragma once
/// @file Where a socket listens or connects: an address, a port and the link to use. Plain data that kernels take by
/// value.

#include "ringbuf/annotations.hpp"

#include <cstdint>
#include <iosfwd>
#include <string>
#include <string_view>

namespace gpusock {

/// What carries the bytes between a socket's rings and its peer.
enum class LinkKind : std::uint8_t {
  automatic,  ///< the best link that both peers have, agreed on by a handshake
  p2p,        ///< shared memory between processes (or contexts) of one host
  tcp,        ///< the kernel's TCP with raw bytes: any TCP program can be the peer
  fabric,     ///< libfabric: one-sided writes into the peer's ring
  verbs,      ///< RDMA queue pairs: the network card writes into the peer's ring
};
inline constexpr int kLinkKinds = 5;  ///< how many there are, `automatic` among them

/// What a connection carries.
enum class SocketType : std::uint8_t {
  stream,     ///< bytes in order (SOCK_STREAM)
  seqpacket,  ///< records in order, each received as it was sent (SOCK_SEQPACKET); between gpusock peers only
};

inline constexpr std::uint64_t kRingBytesMin = 4 << 10;   ///< the smallest ring, bytes; all are powers of two
inline constexpr std::uint64_t kRingBytesMax = 64 << 20;  ///< the largest ring, bytes

/// True if rings can have this capacity.
GPUSOCK_FN constexpr bool is_ring_size(std::uint64_t bytes) {
  return bytes >= kRingBytesMin && bytes <= kRingBytesMax && (bytes & (bytes - 1)) == 0;
}

/// The link's name as Endpoint::parse takes it: "auto", "p2p", "verbs", "fabric", "tcp".
std::string_view to_string(LinkKind link);

/// The link of that name; throws Error (EINVAL) that lists the names.
LinkKind parse_link(std::string_view name);

namespace detail {
/// The link of an endpoint that names none: that of GPUSOCK_LINK, or auto if the variable is unset or empty. Throws
/// Error (EINVAL) that names the variable and the links.
LinkKind default_link();
}  // namespace detail

/// An IPv4 or IPv6 address with a port, and how connections there are carried: an Endpoint without further addresses.
/// The shared tables store the ends of a connection in this form. Trivially copyable; 32 bytes.
struct ResolvedEndpoint {
  std::uint8_t address[16] = {};        ///< network byte order; the first 4 bytes for IPv4
  std::uint32_t scope_id = 0;           ///< IPv6 link-local interface index
  std::uint16_t port = 0;               ///< host byte order; 0 lets listen() pick one
  std::uint8_t family = 0;              ///< 4, 6, or 0 for none
  LinkKind link = LinkKind::automatic;  ///< what is to carry the bytes
  std::uint32_t ring_bytes = 0;  ///< capacity of each of a connection's rings; 0: the context's (Options::ring_bytes)
  SocketType type = SocketType::stream;  ///< what a connection carries
  std::uint8_t reserved[3] = {};         ///< zero

  /// The endpoint as text: "127.0.0.1:7000,link=tcp", "[::1]:7000,link=auto,ring=64K,type=seqpacket"; "none" if there
  /// is no address. An unset ring and type=stream are left out.
  std::string to_string() const;

  /// The address and the port: "127.0.0.1:7000" or "[::1]:7000"; "none" if there is no address.
  std::string host_port() const;

  /// True if connections are plain TCP without a handshake, so that any program can be the peer: link=tcp and no
  /// records. (Records on link=tcp are agreed on in a handshake.)
  GPUSOCK_FN bool is_plain_tcp() const { return link == LinkKind::tcp && type == SocketType::stream; }

  /// True if the address is one of this host alone (127.0.0.0/8, ::1).
  bool is_loopback() const;

  /// True if all fields are equal.
  friend bool operator==(const ResolvedEndpoint&, const ResolvedEndpoint&) = default;
};
static_assert(sizeof(ResolvedEndpoint) == 32);

/// One more address of an endpoint's host.
struct HostAddress {
  std::uint8_t address[16] = {};  ///< as ResolvedEndpoint has it
  std::uint32_t scope_id = 0;     ///< as ResolvedEndpoint has it
  std::uint8_t family = 0;        ///< 4, 6, or 0 for none
  std::uint8_t reserved[3] = {};  ///< zero

  /// True if all fields are equal.
  friend bool operator==(const HostAddress&, const HostAddress&) = default;
};

/// Where to listen or connect: a host of up to four addresses, a port, and how connections there are carried. The base
/// has the address to try first; Net::connect and Net::listen say when they go on to `further`. Trivially copyable; 104
/// bytes.
struct Endpoint : ResolvedEndpoint {
  static constexpr int kFurtherMax = 3;  ///< how many there may be in `further`
  HostAddress further[kFurtherMax];      ///< in the order in which they are tried; the first of family 0 ends the list

  /// Parses "host:port[,link=auto|p2p|verbs|fabric|tcp][,ring=64K][,type=stream|seqpacket][,or=ADDRESS]...". `host` is
  /// an IPv4 address, an IPv6 address in brackets, or a name (looked up here, on the calling host thread). If a name
  /// has several addresses, the endpoint keeps the first four, in the order of getaddrinfo (RFC 6724). If those are all
  /// IPv4 or all IPv6, the first address of the other family replaces the fourth. Each `or=` adds an address to try
  /// after those of the host, up to four in all. Without `link=`, the link is that of GPUSOCK_LINK, else auto. The
  /// value of `ring=` is a power of two from 4K to 64M. Records (`type=seqpacket`) need a peer that speaks gpusock, on
  /// every link. The text that to_string() makes of the result parses to an equal endpoint, whatever GPUSOCK_LINK is.
  /// Throws Error (EINVAL for syntax or a wrong GPUSOCK_LINK, ENOENT for an unknown name) with a message that says what
  /// is wrong.
  static Endpoint parse(std::string_view text);

  /// The endpoint of this host (as parse() takes it, with or without brackets) and port. The following functions add
  /// the rest: `Endpoint::of("127.0.0.1", 7000).with_link(LinkKind::tcp)`. At first the link is that of GPUSOCK_LINK,
  /// else auto. Throws Error as parse() does.
  static Endpoint of(std::string_view host, std::uint16_t port);

  /// The same endpoint with another port. Kernels may call this function and the next three, too.
  GPUSOCK_FN Endpoint with_port(std::uint16_t to) const {
    Endpoint changed = *this;
    changed.port = to;
    return changed;
  }
  /// The same endpoint with another link.
  GPUSOCK_FN Endpoint with_link(LinkKind to) const {
    Endpoint changed = *this;
    changed.link = to;
    return changed;
  }
  /// The same endpoint with rings of this size: a power of two from kRingBytesMin to kRingBytesMax, or 0 for the
  /// context's. listen and connect return -EINVAL for another size.
  GPUSOCK_FN Endpoint with_ring_bytes(std::uint32_t to) const {
    Endpoint changed = *this;
    changed.ring_bytes = to;
    return changed;
  }
  /// The same endpoint for streams or records.
  GPUSOCK_FN Endpoint with_type(SocketType to) const {
    Endpoint changed = *this;
    changed.type = to;
    return changed;
  }

  /// The endpoint as text that parse() takes: that of ResolvedEndpoint::to_string(), and `,or=` with each further
  /// address.
  std::string to_string() const;

  /// How many addresses there are: 0 to 4.
  int addresses() const;

  /// The same endpoint with its address number `index` alone; `index` is less than addresses().
  Endpoint at_address(int index) const;

  /// True if all fields are equal.
  friend bool operator==(const Endpoint&, const Endpoint&) = default;
};

/// Writes the to_string() of an endpoint.
std::ostream& operator<<(std::ostream& out, const ResolvedEndpoint& endpoint);
std::ostream& operator<<(std::ostream& out, const Endpoint& endpoint);  ///< the same

}  // namespace gpusock
