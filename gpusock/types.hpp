#pragma once
/// @file The plain types of the socket calls: handles, flags, deadlines. Kernels and host threads use them.

#include "plain_types/clock.hpp"
#include "gpusock/endpoint.hpp"
#include "ringbuf/annotations.hpp"

#include <cerrno>
#include <cstddef>
#include <cstdint>

namespace gpusock {

/// A socket handle (>= 0), or a negated errno. A handle is valid on the caller side that opened it: the kernels of
/// a context, or its host threads (on the CPU device these are one caller side).
using Socket = std::int32_t;

/// Flags of send and recv; they combine with |.
enum Flags : int {
  kDontWait = 1,  ///< the call does what is possible without waiting, and returns -EAGAIN if nothing is possible
  kWaitAll = 2,   ///< the call moves all bytes, or returns an error (recv: fewer bytes only at the end of the stream)
  kMore = 4,      ///< send: more bytes follow at once, so the call does not ring the proxy's doorbell yet
  kPeek = 8,      ///< recv: the call does not consume the bytes; the next recv returns them again
};

/// A run of ring memory that a caller may use in place, from reserve or peek.
struct Span {
  void* data = nullptr;   ///< the first byte; nullptr after an error or at the end of the stream
  std::int64_t size = 0;  ///< number of bytes, or a negated errno; peek: 0 is the end of the stream
};

/// Events of poll; they combine with |. Values as in poll(2).
enum PollEvents : std::int16_t {
  kPollIn = 0x01,      ///< recv would not wait: it would return bytes, the end of the stream or an error; on a
                       ///< listener: accept would not wait
  kPollOut = 0x04,     ///< send would not wait: there is room, or it would return an error
  kPollErr = 0x08,     ///< the connection failed; this event and the next two are reported even if not asked for
  kPollHup = 0x10,     ///< the peer neither receives nor sends any more
  kPollNval = 0x20,    ///< not an open socket of this caller side; for watch(): its close wakes the set
  kPollWake = 0x40,    ///< of a poll set: wake() was called, or a socket that is watched with kPollNval was closed
  kPollEdge = 0x4000,  ///< for watch(): wait() returns the socket once after each change, not as long as it is ready
};

/// One socket of a poll call.
struct PollEntry {
  Socket socket = -1;        ///< the socket to poll; poll ignores an entry with a negative one
  std::int16_t events = 0;   ///< the PollEvents to wait for
  std::int16_t revents = 0;  ///< the PollEvents that were found; written by poll
};

/// A poll set's handle (>= 0), or a negated errno, from Net::open_set(). A handle is valid on the caller side that
/// opened it; Net::wake() takes it on both.
using PollSet = std::int32_t;

/// One event of a poll set.
struct PollEvent {
  Socket socket = -1;       ///< the socket that has the event; -1 with kPollWake
  std::int32_t events = 0;  ///< PollEvents, or kPollWake
  std::uint64_t tag = 0;    ///< the tag that watch() got; with kPollWake: wakes of the set since the last such event
};

/// The options of setsockopt and getsockopt. Accepted sockets start with their listener's values.
enum class SocketOption : int {
  no_delay,     ///< TCP_NODELAY. 1 (the default): small pieces are sent at once; 0: TCP may wait for more bytes
  keep_alive,   ///< SO_KEEPALIVE. 1: the loss of the peer is noticed even if nothing is sent; 0 (the default): not
  linger,       ///< SO_LINGER: how many seconds a closed connection may go on delivering before it is reset; 0: closing
                ///< resets it at once; -1 (the default): 30 s. close itself never waits
  error,        ///< SO_ERROR, read only: the errno that the connection failed with, or 0; reading does not clear it
  send_buffer,  ///< capacity of the tx ring in bytes, read only; the endpoint's ring= chooses it
  receive_buffer,      ///< capacity of the rx ring in bytes, read only
  receive_timeout_ns,  ///< SO_RCVTIMEO: how long recv, peek and accept wait if they are given no deadline: at least 1,
                       ///< or -1 for ever. The default is Options::timeout_ns
  send_timeout_ns,     ///< SO_SNDTIMEO: the same for send and reserve
  idle_timeout_ns,     ///< the connection fails with ETIMEDOUT if no byte moves in either direction for this long, or
                       ///< up to a quarter longer. At least 1, rounded up to milliseconds, at most 12 days; -1 (the
                       ///< default): no limit
};

/// The value of a timeout in Options that means "for ever". In a SocketOption, -1 means the same.
inline constexpr std::uint64_t kForever = ~std::uint64_t{0};

/// A connected socket's counters. Bytes are counted as they lie in the rings. A record therefore counts with its
/// header, in whole words of 8 bytes, and with any unused space before it: a record of 10 bytes counts as 24 bytes.
struct SocketStats {
  std::uint64_t bytes_sent = 0;      ///< bytes taken from the caller
  std::uint64_t bytes_received = 0;  ///< bytes given to the caller
  std::uint64_t bytes_unsent = 0;    ///< bytes sent that are still in the ring: on tcp not yet taken by the operating
                                     ///< system, on p2p not yet received by the peer
  std::uint64_t bytes_unread = 0;    ///< bytes that have arrived and were not received yet
  std::uint64_t send_buffer = 0;     ///< capacity of the tx ring in bytes
  std::uint64_t receive_buffer = 0;  ///< capacity of the rx ring in bytes
  LinkKind link = LinkKind::automatic;   ///< what carries the bytes
  SocketType type = SocketType::stream;  ///< bytes or records
};

/// Which directions shutdown() ends.
enum class Shutdown : int { read = 1, write = 2, both = 3 };

namespace detail {
#if !GPUSOCK_ON_GPU
/// Tells kernels from host threads on a CPU device that has the shape of a GPU. There the kernels are a caller
/// side and have a clock of their own.
struct KernelsApart {
  bool (*in_kernel)() noexcept;
  std::uint64_t (*clock_ns)() noexcept;
};
/// Null unless this process's CPU device has the shape of a GPU. It is set before the first context is made.
inline const KernelsApart* kernels_apart = nullptr;
#endif

/// True for a thread of a kernel whose caller side and clock are not the host threads'.
GPUSOCK_FN inline bool on_kernels_side() {
#if GPUSOCK_ON_GPU
  return true;
#else
  return kernels_apart != nullptr && kernels_apart->in_kernel();
#endif
}

class Wait;
}  // namespace detail

/// Nanoseconds of the clock that deadlines are measured by: the GPU's global timer in a kernel on a GPU,
/// CLOCK_MONOTONIC on the CPU device and on host threads. The two clocks are not comparable.
GPUSOCK_FN inline std::uint64_t clock_ns() {
#if GPUSOCK_ON_GPU
  std::uint64_t now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
#else
  return detail::on_kernels_side() ? detail::kernels_apart->clock_ns() : detail::monotonic_ns();
#endif
}

/// A point in time until which a call may wait. It is measured by the clock of the caller side (kernels or host
/// threads) that made it. If it is passed to the other one, which has another clock, its duration begins anew in each
/// call there: a kernel that gets the host's `after_ns(n)` as an argument waits for up to n ns in each call.
class Deadline {
 public:
  /// The deadline of a call that is given none. The call waits for the socket's timeout (SocketOption), which is the
  /// context's (Options::timeout_ns) until it is set. The time begins anew whenever the call has moved bytes; see
  /// docs/semantics.md.
  GPUSOCK_FN static constexpr Deadline by_default() { return Deadline(kDefault, 0); }
  /// The call waits as long as it takes, or until the context ends.
  GPUSOCK_FN static constexpr Deadline never() { return Deadline(~std::uint64_t{0}, 0); }
  /// The call does not wait. It returns -EAGAIN instead of waiting.
  GPUSOCK_FN static constexpr Deadline now() { return Deadline(0, 0); }
  /// The call returns -ETIMEDOUT once this many nanoseconds have passed from now. A time that is too large for the
  /// clock means never().
  GPUSOCK_FN static Deadline after_ns(std::uint64_t duration_ns) {
    return Deadline(detail::later_ns(clock_ns(), duration_ns), sided(duration_ns));
  }
  /// The deadline after so many milliseconds, as after_ns().
  GPUSOCK_FN static Deadline after_ms(std::uint64_t duration_ms) {
    constexpr std::uint64_t kNsPerMs = 1'000'000, kMostMs = ~std::uint64_t{0} / kNsPerMs;
    return after_ns(duration_ms > kMostMs ? ~std::uint64_t{0} : duration_ms * kNsPerMs);
  }

