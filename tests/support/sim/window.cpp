#include "tests/support/sim/window.hpp"

#include "ringbuf/atomics.hpp"
#include "tests/support/sim/shortage.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <new>

namespace gpusock::sim {
namespace {

constexpr std::uint64_t kLongestWayNs = 3'000;

/// By the address of their mapping.
std::map<std::byte*, LateWindow*>& windows() {
  static std::map<std::byte*, LateWindow*> all;
  return all;
}

}  // namespace

/// Addresses of mappings: no access is possible, so only what goes to bar_write() does not fault.
std::byte* reserved_for_mappings() {
  static auto* const reserved = static_cast<std::byte*>(
      mmap(nullptr, kReservedForMappings, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  return reserved;
}

void bar_write(void* at, std::uint64_t value, std::size_t bytes) { LateWindow::bar_write(at, value, bytes); }

LateWindow::LateWindow(Schedule& schedule, std::size_t bytes)
    : schedule_(schedule), memory_(std::make_shared<Memory>()), mapped_bytes_(bytes) {
  memory_->bytes.resize(bytes);
  mapping_ = reserved_for_mappings();
  for (const auto& [at, window] : windows()) {  // the first gap
    if (at - mapping_ >= static_cast<std::ptrdiff_t>(bytes)) break;
    mapping_ = at + window->mapped_bytes_;
  }
  if (mapping_ + bytes > reserved_for_mappings() + kReservedForMappings) throw std::bad_alloc();
  windows().emplace(mapping_, this);
}

LateWindow::~LateWindow() { windows().erase(mapping_); }

void LateWindow::bar_write(void* at, std::uint64_t value, std::size_t bytes) {
  const Outside outside;
  auto* const address = static_cast<std::byte*>(at);
  LateWindow& window = *std::prev(windows().upper_bound(address))->second;
  Memory& memory = *window.memory_;
  memory.under_way.push_back({static_cast<std::size_t>(address - window.mapping_), value, bytes});
  Schedule& schedule = window.schedule_;
  window.last_ns_ = std::max(window.last_ns_, schedule.now_ns() + schedule.random().below(kLongestWayNs));
  schedule.at(window.last_ns_, [arriving = window.memory_] { arriving->arrive_one(); });
}

void LateWindow::Memory::arrive_one() {
  if (under_way.empty()) return;  // settle() came first
  const Store store = under_way.front();
  under_way.pop_front();
  std::memcpy(bytes.data() + store.at, &store.value, store.bytes);
}

void LateWindow::settle() {
  while (!memory_->under_way.empty()) memory_->arrive_one();
}

}  // namespace gpusock::sim
