#include "cpu_device/fiber.hpp"

#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <new>

#if CPU_DEVICE_TSAN
#include <sanitizer/tsan_interface.h>
#elif CPU_DEVICE_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

namespace cpu_device::detail {

using boost::context::detail::jump_fcontext;
using boost::context::detail::transfer_t;

namespace {

struct Switch {
  Carrier* from;
  Carrier* to;
};

std::size_t guard_bytes() {
  static const auto page_bytes = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  return page_bytes;
}

}  // namespace

Carrier::Carrier() {
#if CPU_DEVICE_ASAN
  pthread_attr_t attributes;
  if (pthread_getattr_np(pthread_self(), &attributes) == 0) {
    void* low = nullptr;
    pthread_attr_getstack(&attributes, &low, &stack_bytes_);
    stack_low_ = low;
    pthread_attr_destroy(&attributes);
  }
#elif CPU_DEVICE_TSAN
  tsan_fiber_ = __tsan_get_current_fiber();
#endif
}

/// Where a new carrier starts.
void enter_carrier(transfer_t arrival) {
  const Switch at = *static_cast<Switch*>(arrival.data);
  at.from->context_ = arrival.fctx;
#if CPU_DEVICE_ASAN
  __sanitizer_finish_switch_fiber(nullptr, nullptr, nullptr);
#endif
  at.to->entry_(*at.to);
  std::abort();  // an entry never returns
}

Carrier::Carrier(Entry entry) : entry_(entry), stack_bytes_(kStackBytes) {
  void* const mapping = mmap(nullptr, guard_bytes() + stack_bytes_, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
  if (mapping == MAP_FAILED) throw std::bad_alloc();
  // TSan maps shadow for each mapping: without guard pages neighbouring stacks are one mapping, else a thousand fibers
  // come close to vm.max_map_count.
  if (!CPU_DEVICE_TSAN && mprotect(mapping, guard_bytes(), PROT_NONE) != 0) {
    munmap(mapping, guard_bytes() + stack_bytes_);
    throw std::bad_alloc();
  }
  mapping_ = static_cast<std::byte*>(mapping);
  stack_low_ = mapping_ + guard_bytes();
  context_ = boost::context::detail::make_fcontext(mapping_ + guard_bytes() + stack_bytes_, stack_bytes_,
                                                   enter_carrier);
#if CPU_DEVICE_TSAN
  tsan_fiber_ = __tsan_create_fiber(0);
#elif CPU_DEVICE_ASAN
  __asan_unpoison_memory_region(stack_low_, stack_bytes_);
#endif
}

Carrier::~Carrier() {
  if (!mapping_) return;
#if CPU_DEVICE_TSAN
  __tsan_destroy_fiber(tsan_fiber_);
#elif CPU_DEVICE_ASAN
  __asan_unpoison_memory_region(stack_low_, stack_bytes_);
#endif
  munmap(mapping_, guard_bytes() + stack_bytes_);
}

bool Carrier::guard_contains(const void* address) const noexcept {
  const auto* at = static_cast<const std::byte*>(address);
  return mapping_ && at >= mapping_ && at < mapping_ + guard_bytes();
}

void Carrier::switch_to(Carrier& to) noexcept {
  Switch here{this, &to};
#if CPU_DEVICE_TSAN
  __tsan_switch_to_fiber(to.tsan_fiber_, 0);
#elif CPU_DEVICE_ASAN
  __sanitizer_start_switch_fiber(&fake_stack_, to.stack_low_, to.stack_bytes_);
#endif
  const transfer_t arrival = jump_fcontext(to.context_, &here);
  static_cast<Switch*>(arrival.data)->from->context_ = arrival.fctx;
#if CPU_DEVICE_ASAN
  __sanitizer_finish_switch_fiber(fake_stack_, nullptr, nullptr);
#endif
}

void Carrier::leave_for(Carrier& to) noexcept {
  Switch here{this, &to};
  jump_fcontext(to.context_, &here);
  std::abort();  // nobody resumes this
}

}  // namespace cpu_device::detail
