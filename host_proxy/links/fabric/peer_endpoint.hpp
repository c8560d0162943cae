#pragma once
/// @file One endpoint of this context, used for one other context alone, with all the connections between the two.
///
/// There is an endpoint for each peer, and not one for all: a peer that can write to an endpoint can send completion
/// data for any of the endpoint's connections. So a peer that lies reaches its own connections only.

#include "host_proxy/links/fabric/channel.hpp"
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
  const Identity& pair() const { return pair_; }     ///< what both sides call each other
  const std::string& name() const { return name_; }  ///< of the provider, for people

  /// The peer's endpoint as write() names it. The peer may have made a new one. 0, or a negated errno.
  int find_address(std::span<const std::byte> address, std::uint64_t& peer);

  /// Gives a connection an index. Throws Error (ENOBUFS) where all are in use or were left in the middle of writes.
  std::uint32_t add(FabricChannel& channel);
  /// The connection is over. Unless nothing is under way any more (`settled`), its index is not used again, and its
  /// memory stays registered until its `writes` from here are complete, and until kLeftoverNs have gone by or
  /// kLeftoverMax others have been left like that: many fabrics answer a late write to unknown memory by breaking all
  /// that goes between the two endpoints.
  void remove(std::uint32_t index, FabricMemory memory, bool settled, int writes);
  /// True if it has no connection now.
  bool idle() const { return connections_ == 0; }
  /// How many connections it has had.
  std::uint64_t connections_made() const { return connections_made_; }
  /// Revokes the peer's keys to the memory of connections that were reset. No connection may be made after it.
  void revoke();
  /// Frees what reset connections have left, once that is safe. Call it now and then, with any clock that only grows.
  void maintain(std::uint64_t now_ns);
  /// True if no connection can be made on it any more: further ones need another endpoint.
  bool exhausted() const { return broken_ || (free_.empty() && next_index_ == kConnectionsMax); }

  int write(const FabricWrite& write, FabricChannel& channel);

  /// How long a late write may take: an honest peer learns of a reset at once, and its fabric gives a write up sooner.
  static constexpr std::uint64_t kLeftoverNs = 10'000'000'000;

  /// Takes what has completed; true if anything has. Where there is no memory for that, all connections fail (ENOMEM):
  /// a completion that is lost may be the one that they wait for.
  bool poll();
  /// True if the thread may sleep until the port's descriptor becomes readable; else poll() may have something to do.
  bool may_sleep();

 private:
  static constexpr std::size_t kAddressesMax = 64;
  static constexpr std::size_t kLeftoverMax = 16;
  static constexpr int kLastReads = 64;

  /// A connection that was reset: what was going on then may be going on still.
  struct Leftover {
    std::uint32_t index;
    int writes;
    FabricMemory memory;
    std::uint64_t until_ns = 0;  // 0: not known yet
  };

  bool take_completions();
  void take(const Completion& completion);
  void fail_all(int error, const std::string& reason);
  void note_written(std::uint64_t token);
  void forget_leftovers();
  FabricChannel* channel_of(std::uint64_t index) const { return index < channels_.size() ? channels_[index] : nullptr; }

  std::list<Leftover> leftovers_;
  std::list<Leftover> places_for_leftovers_;  // a place in leftovers_ for each connection: its destructor allocates
                                              // nothing
  std::unique_ptr<FabricPort> port_;
  Identity pair_;
  std::string name_;
  std::vector<FabricChannel*> channels_;  // by index
  std::vector<std::uint32_t> free_;
  std::uint32_t next_index_ = 0;
  std::uint32_t connections_ = 0;
  std::uint64_t connections_made_ = 0;
  bool broken_ = false;
  std::vector<FabricChannel*> refused_;  // to be notified that they may try again
  std::vector<Completion> completions_;
  struct Address {
    std::vector<std::byte> bytes;
    std::uint64_t peer;
  };
  std::vector<Address> addresses_;
};

}  // namespace gpusock::proxy::fabric
