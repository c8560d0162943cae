#pragma once
/// @file How many system calls this process has made, and how often it has asked for memory. Linked into a test
/// program, counts.cpp counts both: calls that this program's own code makes, by the linker's --wrap, and all memory,
/// by a malloc() of its own. What the C and C++ libraries do by themselves is not counted as a call, such as the waits
/// of std::mutex.
///
/// Where a count is larger than a test allows: break on counted_allocation() or counted_call() in a debugger.

#include <array>
#include <cstdint>
#include <iosfwd>

namespace gpusock::costs {

/// The system calls that are counted. CMakeLists.txt lists them for the linker. futex_wait and futex_wake are two uses
/// of syscall(), which a program makes for what has no function of libc.
#define GPUSOCK_COSTS_CALLS(call)                                                                                     \
  call(accept4) call(bind) call(clock_nanosleep) call(close) call(connect) call(epoll_create1) call(epoll_ctl)        \
      call(epoll_pwait) call(epoll_wait) call(eventfd) call(fcntl) call(fstat) call(ftruncate) call(futex_wait)       \
          call(futex_wake) call(getpeername) call(getpid) call(getrandom) call(getrusage) call(getsockname)           \
              call(getsockopt) call(ioctl) call(listen) call(madvise) call(memfd_create) call(mmap) call(mprotect)    \
                  call(munmap) call(nanosleep) call(open) call(poll) call(ppoll) call(pread) call(pthread_sigmask)    \
                      call(pwrite) call(read) call(readv) call(recv) call(recvfrom) call(recvmmsg) call(recvmsg)      \
                          call(sched_yield) call(select) call(send) call(sendmmsg) call(sendmsg) call(sendto)         \
                              call(setsockopt) call(shutdown) call(sigaltstack) call(socket) call(stat) call(syscall) \
                                  call(usleep) call(write) call(writev)

enum Call {
#define GPUSOCK_COSTS_NAME(name) k_##name,
  GPUSOCK_COSTS_CALLS(GPUSOCK_COSTS_NAME)
#undef GPUSOCK_COSTS_NAME
      kCalls
};

struct Counts {
  std::array<std::uint64_t, kCalls> made{};   ///< by Call
  std::array<std::uint64_t, kCalls> moved{};  ///< of the calls that send and receive: those that moved bytes
  std::uint64_t allocations = 0;              ///< of memory, by malloc() or `new`

  std::uint64_t sent() const;      ///< calls that sent bytes
  std::uint64_t received() const;  ///< calls that received bytes
  /// Calls that wake a thread: a proxy's own, by its bell, or callers that sleep.
  std::uint64_t wakes() const;
  /// Calls that ask whether something has happened, also those that found nothing to receive and no room to send. How
  /// many, depends on time.
  std::uint64_t looks() const;
  /// Calls of a thread that has nothing to do. How many, depends on time.
  std::uint64_t waits() const;
  /// All other calls.
  std::uint64_t others() const;
};

Counts operator-(const Counts& later, const Counts& earlier);
std::ostream& operator<<(std::ostream& out, const Counts& counts);  ///< those that are not 0

/// What all threads have done so far, but those that an Uncounted is on.
Counts counts_so_far();
/// What the calling thread has done so far.
Counts counts_of_this_thread();

/// While it exists, what this thread does is not counted: it stands for another program.
class Uncounted {
 public:
  Uncounted();
  ~Uncounted();
  Uncounted(const Uncounted&) = delete;
  Uncounted& operator=(const Uncounted&) = delete;
};

}  // namespace gpusock::costs
