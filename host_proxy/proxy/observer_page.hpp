#pragma once
/// @file The page of a context that gpusock-top reads: a small file, written by the context's proxy while an
/// observer looks.
///
/// A page is a file `gpusock-<pid>-<number>`, readable by its owner alone. Its context holds an exclusive flock on it
/// as long as it lives, so a page whose lock is free is left over from a process that died. The proxy and observers use
/// read and write, not a mapping, so that a full or truncated file cannot cause a fault.
///
/// Layout: Identity at 0, written once · at kObservedUntilOffset a word that observers write: until when
/// (CLOCK_MONOTONIC) they want news · at kTcpUntilOffset another: until when they want to know the state of the TCP
/// connections, for which the proxy asks the operating system · at kSequenceOffset how many snapshots were published ·
/// two Snapshots from kSnapshotsOffset on, and the Records of both from kRecordsOffset on, written in turn. Snapshot
/// number n is the one with index n mod 2. It stays whole until n + 1 is published, even if the writer is stopped in
/// the middle of the next: a reader reads the sequence before and after. Until an observer comes, the file is one
/// block. That block can be written even if the folder is full.
///
/// Nothing in a page is secret, and nothing in it is to be trusted: any process of the user may write it.

#include "plain_types/endpoint.hpp"
#include "plain_types/socket_info.hpp"
#include "host_proxy/net/tcp_info.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>

namespace gpusock::page {

inline constexpr std::uint64_t kMagic = 0x31'6b'63'6f'73'75'70'67;  // "gpusock1"
inline constexpr std::uint32_t kLayout = 5;                         // grows with each change of what is below
inline constexpr std::uint64_t kObservedUntilOffset = 256;
inline constexpr std::uint64_t kTcpUntilOffset = 320;
inline constexpr std::uint64_t kSequenceOffset = 512;
inline constexpr std::uint64_t kSnapshotsOffset = 1024;
inline constexpr std::uint64_t kRecordsOffset = 4096;
inline constexpr std::uint32_t kRecordsMax = 16384;

/// How often an observed context refreshes its page, and for how long at most after it was last asked to.
inline constexpr std::uint64_t kRefreshNs = 200'000'000;
inline constexpr std::uint64_t kObservedNsMax = 30'000'000'000;

/// How many TCP connections are looked at for one snapshot, in turn. Each look is a system call, during which no step
/// runs.
inline constexpr std::uint32_t kTcpLooksMax = 128;

struct Identity {
  std::uint64_t magic = kMagic;
  std::uint32_t layout = kLayout;
  std::uint32_t record_bytes = 0;
  std::uint32_t records_max = 0;
  std::uint32_t pid = 0;
  std::uint64_t number = 0;           ///< of the context in its process
  std::uint64_t started_unix_ns = 0;  ///< CLOCK_REALTIME
  char program[64] = {};              ///< its short name, zero-terminated
};
static_assert(sizeof(Identity) <= kObservedUntilOffset);

struct Snapshot {
  std::uint64_t taken_ns = 0;  ///< CLOCK_MONOTONIC
  std::uint64_t proxy_steps = 0;
  std::uint64_t proxy_wakeups = 0;
  std::uint64_t connections = 0;
  std::uint64_t tx_bytes[kLinkKinds] = {};  ///< by LinkKind
  std::uint64_t rx_bytes[kLinkKinds] = {};
  std::uint32_t sockets = 0;  ///< how many there were
  std::uint32_t records = 0;  ///< how many follow: fewer if the folder is full, or at records_max
};

enum RecordFlags : std::uint8_t { kPeerEnded = 1, kPeerReadShutDown = 2 };

/// Bits of Record::places.
enum RecordPlaces : std::uint8_t {
  kHasRings = 1,  ///< else the other bits mean nothing
  kBytesOnDevice = 2,
  kTxCommittedOnDevice = 4,
  kTxConsumedOnDevice = 8,
  kRxCommittedOnDevice = 16,
  kRxConsumedOnDevice = 32,
  kStatusOnDevice = 64,
};

/// Converts places to RecordPlaces and back.
std::uint8_t to_bits(const RingPlaces& places);
RingPlaces to_places(std::uint8_t bits);

/// A SocketInfo, as it lies in the file.
struct Record {
  std::int32_t handle = -1;
  std::int32_t error = 0;
  std::uint8_t state = 0;
  std::uint8_t link = 0;
  std::uint8_t flags = 0;
  std::uint8_t places = 0;
  std::uint32_t pending = 0;
  std::uint32_t backlog = 0;
  std::uint32_t unused_too = 0;
  std::int64_t block = -1;
  std::uint64_t tx_bytes = 0;
  std::uint64_t rx_bytes = 0;
  std::uint64_t tx_ring_fill = 0;
  std::uint64_t rx_ring_fill = 0;
  std::uint64_t ring_bytes = 0;
  std::uint64_t age_ns = 0;
  std::uint64_t tx_stalled_ns = 0;  ///< how long no byte has been taken from a ring that holds bytes; counted while
                                    ///< observed
  std::uint64_t rx_stalled_ns = 0;
  proxy::TcpInfo tcp;  ///< of the tcp link, while observers want to know
  ResolvedEndpoint local;
  ResolvedEndpoint peer;
  char link_reason[160] = {};  ///< cut, zero-padded
};
static_assert(std::is_trivially_copyable_v<Identity> && std::is_trivially_copyable_v<Snapshot> &&
              std::is_trivially_copyable_v<Record>);

/// Where snapshot number `sequence` and its records begin.
constexpr std::uint64_t snapshot_offset(std::uint64_t sequence) { return kSnapshotsOffset + (sequence & 1) * 512; }
constexpr std::uint64_t records_offset(std::uint64_t sequence, std::uint32_t records_max) {
  return kRecordsOffset + (sequence & 1) * records_max * sizeof(Record);
}

/// "gpusock-<pid>-<number>", and whether a file's name is one.
std::string file_name(std::uint32_t pid, std::uint64_t number);
bool is_file_name(const std::string& name);
/// The name that a page has while it is made.
std::string draft_name(std::uint32_t pid, std::uint64_t number);

/// Opens the page of that name, to read it and to ask for news. Returns -1 unless it is a regular file of this user
/// (for root: of any user) with one name and a page's magic.
int open_page(const std::string& path);

/// True if the page's context has ended without removing the page.
bool is_left_over(int descriptor);

/// Removes pages in this folder whose contexts died, also half-made ones of processes that died. Returns how many.
int remove_left_over(const std::string& folder);

}  // namespace gpusock::page
