#pragma once
/// @file The words and records through which a device and its proxy serve sockets: the shared layout of both.
///
/// A socket is a slot. Who writes what, and where it lives (a *caller* is a kernel's or a host thread's socket call):
///   callers' words  callers → proxy   pinned host memory   dense counters, scanned by the proxy (TableView)
///   OpenRequest     callers → proxy   pinned host memory   what to open; published by the callers' word `requests`
///   ProxyWords      proxy → callers   pinned host memory   32 bytes a socket: all that a waiting caller polls; kernels
///                                                          may poll a copy in their device's memory (TableMemory)
///   SocketSetup     proxy → callers   pinned host memory   rings and addresses; published by ProxyWords::status
///   CallerSlot      callers only      callers' own memory  ring halves and the handle's state (device memory on a GPU)
///   ProxySlot       proxy only        host memory          what the proxy keeps of a slot (proxy_slots.hpp)
/// Every shared word is a naturally aligned 64-bit integer with one writer. (A status has two, both on the host, which
/// swap it: the proxy, and the thread that cancels the context.)
///
// clang-format off
/// Ordering table (scope: system; T7 to T15: device)
///   label  operation               order    partner  data protected
///   T1     caller: store requests  release  T2       the OpenRequest; the options word; counters committed before a
///                                                    shutdown or close
///   T2     proxy: load requests    acquire  T1       as T1
///   T3     proxy: swap status      release  T4       the SocketSetup; the words' start for a new connection; rx_final
///   T4     caller: load status     acquire  T3, X1   as T3
///   T5     host: store abort, add  relaxed  T4, T6   nothing but itself: callers leave with -ECANCELED
///          kStatusCanceled                            (posted as well, X1, where kernels poll their own memory)
///   T6     caller: load abort      relaxed  T5, X1   as T5
///   T7     caller: exchange lock   acquire  T8       the lock of CallerSlot::requests: T1 of one caller
///                                                    precedes the next one's, and a slot's next claim
///                                                    (and `watch`; in a CallerSet: its generation, this
///                                                    side's wakes; what is the waiting group's)
///   T8     caller: store lock      release  T7       as T7
///   T9     caller: count out       release  T14, T15 generation_and_users: what each call did in the
///                                                    socket, for the last one out (or, when no call is in, for the
///                                                    one that closes it), which requests the close: so the slot's
///                                                    next owner has it
///   T10    sender: exchange lock   acquire  T11      RecordSender and CallerSlot::tx; through it the one
///                                                    commit covers the bytes of all senders whose records
///                                                    it publishes
///   T11    sender: store lock      release  T10      as T10; the record's bytes
///   T12    sender: swap tx_held    acquire  T13      of 0: what a reservation keeps in RecordSender, which one caller
///                                                    uses at a time
///   T13    sender: empty tx_held   release  T12      as T12
///   T14    caller: swap, close     acq_rel  T9, T15  as T9
///   T15    last call out: load     acquire  T9, T14  as T9
// clang-format on
/// Counting in is relaxed. A caller that may use a socket has its handle, and with it what was written for it, from the
/// caller that opened it. What a call does after counting in, counting out publishes. A call that comes too late takes
/// part in the count though its handle is of an earlier socket, and reads nothing but the count. A read-modify-write
/// continues a release sequence, whatever its order. The rings' words and the queues of handles have their own tables
/// (byte_ring.hpp, handle_queue.hpp).

#include "plain_types/endpoint.hpp"
#include "socket_table/poll_set.hpp"
#include "ringbuf/annotations.hpp"
#include "ringbuf/atomics.hpp"
#include "ringbuf/byte_ring.hpp"
#include "ringbuf/handle_queue.hpp"

#include <cstddef>
#include <cstdint>

