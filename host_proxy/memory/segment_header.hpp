#pragma once
/// @file The words in a segment, beside its rings: who writes each of them, and who polls it.
///
/// Every ring has two words: `committed` and `consumed` (ringbuf/byte_ring.hpp). Where they lie depends on the link.
/// Only this file says it; all other code gets their addresses in a table::RingPair.
// clang-format off
///
///   link          tx.committed   tx.consumed      rx.committed      rx.consumed
///   tcp, fabric   callers'       ProxyWords       ProxyWords        callers'
///   verbs         callers'       ProxyWords       rx_committed      callers'
///   p2p (maker)   tx_committed   tx_consumed      rx_committed      rx_consumed
///   p2p (peer)    rx_committed   rx_consumed      tx_committed      tx_consumed
///
/// The callers' words (callers write, the proxy polls) and ProxyWords (the proxy writes, callers poll) belong to the
/// socket table, in pinned host memory. If a MirroredLink copies the rings, callers poll the word in ProxyWords. On
/// verbs with rings in device memory they poll the same word, or nic_committed if it may lie beside the rings
/// (links/verbs/device_rings.hpp). The other words are in this header, which is in host memory wherever the rings are.
/// The names tx and rx are its maker's. On p2p with rings in a GPU's memory, callers (kernels of that GPU) write and
/// poll the DeviceWords instead. Each writer also stores what it has written into the header's word of the same name,
/// which the proxies read. Between two GPUs each side has a segment in its own GPU's memory, of which its rx ring,
/// rx_committed and tx_consumed are used:
///
///   p2p (2 GPUs)  the peer's       tx_consumed      rx_committed      the peer's
///                 rx_committed                                        tx_consumed
///
/// If the two sides are two processes, their segments share one header, that of a slot of the host rings. It has the
/// copies of all four words, under the names of the row "p2p (maker)".
///
///   word          written by                          polled by
///   rx_committed  p2p: the peer's callers             callers
///                 verbs: the peer's NIC      callers and the proxy
///   tx_consumed   p2p: the peer's callers             callers
///                 verbs: the peer's NIC, in  the proxy
///                 bytes from the connection's first
///   rx_consumed   p2p: callers                        the peer's callers
///   tx_committed  p2p: callers                        the peer's callers
///   nic_committed verbs: the peer's NIC, after the    callers (kernels)
///                 bytes; rx_committed follows
///   own_credit    fabric: the proxy                   no poller: the fabric writes it into peer_credit of the peer
///   peer_credit   fabric: the peer's fabric           the proxy, after its completion
// clang-format on

#include "ringbuf/atomics.hpp"

#include <cstddef>
#include <cstdint>

namespace gpusock::proxy {

struct SegmentHeader {
  struct alignas(ringbuf::kWordStride) Word {
    std::uint64_t value;
  };
  /// Both numbers only grow.
  struct Credit {
    std::uint64_t consumed = 0;   ///< bytes of the connection that were consumed
    std::uint64_t fragments = 0;  ///< fragments taken
  };
  static constexpr std::size_t kBytes = 4096;

  // What a peer's NIC may write on the verbs link, from here to rx_consumed.
  Word rx_committed;
  Word tx_consumed;

  Word rx_consumed;
  Word tx_committed;
  /// Used if the rings are in the file. If they are in memory of a GPU, OwnDeviceWords has this word.
  Word nic_committed;
  alignas(ringbuf::kWordStride) Credit own_credit;
  std::byte unused[kBytes - 5 * ringbuf::kWordStride - 2 * sizeof(Credit)];
  /// Last, before the rx ring: the fabric link registers the two in one piece.
  Credit peer_credit;
};
static_assert(sizeof(SegmentHeader) == SegmentHeader::kBytes);
static_assert(offsetof(SegmentHeader, peer_credit) + sizeof(SegmentHeader::Credit) == SegmentHeader::kBytes);

/// The words of p2p in device memory. No host thread reaches them, so they are not set before a connection
/// (RingMemory::words_are_kept).
struct DeviceWords {
  SegmentHeader::Word rx_committed;
  SegmentHeader::Word tx_consumed;
  SegmentHeader::Word rx_consumed;
  SegmentHeader::Word tx_committed;
};

/// The words that a segment has beside its own rings in device memory.
struct OwnDeviceWords {
  DeviceWords shared;
  SegmentHeader::Word nic_committed;
};

}  // namespace gpusock::proxy