  GPUSOCK_FN constexpr bool is_default() const { return at_ns_ == kDefault && sided_ == 0; }  ///< true for by_default()
  GPUSOCK_FN constexpr bool is_never() const { return at_ns_ == ~std::uint64_t{0}; }          ///< true for never()
  GPUSOCK_FN constexpr bool is_now() const { return at_ns_ == 0; }                            ///< true for now()

  /// True if the deadline has passed. now() has always passed. by_default() never has, because it begins with each
  /// call. A deadline that the other caller side made counts as passed: call here() once, and call passed() on the
  /// result.
  GPUSOCK_FN bool passed() const {
    return !is_never() && !is_default() && (is_now() || is_foreign() || clock_ns() >= at_ns_);
  }
  /// The same deadline for this caller side. If the other one made it, its duration begins now.
  /// This is inlined into every call: if a function returned the two words, the processor would stall where the caller
  /// loads both as one.
  [[gnu::always_inline]] GPUSOCK_FN Deadline here() const {
    return sided_ == 0 || !is_foreign() ? *this : begun_here();
  }

 private:
  friend class detail::Wait;
  static constexpr std::uint64_t kKernels = std::uint64_t{1} << 63;
  static constexpr std::uint64_t kDefault = ~std::uint64_t{0} - 1;

  GPUSOCK_FN constexpr Deadline(std::uint64_t at_ns, std::uint64_t sided) : at_ns_(at_ns), sided_(sided) {}
  GPUSOCK_FN static std::uint64_t sided(std::uint64_t duration_ns) {
    const std::uint64_t at_most = duration_ns < kKernels ? duration_ns : kKernels - 1;
    const std::uint64_t duration = at_most == 0 ? 1 : at_most;  // 0 means: the same for both caller sides
    return detail::on_kernels_side() ? duration | kKernels : duration;
  }
  GPUSOCK_FN_APART Deadline begun_here() const { return is_never() ? *this : after_ns(sided_ & ~kKernels); }
  GPUSOCK_FN bool is_foreign() const { return ((sided_ & kKernels) != 0) != detail::on_kernels_side(); }
  /// Returns this deadline; for by_default(), the deadline that is `timeout_ns` after `now_ns`.
  GPUSOCK_FN constexpr Deadline or_after(std::uint64_t now_ns, std::uint64_t timeout_ns) const {
    return is_default() ? Deadline(detail::later_ns(now_ns, timeout_ns), kKernels) : *this;
  }
  /// True if a deadline of this caller side has passed at this time of its clock.
  GPUSOCK_FN constexpr bool passed_at(std::uint64_t now_ns) const { return now_ns >= at_ns_; }

  std::uint64_t at_ns_;  ///< the point in time, ns of the clock of the caller side that made it
  std::uint64_t sided_;  ///< its duration when it was made, ns, with kKernels if kernels made it; 0: same for both
};

}  // namespace gpusock