namespace gpusock::table {

/// A handle is (kRecordBit? | generation << kSlotBits | slot); a generation is odd while its socket is open and even
/// once it is closed. The highest bit tells all threads of a group alike that the socket carries records.
inline constexpr std::uint32_t kSlotBits = 14;
inline constexpr std::uint32_t kSlotsMax = 1u << kSlotBits;
inline constexpr std::uint32_t kGenerationMask = (1u << (30 - kSlotBits)) - 1;
inline constexpr std::int32_t kRecordBit = 1 << 30;

GPUSOCK_FN constexpr std::int32_t make_handle(std::uint32_t slot, std::uint32_t generation) {
  return static_cast<std::int32_t>((generation & kGenerationMask) << kSlotBits | slot);
}
GPUSOCK_FN constexpr std::uint32_t slot_of(std::int32_t handle) {
  return static_cast<std::uint32_t>(handle) & (kSlotsMax - 1);
}
GPUSOCK_FN constexpr std::uint32_t generation_of(std::int32_t handle) {
  return (static_cast<std::uint32_t>(handle) >> kSlotBits) & kGenerationMask;
}
GPUSOCK_FN constexpr bool carries_records(std::int32_t handle) { return handle >= 0 && (handle & kRecordBit) != 0; }
GPUSOCK_FN constexpr std::uint32_t next_generation(std::uint32_t generation) {
  return (generation + 1) & kGenerationMask;
}

/// Bits of CallerSlot::generation_and_users below the generation.
inline constexpr int kSlotUserBits = 32;
GPUSOCK_FN constexpr std::uint64_t users_in(std::uint64_t generation_and_users) {
  return generation_and_users & 0xffffffffu;
}
GPUSOCK_FN constexpr std::uint32_t generation_in(std::uint64_t generation_and_users) {
  return static_cast<std::uint32_t>(generation_and_users >> kSlotUserBits) & kGenerationMask;
}

/// A requests word is (changes of the options << kChangeShift | generation << kRequestBits | bits). Within one
/// generation bits are only ever added, and changes counted.
enum RequestBits : std::uint64_t {
  kRequestOpen = 1,  ///< serve the OpenRequest; on an accepted socket: it was taken from the queue
  kRequestShutdownRead = 2,
  kRequestShutdownWrite = 4,
  kRequestClose = 8,
};
inline constexpr int kRequestBits = 8;
inline constexpr int kChangeShift = 32;

GPUSOCK_FN constexpr std::uint32_t generation_of_request(std::uint64_t word) {
  return static_cast<std::uint32_t>(word >> kRequestBits) & kGenerationMask;
}

GPUSOCK_FN constexpr std::uint64_t make_request(std::uint32_t generation, std::uint64_t bits) {
  return std::uint64_t{generation} << kRequestBits | bits;
}

/// What a caller may choose of an open socket, as one of the callers' words; published by `requests`.
struct SocketOptions {
  bool no_delay = true;
  bool keep_alive = false;
  std::int32_t linger_s = -1;  ///< seconds that a closed connection may go on delivering; 0: reset at once; -1: the
                               ///< default
  std::uint32_t idle_ms = 0;   ///< how long the connection may be idle, at most kIdleMsMax; 0: for ever

  static constexpr std::uint32_t kIdleMsMax = (1u << 30) - 1;

  GPUSOCK_FN constexpr std::uint64_t pack() const {
    return std::uint64_t{static_cast<std::uint32_t>(linger_s)} << 32 | std::uint64_t{idle_ms & kIdleMsMax} << 2 |
           std::uint64_t{keep_alive} << 1 | std::uint64_t{no_delay};
  }
  GPUSOCK_FN static constexpr SocketOptions unpack(std::uint64_t word) {
    return {(word & 1) != 0, (word & 2) != 0, static_cast<std::int32_t>(word >> 32),
            static_cast<std::uint32_t>(word >> 2) & kIdleMsMax};
  }
};

enum class OpenKind : std::uint32_t { listen, connect };

/// What a caller asks for when it opens a socket; of an accepted one, only `block` is of use.
struct alignas(64) OpenRequest {
  Endpoint endpoint;
  OpenKind kind = OpenKind::connect;
  std::int32_t backlog = 0;
  std::int64_t block = -1;  ///< which block of its grid calls; -1: a host thread
};

enum class Phase : std::uint8_t { idle, opening, listening, connected, failed };

/// Bits of a status word's flags.
enum StatusFlags : std::uint8_t {
  kStatusEnded = 1,             ///< rx_final is valid: the peer sends nothing after it
  kStatusPeerReadShutDown = 2,  ///< the peer reads no more: sending gives -EPIPE
  kStatusCanceled = 4,          ///< the context ends: every call returns -ECANCELED. It is never taken back
};

/// A status word taken apart: generation << 32 | errno << 16 | phase << 8 | flags.
struct Status {
  std::uint32_t generation = 0;
  /// Why the socket failed, an errno. Sending fails as soon as this is set; receiving once the phase is `failed`: until
  /// then the proxy delivers what arrived before.
  std::uint16_t error = 0;
  Phase phase = Phase::idle;
  std::uint8_t flags = 0;

