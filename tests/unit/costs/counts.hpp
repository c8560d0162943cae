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

/// The system calls that are counted. futex_wait and futex_wake are two uses of syscall(), which a program makes for
/// what has no function of libc.
enum Call {
#define GPUSOCK_COSTS_CALL(name) k_##name,
#include "tests/unit/costs/calls.inc"
#undef GPUSOCK_COSTS_CALL
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
