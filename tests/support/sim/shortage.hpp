#pragma once
/// @file What a simulated run is denied: one allocation or system call of its proxies, or all from one on; or one is
/// interrupted.

#include <cstdint>
#include <string>

namespace gpusock::sim {

class Fiber;

struct Shortage {
  enum class Of { nothing, memory, calls, interrupts };
  Of of = Of::nothing;
  std::uint64_t nth = 0;  ///< from 1; of all proxies of the run together
  bool all_from_there = false;

  explicit operator bool() const { return of != Of::nothing; }
};

/// "memory:17", "calls:3+" (all from the third on), "interrupts:5"; "" for nothing.
std::string to_string(const Shortage& shortage);
bool parse(const std::string& text, Shortage& shortage);

/// From now on; Shortage() ends it. One run at a time.
void begin_shortage(const Shortage& shortage);
/// True if something was denied in the last one, once it has ended.
bool was_denied();

/// Of a system call that may fail for want of something: true if it must.
bool deny_call();
/// Of one that a signal may interrupt: true if one does.
bool interrupt_call();

/// While it lives, what the running fiber does is not the proxy's: its allocations are not denied.
class Outside {
 public:
  Outside();
  ~Outside();
  Outside(const Outside&) = delete;
  Outside& operator=(const Outside&) = delete;

 private:
  Fiber* fiber_;
};

}  // namespace gpusock::sim
