#pragma once
/// @file The shared layout of the words and records through which a device and its proxy serve sockets.
///
/// A socket has one slot. Who writes what, and where it lies (a *caller* is a kernel's or a host thread's socket call):
///   callers' words  callers → proxy   pinned host memory   dense counters, scanned by the proxy (TableView)
///   OpenRequest     callers → proxy   pinned host memory   what to open; published by the callers' word `requests`
///   ProxyWords      proxy → callers   pinned host memory   32 bytes a socket: all that a waiting caller polls; kernels
///                                                          may poll a copy in their device's memory (TableMemory)
///   SocketSetup     proxy → callers   pinned host memory   rings and addresses; published by ProxyWords::status
///   CallerSlot      callers only      callers' own memory  ring halves and the handle's state (device memory on a GPU)
///   ProxySlot       proxy only        host memory          what the proxy keeps of a slot (proxy_slots.hpp)
/// Every shared word is a naturally aligned 64-bit integer with one writer. Only a status has two writers, both on the
/// host: the proxy, and the thread that cancels the context. Both use read-modify-writes.
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
///          kStatusCanceled                            (and X1, where kernels poll their own memory)
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
/// Counting in is relaxed. A caller that may use a socket has its handle from the caller that opened it, and with the
/// handle everything that was written for the socket. Counting out publishes what a call did after it counted in. A
/// call that comes too late is counted although its handle belongs to an earlier socket, but it reads nothing except
/// the count. A read-modify-write continues a release sequence, whatever its memory order. The tables of the rings'
/// words and of the queues of handles are in byte_ring.hpp and handle_queue.hpp.

#include "plain_types/endpoint.hpp"
#include "socket_table/poll_set.hpp"
#include "socket_table/socket_options.hpp"
#include "ringbuf/annotations.hpp"
#include "ringbuf/atomics.hpp"
#include "ringbuf/byte_ring.hpp"
#include "ringbuf/handle_queue.hpp"

#include <cstddef>
#include <cstdint>

namespace gpusock::table {

/// A handle is (kRecordBit? | generation << kSlotBits | slot). The generation is odd while the socket is open, and even
/// once it is closed. kRecordBit tells each thread of a group that the socket carries records.
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

/// Number of bits of CallerSlot::generation_and_users below the generation. They count the users.
inline constexpr int kSlotUserBits = 32;
GPUSOCK_FN constexpr std::uint64_t users_in(std::uint64_t generation_and_users) {
  return generation_and_users & 0xffffffffu;
}
GPUSOCK_FN constexpr std::uint32_t generation_in(std::uint64_t generation_and_users) {
  return static_cast<std::uint32_t>(generation_and_users >> kSlotUserBits) & kGenerationMask;
}

/// A requests word is (changes << kChangeShift | generation << kRequestBits | bits). `changes` counts changes of
/// options and watches. Within one generation, bits are only added.
enum RequestBits : std::uint64_t {
  kRequestOpen = 1,  ///< serve the OpenRequest; on an accepted socket: a caller has taken it from the queue
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

enum class OpenKind : std::uint32_t { listen, connect };

/// What a caller asks for when it opens a socket. For an accepted socket only `block` is used.
struct alignas(64) OpenRequest {
  Endpoint endpoint;
  OpenKind kind = OpenKind::connect;
  std::int32_t backlog = 0;
  std::int64_t block = -1;  ///< number of the calling block in its grid; -1: a host thread
};

enum class Phase : std::uint8_t { idle, opening, listening, connected, failed };

/// Bits of a status word's flags.
enum StatusFlags : std::uint8_t {
  kStatusEnded = 1,             ///< rx_final is valid: the peer sends nothing after it
  kStatusPeerReadShutDown = 2,  ///< the peer reads no more: sending gives -EPIPE
  kStatusCanceled = 4,          ///< the context ends: every call returns -ECANCELED. The bit is never cleared
};

/// The fields of a status word: generation << 32 | errno << 16 | phase << 8 | flags.
struct Status {
  std::uint32_t generation = 0;
  /// Why the socket failed, as an errno. Sending fails as soon as this is set. Receiving goes on, as the proxy still
  /// delivers what arrived before; it fails once the phase is `failed`.
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

/// All words of one socket that a waiting caller polls, in one 32-byte sector of GPU memory traffic. Only the proxy
/// writes them, except that TableMemory::cancel() sets kStatusCanceled.
struct alignas(32) ProxyWords {
  std::uint64_t tx_freed = 0;
  std::uint64_t rx_arrived = 0;
  std::uint64_t status = 0;
  std::uint64_t rx_final = 0;  ///< the position where the peer's stream ends; valid once kStatusEnded is set
};

/// One ring as one side reaches it: its memory and the addresses of its words.
struct RingSetup {
  ringbuf::RingMemory memory;
  std::uint64_t* committed = nullptr;
  std::uint64_t* consumed = nullptr;
  std::uint64_t start = 0;  ///< position of the connection's first byte; connections do not reset a slot's words
  std::uint64_t* committed_copy = nullptr;  ///< copy in host memory, if the callers' word is in device memory
  std::uint64_t* consumed_copy = nullptr;   ///< the same for `consumed`
  /// Only in the proxy's RingPair: where the proxy writes the word that kernels poll (ringbuf/bar_write.hpp); nullptr
  /// if kernels poll that word in host memory.
  std::uint64_t* bar_word = nullptr;

