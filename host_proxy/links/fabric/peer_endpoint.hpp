#pragma once
/// @file One endpoint of this context, with all the connections to one other context, and no others.
///
/// Each peer has an endpoint of its own, because a peer that can write to an endpoint can send completion data for any
/// of the endpoint's connections. So a peer that lies reaches only its own connections.

#include "host_proxy/links/fabric/transport.hpp"
#include "host_proxy/links/fabric/port.hpp"
#include "host_proxy/net/network.hpp"

#include <cstdint>
#include <list>
#include <memory>
#include <string>
#include <vector>

namespace gpusock::proxy::fabric {

class PeerEndpoint {
 public:
  PeerEndpoint(std::unique_ptr<FabricPort> port, const Identity& pair, std::string name);
  ~PeerEndpoint();
  PeerEndpoint(const PeerEndpoint&) = delete;
  PeerEndpoint& operator=(const PeerEndpoint&) = delete;

  FabricPort& port() { return *port_; }
  const Identity& pair() const { return pair_; }     ///< by which the two sides know each other
  const std::string& name() const { return name_; }  ///< of the provider, for logs

  /// Sets `peer` to the number by which write() names the endpoint at this address; the peer may have opened a new one.
  /// Returns 0, or a negated errno.
  int find_address(std::span<const std::byte> address, std::uint64_t& peer);

  /// Gives a connection an index. Throws Error (ENOBUFS) if all are in use or were left in the middle of writes.
  std::uint32_t add(FabricTransport& transport);
  /// Ends a connection. `settled`: nothing is under way any more. `writes`: how many of this side's writes are not
  /// complete. If something may be under way, the index is not used again, and the memory stays registered until those
  /// writes are complete, and kLeftoverNs have passed or kLeftoverMax later connections were left like this. Many
  /// fabrics answer a late write to unknown memory by breaking all traffic between the two endpoints.
  void remove(std::uint32_t index, FabricMemory memory, bool settled, int writes);
  /// True if it has no connection now.
  bool idle() const { return connections_ == 0; }
  /// How many connections it has had.
  std::uint64_t connections_made() const { return connections_made_; }
  /// Revokes the peer's keys to the memory of connections that were reset. No connection may be made after it.
  void revoke();
  /// Frees what reset connections have left, once that is safe. Call it at intervals, with any clock that only grows.
  void maintain(std::uint64_t now_ns);
  /// True if no connection can be made on it any more: further ones need another endpoint.
  bool exhausted() const { return broken_ || (free_.empty() && next_index_ == kConnectionsMax); }

  int write(const FabricWrite& write, FabricTransport& transport);

  /// How long a late write may take. An honest peer learns of a reset at once, and its fabric gives up writes sooner.
  static constexpr std::uint64_t kLeftoverNs = 10'000'000'000;

  /// Takes completions; true if there were any. If there is no memory for that, all connections fail (ENOMEM), because
  /// a lost completion may be one that they wait for.
  bool poll();
  /// True if the thread may sleep until the port's descriptor becomes readable; else poll() may have something to do.
  bool may_sleep();

 private:
  static constexpr std::size_t kAddressesMax = 64;
  static constexpr std::size_t kLeftoverMax = 16;
  static constexpr int kLastReads = 64;

  /// A connection that was reset. Writes that were under way then may still be under way.
  struct Leftover {
    std::uint32_t index;
    int writes;
    FabricMemory memory;
    std::uint64_t until_ns = 0;  // 0: not set yet
  };

  bool take_completions();
  void take(const Completion& completion);
  void fail_all(int error, const std::string& reason);
  void note_written(std::uint64_t token);
  void forget_leftovers();
  FabricTransport* transport_of(std::uint64_t index) const {
    return index < transports_.size() ? transports_[index] : nullptr;
  }

  std::list<Leftover> leftovers_;
  std::list<Leftover> leftover_nodes_;  // a node of leftovers_ for each connection, so that its destructor
                                        // allocates nothing
  std::unique_ptr<FabricPort> port_;
  Identity pair_;
  std::string name_;
  std::vector<FabricTransport*> transports_;  // by index
  std::vector<std::uint32_t> free_;
  std::uint32_t next_index_ = 0;
  std::uint32_t connections_ = 0;
  std::uint64_t connections_made_ = 0;
  bool broken_ = false;
  std::vector<FabricTransport*> refused_;  // transports that must repeat a write
  std::vector<Completion> completions_;
  struct Address {
    std::vector<std::byte> bytes;
    std::uint64_t peer;
  };
  std::vector<Address> addresses_;
};

}  // namespace gpusock::proxy::fabric
