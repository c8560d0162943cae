// The functions that are counted, each under the name that the linker gives it.
#include "tests/unit/costs/counts.hpp"

#include <linux/futex.h>
#include <malloc.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdarg>
#include <cstddef>
#include <cstdlib>
#include <numeric>
#include <ostream>

namespace gpusock::costs {
namespace {

// Counts::made, Counts::moved and Counts::allocations, one after the other.
constexpr std::size_t kMoved = kCalls, kAllocations = 2 * kCalls, kWords = kAllocations + 1;

constinit std::array<std::atomic<std::uint64_t>, kWords> g_counts{};
constinit thread_local std::array<std::uint64_t, kWords> t_counts{};
constinit thread_local bool t_counted = true;

void count(std::size_t what) {
  if (!t_counted) return;
  g_counts[what].fetch_add(1, std::memory_order_relaxed);
  ++t_counts[what];
}

template <class Words>
Counts counts_in(const Words& words) {
  Counts counts;
  for (std::size_t i = 0; i < kCalls; ++i) {
    counts.made[i] = words[i];
    counts.moved[i] = words[kMoved + i];
  }
  counts.allocations = words[kAllocations];
  return counts;
}

}  // namespace

/// Not inline, so that a debugger can break on them.
[[gnu::noinline]] void counted_call(Call call) { count(call); }
[[gnu::noinline]] void counted_allocation() { count(kAllocations); }

/// The result of a call that moves bytes, counted.
ssize_t moved(Call call, ssize_t bytes) {
  const int error = errno;
  counted_call(call);
  if (bytes > 0) count(kMoved + call);
  errno = error;
  return bytes;
}

Call use_of_futex(int operation) {
  const int what = operation & FUTEX_CMD_MASK;
  return what == FUTEX_WAKE ? k_futex_wake : what == FUTEX_WAIT ? k_futex_wait : k_syscall;
}

Counts counts_so_far() { return counts_in(g_counts); }
Counts counts_of_this_thread() { return counts_in(t_counts); }

Uncounted::Uncounted() { t_counted = false; }
Uncounted::~Uncounted() { t_counted = true; }

namespace {

constexpr Call kSends[] = {k_send, k_sendmmsg, k_sendmsg, k_sendto};
constexpr Call kReceives[] = {k_recv, k_recvfrom, k_recvmmsg, k_recvmsg};
constexpr Call kWakes[] = {k_futex_wake, k_write};
constexpr Call kWaits[] = {k_clock_nanosleep, k_futex_wait, k_nanosleep, k_ppoll,
                           k_sched_yield,     k_usleep,     k_read /* of the bell, after a sleep */};

template <class Words, std::size_t kCount>
std::uint64_t sum(const Words& words, const Call (&calls)[kCount]) {
  std::uint64_t all = 0;
  for (const Call call : calls) all += words[call];
  return all;
}

}  // namespace

std::uint64_t Counts::sent() const { return sum(moved, kSends); }
std::uint64_t Counts::received() const { return sum(moved, kReceives); }
std::uint64_t Counts::wakes() const { return sum(made, kWakes); }
std::uint64_t Counts::waits() const { return sum(made, kWaits); }
std::uint64_t Counts::looks() const {
  return made[k_epoll_wait] + sum(made, kSends) + sum(made, kReceives) - sent() - received();
}
std::uint64_t Counts::others() const {
  const std::uint64_t all = std::accumulate(made.begin(), made.end(), std::uint64_t{0});
  return all - sent() - received() - wakes() - waits() - looks();
}

Counts operator-(const Counts& later, const Counts& earlier) {
  Counts between = later;
  for (std::size_t i = 0; i < kCalls; ++i) {
    between.made[i] -= earlier.made[i];
    between.moved[i] -= earlier.moved[i];
  }
  between.allocations -= earlier.allocations;
  return between;
}

std::ostream& operator<<(std::ostream& out, const Counts& counts) {
#define GPUSOCK_COSTS_CALL(name) #name,
  static constexpr const char* kNames[] = {
#include "tests/unit/costs/calls.inc"
  };
#undef GPUSOCK_COSTS_CALL
  for (std::size_t i = 0; i < kCalls; ++i) {
    if (counts.made[i] == 0) continue;
    out << kNames[i] << " " << counts.made[i];
    if (counts.moved[i] != 0) out << " (" << counts.moved[i] << " moved bytes)";
    out << ", ";
  }
  return out << "allocations " << counts.allocations;
}

}  // namespace gpusock::costs

using namespace gpusock::costs;