  /// Callers' halves.
  GPUSOCK_FN ringbuf::ByteProducer<> producer() const { return {memory, committed, consumed, start, {committed_copy}}; }
  GPUSOCK_FN ringbuf::ByteConsumer<> consumer() const { return {memory, committed, consumed, start, {consumed_copy}}; }
  /// The proxy's halves, at the other end of the same ring.
  ringbuf::ByteProducer<> proxy_producer() const { return {memory, committed, consumed, start, {bar_word, true}}; }
  ringbuf::ByteConsumer<> proxy_consumer() const { return {memory, committed, consumed, start, {bar_word, true}}; }

  /// The words that the proxy reads.
  std::uint64_t* host_committed() const { return committed_copy != nullptr ? committed_copy : committed; }
  std::uint64_t* host_consumed() const { return consumed_copy != nullptr ? consumed_copy : consumed; }
};

/// A connection's rings as one side reaches them: this side sends on tx. host_proxy/memory/segment_header.hpp says
/// where the words lie for each link, which side writes them, and which polls them.
struct RingPair {
  RingSetup tx;
  RingSetup rx;
};

/// What callers need to use an open socket. They copy most of it to their CallerSlot when they get the socket.
struct alignas(64) SocketSetup {
  RingPair rings;
  ResolvedEndpoint local;
  ResolvedEndpoint peer;
  std::uint64_t link_needs_proxy = 0;  ///< 1 if the proxy moves the bytes: callers ring its doorbell after a commit
  std::uint64_t records = 0;           ///< 1 if the rings carry records (SocketType::seqpacket)
  std::uint64_t options = 0;           ///< SocketOptions that an accepted socket inherits from its listener
  std::uint64_t accept_queue = 0;      ///< for a listener: which of the queues in TableView::accept_entries it uses
  std::uint64_t accept_start = 0;      ///< for a listener: its first position there; what is before it is invalid
};

/// The state by which several senders of one socket share its tx ring. They claim space in order and fill their claims
/// at the same time. Claims are committed in order: the sender that completes the oldest claim commits it, with the
/// complete claims that follow. If a claim is given up, it is undone if it is the last one, else it becomes a filler
/// before the next record. Claims change under the lock, which is held for a few accesses only.
struct RecordSender {
  static constexpr std::uint32_t kClaimsMax = 32;  ///< claims that may be uncommitted at a time

