#include "tests/support/sim/shortage.hpp"

#include "tests/support/failing_memory.hpp"
#include "tests/support/sim/kernel.hpp"

#include <algorithm>
#include <cstdlib>
#include <iterator>

namespace gpusock::sim {
namespace {

const std::string kNames[] = {"nothing", "memory", "calls", "interrupts"};  // by Shortage::Of

Shortage current;
std::uint64_t calls_seen = 0;
bool any_denied = false;

/// The fiber whose proxy is in the middle of its step, or nullptr.
Fiber* stepping() {
  Fiber* fiber = current_schedule == nullptr ? nullptr : current_schedule->running();
  return fiber != nullptr && fiber->whole != 0 && fiber->outside == 0 ? fiber : nullptr;
}

bool counts() { return stepping() != nullptr; }

}  // namespace

std::string to_string(const Shortage& shortage) {
  if (!shortage) return {};
  return kNames[static_cast<int>(shortage.of)] + (":" + std::to_string(shortage.nth)) +
         (shortage.all_from_there ? "+" : "");
}

bool parse(const std::string& text, Shortage& shortage) {
  shortage = {};
  if (text.empty()) return true;
  const auto colon = text.find(':');
  const std::string of = text.substr(0, colon);
  const auto known = std::find(std::begin(kNames) + 1, std::end(kNames), of);
  if (colon == std::string::npos || known == std::end(kNames)) return false;
  shortage.of = static_cast<Shortage::Of>(known - std::begin(kNames));
  char* end = nullptr;
  shortage.nth = std::strtoull(text.c_str() + colon + 1, &end, 10);
  shortage.all_from_there = *end == '+';
  return shortage.nth != 0 && end[shortage.all_from_there ? 1 : 0] == '\0';
}

void begin_shortage(const Shortage& shortage) {
  if (current.of == Shortage::Of::memory) any_denied = failing_memory::disarm();
  if (current.of == Shortage::Of::calls || current.of == Shortage::Of::interrupts)
    any_denied = calls_seen >= current.nth;
  current = shortage;
  if (!shortage) return;
  calls_seen = 0;
  any_denied = false;
  failing_memory::counts = counts;
  if (shortage.of == Shortage::Of::memory) {
    failing_memory::arm(shortage.nth,
                        shortage.all_from_there ? failing_memory::Extent::all_from_there : failing_memory::Extent::one);
  }
}

bool was_denied() { return any_denied; }

/// Is this the one of its kind.
bool is_chosen(Shortage::Of kind) {
  if (current.of != kind || stepping() == nullptr) return false;
  ++calls_seen;
  return calls_seen == current.nth || (calls_seen > current.nth && current.all_from_there);
}

bool deny_call() { return is_chosen(Shortage::Of::calls); }

bool interrupt_call() { return is_chosen(Shortage::Of::interrupts); }

Outside::Outside() : fiber_(current_schedule == nullptr ? nullptr : current_schedule->running()) {
  if (fiber_ != nullptr) ++fiber_->outside;
}

Outside::~Outside() {
  if (fiber_ != nullptr) --fiber_->outside;
}

}  // namespace gpusock::sim
