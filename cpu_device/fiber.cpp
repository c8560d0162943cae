#include "cpu_device/fiber.hpp"

#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <new>

#if CPU_DEVICE_TSAN
#include <sanitizer/tsan_interface.h>
#elif CPU_DEVICE_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

#if defined(__x86_64__)
// Does what jump_fcontext() does, and saves the same words, so that it resumes what make_fcontext() has made. The one
// difference: it ends with a `ret`. A processor predicts where a `ret` goes to by the calls before it. Threads of a
// block have made the same calls when they wait, so the predictions are right as long as each call has its `ret`.
// jump_fcontext() ends with a jump. After it, the predictions of all later `ret`s are wrong, up to the kernel: that
// takes three times as long as a whole switch takes now.
asm(R"(
  .pushsection .text
  .globl cpu_device_jump
  .hidden cpu_device_jump
  .type cpu_device_jump, @function
cpu_device_jump:
  leaq -0x38(%rsp), %rsp
  stmxcsr (%rsp)
  fnstcw 0x04(%rsp)
  movq %r12, 0x08(%rsp)
  movq %r13, 0x10(%rsp)
  movq %r14, 0x18(%rsp)
  movq %r15, 0x20(%rsp)
  movq %rbx, 0x28(%rsp)
  movq %rbp, 0x30(%rsp)
  movq %rsp, %rax       # the result's first word: what is suspended now
  movq %rdi, %rsp
  ldmxcsr (%rsp)
  fldcw 0x04(%rsp)
  movq 0x08(%rsp), %r12
  movq 0x10(%rsp), %r13
  movq 0x18(%rsp), %r14
  movq 0x20(%rsp), %r15
  movq 0x28(%rsp), %rbx
  movq 0x30(%rsp), %rbp
  leaq 0x38(%rsp), %rsp
  movq %rsi, %rdx       # its second word: the data
  movq %rax, %rdi       # what make_fcontext() has made takes the first word as an argument
  ret
  .size cpu_device_jump, . - cpu_device_jump
  .popsection
)");

extern "C" boost::context::detail::transfer_t cpu_device_jump(boost::context::detail::fcontext_t to, void* data);
#endif

namespace cpu_device::detail {

using boost::context::detail::transfer_t;
#if defined(__x86_64__)
constexpr auto* jump = cpu_device_jump;
#else
constexpr auto* jump = boost::context::detail::jump_fcontext;
#endif

namespace {

struct Switch {
  Carrier* from;
  Carrier* to;
};

/// Bytes of the guard below each stack. A kernel may have local arrays that are larger than the stack (on a GPU up to
/// 512 KiB per thread), and may first write to their far end: this must not hit another thread's stack. The guard costs
/// only address space.
#if CPU_DEVICE_TSAN
// TSan maps shadow memory for each mapping. With guards between them, 1000 stacks come close to vm.max_map_count.
constexpr std::size_t kGuardBytes = 0;
#else
constexpr std::size_t kGuardBytes = 1 << 20;
#endif

/// Caches look for a line by the lower bits of its address. So stacks begin at different places of a page: otherwise
/// the first frames of all threads would share a few places of the cache.
constexpr std::size_t kColours = 16, kColourBytes = 256;
std::atomic<std::size_t> stacks_made{0};

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

/// The first function that runs on a new carrier.
void enter_carrier(transfer_t arrival) {
  const Switch at = *static_cast<Switch*>(arrival.data);
  at.from->context_ = arrival.fctx;
#if CPU_DEVICE_ASAN
  __sanitizer_finish_switch_fiber(nullptr, nullptr, nullptr);
#endif
  at.to->entry_(*at.to);
  std::abort();  // an entry never returns
}

Carrier::Carrier(Entry entry) : entry_(entry), stack_bytes_(kStackBytes + kColours * kColourBytes) {
  void* const mapping = mmap(nullptr, kGuardBytes + stack_bytes_, PROT_NONE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
  if (mapping == MAP_FAILED) throw std::bad_alloc();
  mapping_ = static_cast<std::byte*>(mapping);
  stack_low_ = mapping_ + kGuardBytes;
  if (mprotect(mapping_ + kGuardBytes, stack_bytes_, PROT_READ | PROT_WRITE) != 0) {
    munmap(mapping, kGuardBytes + stack_bytes_);
    throw std::bad_alloc();
  }
  // relaxed: any number will do
  const std::size_t colour = stacks_made.fetch_add(1, std::memory_order_relaxed) % kColours;
  std::byte* const top = mapping_ + kGuardBytes + stack_bytes_ - colour * kColourBytes;
  context_ = boost::context::detail::make_fcontext(top, kStackBytes, enter_carrier);
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
  munmap(mapping_, kGuardBytes + stack_bytes_);
}

bool Carrier::guard_contains(const void* address) const noexcept {
  const auto* at = static_cast<const std::byte*>(address);
  return mapping_ && at >= mapping_ && at < mapping_ + kGuardBytes;
}

void Carrier::switch_to(Carrier& to) noexcept {
  Switch here{this, &to};
#if CPU_DEVICE_TSAN
  __tsan_switch_to_fiber(to.tsan_fiber_, 0);
#elif CPU_DEVICE_ASAN
  __sanitizer_start_switch_fiber(&fake_stack_, to.stack_low_, to.stack_bytes_);
#endif
  const transfer_t arrival = jump(to.context_, &here);
  static_cast<Switch*>(arrival.data)->from->context_ = arrival.fctx;
#if CPU_DEVICE_ASAN
  __sanitizer_finish_switch_fiber(fake_stack_, nullptr, nullptr);
#endif
}

void Carrier::leave_for(Carrier& to) noexcept {
  Switch here{this, &to};
  jump(to.context_, &here);
  std::abort();  // this is never resumed
}

}  // namespace cpu_device::detail