  std::uint64_t lock = 0;         ///< device scope
  std::uint64_t claimed = 0;      ///< the position after the last claim
  std::uint32_t first = 0;        ///< number of the oldest claim that is not committed; the socket's first is 0
  std::uint32_t next = 0;         ///< number of the next claim
  std::uint32_t done = 0;         ///< a bit for each claim, modulo kClaimsMax: 1 once the claim is complete
  std::uint32_t given_up = 0;     ///< the same: 1 if the claim was given up
  std::uint32_t ended = 0;        ///< 1 once this side has ended sending; the proxy is told when no claim is open
  std::uint32_t reserved = 0;     ///< number of the open reservation's claim
  std::uint64_t reserved_at = 0;  ///< position of that claim's header
  std::uint64_t peeked_span = 0;  ///< for the receiver: bytes of the ring that the open peek's record takes
  std::uint64_t ends[kClaimsMax] = {};
};

/// Bits of CallerSlot::flags.
enum CallerFlags : std::uint64_t {
  kCallerShutRead = 1,   ///< shut down by this side: Shutdown::read
  kCallerShutWrite = 2,  ///< Shutdown::write
  kCallerAdopted = 4,    ///< tx and rx belong to this connection
  kCallerLooks = 8,      ///< a call has seen a status that does not flow: now each call looks at the status first
};

/// The callers' own state of one socket. The sending group uses `tx`, the receiving group `rx`.
struct alignas(64) CallerSlot {
  /// Device scope: generation << kSlotUserBits | calls that use the rings. The generation is odd while the socket is
  /// open. A compare-and-swap decides which call closes the socket. The last call that leaves requests the close.
  std::uint64_t generation_and_users = 0;
  std::uint64_t request_lock = 0;  ///< device scope: the lock of `requests`
  std::uint64_t requests = 0;      ///< the requests word of this generation, from all callers
  std::uint64_t options = 0;       ///< device scope: SocketOptions, as last set
  /// Device scope: the timeouts of calls that are given no deadline. Only callers use them: the proxy never waits.
  std::uint64_t receive_timeout_ns = 0;
  std::uint64_t send_timeout_ns = 0;
  ringbuf::ByteProducer<> tx;
  ringbuf::ByteConsumer<> rx;
  std::uint64_t link_needs_proxy = 0;
  /// Device scope: the open reservation (tx) or peek (rx), as handle << 32 | bytes; 0 for none. Its holder is counted
  /// in `generation_and_users`.
  std::uint64_t tx_held = 0;
  std::uint64_t rx_held = 0;
  /// Device scope: bytes that went past the rings. Only the sending group writes the first, only the receiving group
  /// the second.
  std::uint64_t tx_past_ring = 0;
  std::uint64_t rx_past_ring = 0;
  RecordSender records;           ///< used if the rings carry records
  std::uint64_t has_records = 0;  ///< 1 if the handle has kRecordBit
  std::uint64_t flags = 0;        ///< device scope: CallerFlags
  std::uint64_t rx_looked = 0;    ///< the receiver's position when it last looked at the status
  std::uint64_t rx_turns = 0;     ///< how often the receiver has looked since its last bytes, and found too few
  Watch watch;                    ///< guarded by request_lock
};

/// The memory that callers and proxy share, as addresses that the callers' processor can use. Trivially copyable.
struct TableView {
  // The callers' words, one of each for every slot. Only callers write them.
  std::uint64_t* tx_committed = nullptr;
  std::uint64_t* rx_consumed = nullptr;
  std::uint64_t* requests = nullptr;
  std::uint64_t* options = nullptr;  ///< SocketOptions, published by `requests`
  OpenRequest* open_requests = nullptr;
  ProxyWords* proxy_words = nullptr;
  SocketSetup* setups = nullptr;
  const std::uint64_t* abort = nullptr;  ///< non-zero: the context ends, every call returns -ECANCELED
  std::uint32_t slots = 0;
  /// True if these callers poll statuses that the proxy writes into their device's memory. A proxy that stands still
  /// cannot write there that the context ends. The thread that ends the context writes `abort` there instead, so a
  /// caller that loads a status also loads `abort`.
  bool statuses_are_on_device = false;

  // Queues of handles. Their `taken` words are in the callers' memory.
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
/// Entries of an accept queue: one for each connection that may wait there. New entries overwrite those of earlier
/// listeners.
inline constexpr std::uint32_t kAcceptQueueEntries = kBacklogMax;

}  // namespace gpusock::table
