#pragma once
/// @file Connections that begin with a greeting: a message of fixed size that says who the caller is. Greetings
/// receives the greetings of many callers at the same time, so that a silent caller does not delay the others.

#include "gpusock/device.cuh"

namespace gpusock {

namespace detail {

/// The deadline of a call that waits several times. by_default() begins now and lasts as long as the socket's timeout
/// for `events` (kPollIn: receive_timeout_ns, kPollOut: send_timeout_ns; the shorter one for both).
template <class Group>
GPUSOCK_FN_APART Deadline begun(const Group& group, const Net& net, Socket socket, int events, Deadline deadline) {
  if (!deadline.is_default()) return deadline.here();
  std::uint64_t shortest_ns = ~std::uint64_t{0};  // for ever
  const auto shorten = [&](SocketOption option) {
    std::int64_t timeout_ns = -1;
    if (net.getsockopt(group, socket, option, timeout_ns) != 0 || timeout_ns < 0) return;
    if (static_cast<std::uint64_t>(timeout_ns) < shortest_ns) shortest_ns = static_cast<std::uint64_t>(timeout_ns);
  };
  if ((events & kPollIn) != 0) shorten(SocketOption::receive_timeout_ns);
  if ((events & kPollOut) != 0) shorten(SocketOption::send_timeout_ns);
  return Deadline::after_ns(shortest_ns);
}

}  // namespace detail

/// Accepts the connections of a listener and receives their greetings. Any program can reach a listener with link=tcp,
/// and may then send nothing, or one byte at a time. Such callers wait here and do not delay the others.
///
///     gpusock::Greetings<Hello> greetings(net, listener, 2'000'000'000);
///     Hello hello;
///     const gpusock::Socket caller = greetings.next(hello, deadline);
///
/// One thread makes a Greetings and uses it. It is neither copied nor moved, and takes 544 bytes of the thread's stack.
/// Each caller that waits has a socket: Options::sockets_max must allow for kCallersMax sockets more than the program
/// uses. Otherwise silent callers keep others out until `patience_ns` has passed.
///
/// `Greeting`: the message, trivially copyable and not longer than a ring.
template <class Greeting>
class Greetings {
 public:
  /// How many callers may wait at the same time. If more come, the one that has waited longest is disconnected.
  static constexpr unsigned kCallersMax = 32;
  /// For at least this long, ns, a caller is not disconnected in favor of another one: its greeting may be on its way.
  static constexpr std::uint64_t kYieldNs = 100'000'000;

  /// `patience_ns`: how long a caller may take for its greeting after it was accepted; then it is disconnected.
  GPUSOCK_FN Greetings(const Net& net, Socket listener, std::uint64_t patience_ns)
      : net_(net), listener_(listener), patience_ns_(patience_ns) {}
  /// Disconnects all callers that wait.
  GPUSOCK_FN ~Greetings() {
    while (count_ != 0) dismiss(count_ - 1);
  }
  Greetings(const Greetings&) = delete;
  Greetings& operator=(const Greetings&) = delete;

  /// Waits for a caller whose whole greeting has arrived. Writes the greeting to `greeting` and returns the caller's
  /// socket, which the program then owns. Callers that end before that are disconnected. The deadline ends the wait
  /// whatever callers do; the callers that still wait are heard by the next call. The wait may end a millisecond after
  /// the deadline.
  ///
  /// Errors: those of Net::accept().
  GPUSOCK_FN_APART Socket next(Greeting& greeting, Deadline deadline) {
    const auto me = this_thread();
    const Deadline until = detail::begun(me, net_, listener_, kPollIn, deadline);
    for (bool looked = false;; looked = true) {
      if (until.passed() && (looked || !until.is_now())) return until.is_now() ? -EAGAIN : -ETIMEDOUT;
      if (const int error = take_callers(); error != 0) return error;
      if (const Socket caller = hear(greeting); caller >= 0) return caller;
      if (make_room()) continue;
      // A part of a greeting would end each poll of its socket at once. So callers are looked at after a fixed time.
      PollEntry entry{count_ == kCallersMax ? -1 : listener_, kPollIn, 0};
      const Deadline soon = until.is_now() ? until : Deadline::after_ns(kLookNs);
      const int ready = net_.poll(me, &entry, 1, count_ == 0 ? until : soon);
      if (ready < 0) return ready;
    }
  }

 private:
  static constexpr std::uint64_t kLookNs = 1'000'000;

  struct Caller {
    Socket socket;
    std::uint64_t came_ns;
  };

  /// Accepts callers, as far as there is room for them. Returns 0, or an error.
  GPUSOCK_FN int take_callers() {
    while (count_ < kCallersMax) {
      const Socket socket = net_.accept(this_thread(), listener_, Deadline::now());
      if (socket < 0) return socket == -EAGAIN ? 0 : socket;
      callers_[count_++] = {socket, clock_ns()};
    }
    return 0;
  }

  /// Returns the first caller whose greeting is whole, or -1. Disconnects callers that have ended or taken too long.
  GPUSOCK_FN Socket hear(Greeting& greeting) {
    const std::uint64_t now_ns = clock_ns();
    for (unsigned i = 0; i < count_;) {
      const Caller caller = callers_[i];
      const std::int64_t got = net_.recv(this_thread(), caller.socket, &greeting, sizeof greeting, kWaitAll,
                                         Deadline::now());
      if (got == static_cast<std::int64_t>(sizeof greeting)) {
        forget(i);
        return caller.socket;
      }
      if (got != -EAGAIN || now_ns - caller.came_ns >= patience_ns_) {
        dismiss(i);
      } else {
        ++i;
      }
    }
    return -1;
  }

  /// Disconnects the caller that has waited longest, if another caller needs its entry. Returns true if it did.
  GPUSOCK_FN bool make_room() {
    if (count_ < kCallersMax || clock_ns() - callers_[0].came_ns < kYieldNs) return false;
    PollEntry entry{listener_, kPollIn, 0};
    if (net_.poll(this_thread(), &entry, 1, Deadline::now()) <= 0) return false;
    dismiss(0);
    return true;
  }

  GPUSOCK_FN void dismiss(unsigned which) {
    net_.close(this_thread(), callers_[which].socket);
    forget(which);
  }

  /// Removes a caller from the list of those that wait; the others stay in the order in which they came.
  GPUSOCK_FN void forget(unsigned which) {
    --count_;
    for (unsigned i = which; i < count_; ++i) callers_[i] = callers_[i + 1];
  }

  const Net& net_;
  const Socket listener_;
  const std::uint64_t patience_ns_;
  unsigned count_ = 0;
  Caller callers_[kCallersMax];
};

}  // namespace gpusock