// NOLINTBEGIN(bugprone-reserved-identifier): the names of the linker and of glibc
extern "C" {

#define GPUSOCK_COSTS_COUNT(result, name, parameters, arguments) \
  result __real_##name parameters;                               \
  result __wrap_##name parameters {                              \
    counted_call(k_##name);                                      \
    return __real_##name arguments;                              \
  }
#define GPUSOCK_COSTS_MOVE(name, parameters, arguments) \
  ssize_t __real_##name parameters;                     \
  ssize_t __wrap_##name parameters { return moved(k_##name, __real_##name arguments); }

GPUSOCK_COSTS_MOVE(recv, (int file, void* into, size_t bytes, int flags), (file, into, bytes, flags))
GPUSOCK_COSTS_MOVE(recvmsg, (int file, msghdr* message, int flags), (file, message, flags))
GPUSOCK_COSTS_MOVE(send, (int file, const void* from, size_t bytes, int flags), (file, from, bytes, flags))
GPUSOCK_COSTS_MOVE(sendmsg, (int file, const msghdr* message, int flags), (file, message, flags))

GPUSOCK_COSTS_MOVE(recvfrom, (int file, void* into, size_t bytes, int flags, sockaddr* name, socklen_t* name_bytes),
                   (file, into, bytes, flags, name, name_bytes))
GPUSOCK_COSTS_MOVE(sendto,
                   (int file, const void* from, size_t bytes, int flags, const sockaddr* name, socklen_t name_bytes),
                   (file, from, bytes, flags, name, name_bytes))
GPUSOCK_COSTS_MOVE(recvmmsg, (int file, mmsghdr* messages, unsigned message_count, int flags, timespec* timeout),
                   (file, messages, message_count, flags, timeout))
GPUSOCK_COSTS_MOVE(sendmmsg, (int file, mmsghdr* messages, unsigned message_count, int flags),
                   (file, messages, message_count, flags))

GPUSOCK_COSTS_COUNT(int, accept4, (int file, sockaddr* name, socklen_t* bytes, int flags), (file, name, bytes, flags))
GPUSOCK_COSTS_COUNT(int, bind, (int file, const sockaddr* name, socklen_t bytes), (file, name, bytes))
GPUSOCK_COSTS_COUNT(int, clock_nanosleep, (clockid_t clock, int flags, const timespec* time, timespec* left),
                    (clock, flags, time, left))
GPUSOCK_COSTS_COUNT(int, close, (int file), (file))
GPUSOCK_COSTS_COUNT(int, connect, (int file, const sockaddr* name, socklen_t bytes), (file, name, bytes))
GPUSOCK_COSTS_COUNT(int, epoll_create1, (int flags), (flags))
GPUSOCK_COSTS_COUNT(int, epoll_ctl, (int epoll, int operation, int file, epoll_event* event),
                    (epoll, operation, file, event))
GPUSOCK_COSTS_COUNT(int, epoll_pwait, (int epoll, epoll_event* events, int most, int timeout_ms, const sigset_t* mask),
                    (epoll, events, most, timeout_ms, mask))
GPUSOCK_COSTS_COUNT(int, epoll_wait, (int epoll, epoll_event* events, int most, int timeout_ms),
                    (epoll, events, most, timeout_ms))
GPUSOCK_COSTS_COUNT(int, eventfd, (unsigned first, int flags), (first, flags))
GPUSOCK_COSTS_COUNT(int, fstat, (int file, struct stat* facts), (file, facts))
GPUSOCK_COSTS_COUNT(int, ftruncate, (int file, off_t bytes), (file, bytes))
GPUSOCK_COSTS_COUNT(int, getpeername, (int file, sockaddr* name, socklen_t* bytes), (file, name, bytes))
GPUSOCK_COSTS_COUNT(pid_t, getpid, (), ())
GPUSOCK_COSTS_COUNT(ssize_t, getrandom, (void* into, size_t bytes, unsigned flags), (into, bytes, flags))
GPUSOCK_COSTS_COUNT(int, getrusage, (int whose, rusage* usage), (whose, usage))
GPUSOCK_COSTS_COUNT(int, getsockname, (int file, sockaddr* name, socklen_t* bytes), (file, name, bytes))
GPUSOCK_COSTS_COUNT(int, getsockopt, (int file, int level, int option, void* value, socklen_t* bytes),
                    (file, level, option, value, bytes))
GPUSOCK_COSTS_COUNT(int, listen, (int file, int backlog), (file, backlog))
GPUSOCK_COSTS_COUNT(int, madvise, (void* at, size_t bytes, int advice), (at, bytes, advice))
GPUSOCK_COSTS_COUNT(int, memfd_create, (const char* name, unsigned flags), (name, flags))
GPUSOCK_COSTS_COUNT(void*, mmap, (void* at, size_t bytes, int access, int flags, int file, off_t offset),
                    (at, bytes, access, flags, file, offset))
GPUSOCK_COSTS_COUNT(int, mprotect, (void* at, size_t bytes, int access), (at, bytes, access))
GPUSOCK_COSTS_COUNT(int, munmap, (void* at, size_t bytes), (at, bytes))
GPUSOCK_COSTS_COUNT(int, nanosleep, (const timespec* time, timespec* left), (time, left))
GPUSOCK_COSTS_COUNT(int, poll, (pollfd * entries, nfds_t entry_count, int timeout_ms),
                    (entries, entry_count, timeout_ms))
GPUSOCK_COSTS_COUNT(int, ppoll, (pollfd * entries, nfds_t entry_count, const timespec* timeout, const sigset_t* mask),
                    (entries, entry_count, timeout, mask))
GPUSOCK_COSTS_COUNT(ssize_t, pread, (int file, void* into, size_t bytes, off_t at), (file, into, bytes, at))
GPUSOCK_COSTS_COUNT(int, pthread_sigmask, (int how, const sigset_t* set, sigset_t* before), (how, set, before))
GPUSOCK_COSTS_COUNT(ssize_t, pwrite, (int file, const void* from, size_t bytes, off_t at), (file, from, bytes, at))
GPUSOCK_COSTS_COUNT(ssize_t, read, (int file, void* into, size_t bytes), (file, into, bytes))
GPUSOCK_COSTS_COUNT(ssize_t, readv, (int file, const iovec* into, int parts), (file, into, parts))
GPUSOCK_COSTS_COUNT(int, sched_yield, (), ())
GPUSOCK_COSTS_COUNT(int, select, (int most, fd_set* in, fd_set* out, fd_set* other, timeval* timeout),
                    (most, in, out, other, timeout))
GPUSOCK_COSTS_COUNT(int, setsockopt, (int file, int level, int option, const void* value, socklen_t bytes),
                    (file, level, option, value, bytes))
GPUSOCK_COSTS_COUNT(int, shutdown, (int file, int how), (file, how))
GPUSOCK_COSTS_COUNT(int, socket, (int family, int type, int protocol), (family, type, protocol))
GPUSOCK_COSTS_COUNT(int, stat, (const char* path, struct stat* facts), (path, facts))
GPUSOCK_COSTS_COUNT(int, usleep, (useconds_t duration_us), (duration_us))
GPUSOCK_COSTS_COUNT(ssize_t, write, (int file, const void* from, size_t bytes), (file, from, bytes))
GPUSOCK_COSTS_COUNT(ssize_t, writev, (int file, const iovec* from, int parts), (file, from, parts))

int __real_ioctl(int file, unsigned long request, ...);
int __wrap_ioctl(int file, unsigned long request, ...) {
  counted_call(k_ioctl);
  va_list rest;
  va_start(rest, request);
  void* const argument = va_arg(rest, void*);
  va_end(rest);
  return __real_ioctl(file, request, argument);
}

int __real_fcntl(int file, int command, ...);
int __wrap_fcntl(int file, int command, ...) {
  counted_call(k_fcntl);
  va_list rest;
  va_start(rest, command);
  void* const argument = va_arg(rest, void*);
  va_end(rest);
  return __real_fcntl(file, command, argument);
}

int __real_open(const char* path, int flags, ...);
int __wrap_open(const char* path, int flags, ...) {
  counted_call(k_open);
  va_list rest;
  va_start(rest, flags);
  const int mode = va_arg(rest, int);
  va_end(rest);
  return __real_open(path, flags, mode);
}

long __real_syscall(long number, ...);
long __wrap_syscall(long number, ...) {
  va_list rest;
  va_start(rest, number);
  long arguments[6];
  for (long& argument : arguments) argument = va_arg(rest, long);
  va_end(rest);
  counted_call(number == SYS_futex ? use_of_futex(static_cast<int>(arguments[1])) : k_syscall);
  return __real_syscall(number, arguments[0], arguments[1], arguments[2], arguments[3], arguments[4], arguments[5]);
}

// All memory of the program: `new` asks for it here, too.
void* __libc_malloc(size_t bytes);
void* __libc_calloc(size_t count, size_t bytes);
void* __libc_realloc(void* memory, size_t bytes);
void* __libc_memalign(size_t alignment, size_t bytes);

void* malloc(size_t bytes) noexcept {
  counted_allocation();
  return __libc_malloc(bytes);
}
void* calloc(size_t count, size_t bytes) noexcept {
  counted_allocation();
  return __libc_calloc(count, bytes);
}
void* realloc(void* memory, size_t bytes) noexcept {
  counted_allocation();
  return __libc_realloc(memory, bytes);
}
void* memalign(size_t alignment, size_t bytes) noexcept {
  counted_allocation();
  return __libc_memalign(alignment, bytes);
}
void* aligned_alloc(size_t alignment, size_t bytes) noexcept { return memalign(alignment, bytes); }
int posix_memalign(void** memory, size_t alignment, size_t bytes) noexcept {
  *memory = memalign(alignment, bytes);
  return *memory == nullptr ? ENOMEM : 0;
}

}  // extern "C"
// NOLINTEND(bugprone-reserved-identifier)