  GPUSOCK_FN constexpr std::uint64_t pack() const {
    return std::uint64_t{generation} << 32 | std::uint64_t{error} << 16 |
           std::uint64_t{static_cast<std::uint8_t>(phase)} << 8 | flags;
  }
  GPUSOCK_FN static constexpr Status unpack(std::uint64_t word) {
    return {static_cast<std::uint32_t>(word >> 32), static_cast<std::uint16_t>(word >> 16),
            static_cast<Phase>(static_cast<std::uint8_t>(word >> 8)), static_cast<std::uint8_t>(word)};
  }

  GPUSOCK_FN constexpr bool canceled() const { return (flags & kStatusCanceled) != 0; }
  /// True if bytes may flow in both directions, and neither has ended.
  GPUSOCK_FN constexpr bool flows() const { return phase == Phase::connected && error == 0 && flags == 0; }
};

/// All that a waiting caller polls of one socket, in one 32-byte sector of GPU memory traffic. Only the proxy writes
/// it.
struct alignas(32) ProxyWords {
  std::uint64_t tx_freed = 0;
  std::uint64_t rx_arrived = 0;
  std::uint64_t status = 0;
  std::uint64_t rx_final = 0;  ///< where the peer's stream ends, once kStatusEnded is set
};

/// One ring as one side reaches it: the bytes and the addresses of its words.
struct RingSetup {
  ringbuf::RingMemory memory;
  std::uint64_t* committed = nullptr;
  std::uint64_t* consumed = nullptr;
  std::uint64_t start = 0;  ///< the position of the connection's first byte; a slot's words go on from one to the next
  std::uint64_t* committed_copy = nullptr;  ///< in host memory, if callers' word is in device memory
  std::uint64_t* consumed_copy = nullptr;   ///< the same
  /// The proxy's pair alone: where it posts the word that it writes for kernels to poll; nullptr: they poll it in host
  /// memory.
  std::uint64_t* posted = nullptr;

  /// Callers' halves.
  GPUSOCK_FN ringbuf::ByteProducer<> producer() const { return {memory, committed, consumed, start, {committed_copy}}; }
  GPUSOCK_FN ringbuf::ByteConsumer<> consumer() const { return {memory, committed, consumed, start, {consumed_copy}}; }
  /// The proxy's, at the other end of the same ring.
  ringbuf::ByteProducer<> proxy_producer() const { return {memory, committed, consumed, start, {posted, true}}; }
  ringbuf::ByteConsumer<> proxy_consumer() const { return {memory, committed, consumed, start, {posted, true}}; }

  /// The words as the proxy reads them.
  std::uint64_t* host_committed() const { return committed_copy != nullptr ? committed_copy : committed; }
  std::uint64_t* host_consumed() const { return consumed_copy != nullptr ? consumed_copy : consumed; }
};

/// A connection's rings as one side reaches them: this side sends on tx. host_proxy/memory/segment_header.hpp says
/// where each link has their words, who writes them and who polls them.
struct RingPair {
  RingSetup tx;
  RingSetup rx;
};

/// What a caller needs to use an open socket, read once when it becomes one.
struct alignas(64) SocketSetup {
  RingPair rings;
  ResolvedEndpoint local;
  ResolvedEndpoint peer;
  std::uint64_t link_needs_proxy = 0;  ///< 1 where the proxy moves the bytes, so that a commit concerns it
  std::uint64_t records = 0;           ///< 1 where the rings carry records (SocketType::seqpacket)
  std::uint64_t options = 0;           ///< SocketOptions that an accepted socket has from its listener
  std::uint64_t accept_queue = 0;      ///< of a listening socket: which of TableView::accept_queues
  std::uint64_t accept_start = 0;      ///< entries before this are of earlier listeners, and mean nothing
};

/// How several senders of one socket share its tx ring: space is claimed in order, filled at the same time, and
/// committed in the order of the claims, by the sender that completes the next one. A claim that is given up is undone,
/// unless there are others after it: then it becomes a filler before them. All of it under the lock, which is held for
/// a few accesses.
struct RecordSender {
  static constexpr std::uint32_t kClaimsMax = 32;  ///< records that may be in the making

  std::uint64_t lock = 0;         ///< device scope
  std::uint64_t claimed = 0;      ///< the position after the last claim
  std::uint32_t first = 0;        ///< the oldest claim that is not committed, counted from the socket's first
  std::uint32_t next = 0;         ///< the next claim
  std::uint32_t done = 0;         ///< a bit for each claim, modulo kClaimsMax: it is completed
  std::uint32_t given_up = 0;     ///< the same: it is completed and no record
  std::uint32_t ended = 0;        ///< 1 once this side has ended sending: the end is told when no claim is open
  std::uint32_t reserved = 0;     ///< the open reservation's claim
  std::uint64_t reserved_at = 0;  ///< its record's position
  std::uint64_t peeked_span = 0;  ///< the receiver's: what the open peek's record takes in the ring
  std::uint64_t ends[kClaimsMax] = {};
};

/// Bits of CallerSlot::flags.
enum CallerFlags : std::uint64_t {
  kCallerShutRead = 1,   ///< shut down by this side: Shutdown::read
  kCallerShutWrite = 2,  ///< Shutdown::write
  kCallerAdopted = 4,    ///< tx and rx are this connection's
  kCallerLooks = 8,      ///< a call has seen a status that does not flow: from now on each call looks at it first
};

/// The callers' own state of one socket. The halves are used by the one sending and the one receiving group.
struct alignas(64) CallerSlot {
  /// Device scope: generation << kSlotUserBits | calls that are using the rings. The generation is odd while the socket
  /// is open; compare-and-swap decides who closes, and the last call out requests the close.
  std::uint64_t generation_and_users = 0;
  std::uint64_t request_lock = 0;  ///< device scope: the lock of `requests`
  std::uint64_t requests = 0;      ///< what was asked in this generation, by all callers
  std::uint64_t options = 0;       ///< device scope: SocketOptions, as last set
  /// Device scope: how long calls wait that are given no deadline. The callers' own: the proxy does not wait.
  std::uint64_t receive_timeout_ns = 0;
  std::uint64_t send_timeout_ns = 0;
  ringbuf::ByteProducer<> tx;
  ringbuf::ByteConsumer<> rx;
  std::uint64_t link_needs_proxy = 0;
  /// Device scope: an open reservation or peek: handle << 32 | bytes, 0 for none. Its holder is counted in
  /// `generation_and_users`.
  std::uint64_t tx_held = 0;
  std::uint64_t rx_held = 0;
  /// Device scope: bytes moved past the rings, each written by the one group that sends or receives.
  std::uint64_t tx_past_ring = 0;
  std::uint64_t rx_past_ring = 0;
  RecordSender records;           ///< used where the rings carry records
  std::uint64_t has_records = 0;  ///< does the handle have kRecordBit
  std::uint64_t flags = 0;        ///< device scope: CallerFlags
  std::uint64_t rx_looked = 0;    ///< the receiver's: its position when it last looked at the status
  std::uint64_t rx_turns = 0;     ///< the receiver's: how often it has looked and found too few bytes
  Watch watch;                    ///< under request_lock
};

/// What callers and proxy share, as addresses that the callers' processor can use. Trivially copyable.
struct TableView {
  // The callers' words, one of each for a slot: only callers write them.
  std::uint64_t* tx_committed = nullptr;
  std::uint64_t* rx_consumed = nullptr;
  std::uint64_t* requests = nullptr;
  std::uint64_t* options = nullptr;  ///< SocketOptions, published by `requests`
  OpenRequest* open_requests = nullptr;
  ProxyWords* proxy_words = nullptr;
  SocketSetup* setups = nullptr;
  const std::uint64_t* abort = nullptr;  ///< non-zero: the context ends, every call returns -ECANCELED
  std::uint32_t slots = 0;
  /// True if these callers poll statuses that the proxy posts in their device's memory. A proxy that stands still does
  /// not post that the context ends; the thread that ends it posts `abort`. So who loads a status loads that as well.
  bool statuses_are_posted = false;

  // Queues of handles; `taken` words are in the callers' memory.
  std::uint64_t* free_entries = nullptr;
  std::uint64_t* free_published = nullptr;
  std::uint64_t free_capacity = 0;
  std::uint64_t* accept_entries = nullptr;    ///< kListenersMax queues of kAcceptQueueEntries
  std::uint64_t* accept_published = nullptr;  ///< one word per queue
};

/// How many sockets of a context may listen at the same time.
inline constexpr std::uint32_t kListenersMax = 64;
/// How many connections of one listener may wait to be accepted.
inline constexpr int kBacklogMax = 512;
/// Entries of an accept queue: as many connections may wait there. What earlier listeners have left is overwritten.
inline constexpr std::uint32_t kAcceptQueueEntries = kBacklogMax;

}  // namespace gpusock::table
