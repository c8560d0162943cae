#include "cpu_device/fiber.hpp"

#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <new>

#if CPU_DEVICE_TSAN
#include <sanitizer/tsan_interface.h>
#elif CPU_DEVICE_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

#if defined(__x86_64__)
// cpu_device_jump(from, to, data, result) suspends the caller, writes its frame to *from, and resumes the frame `to`.
// It does what Boost's jump_fcontext() does. Two differences:
// - It ends with a `ret`. A processor predicts where a `ret` goes to by the calls before it. Threads of a block have
//   made the same calls when they wait, so the predictions are right as long as each call has its `ret`.
//   jump_fcontext() ends with a jump. After it, the predictions of all later `ret`s are wrong, up to the kernel: that
//   takes three times as long as a whole switch takes now.
// - It leaves the control words of the floating-point units as they are: all threads of a block have the same ones.
//   CUDA has no calls that change them. To save and load them took a third of a switch.
//
// cpu_device_meet(meeting, mask, value, other) saves the same frame, and asks cpu_device_arrive() which frame goes on.
// That is mostly another thread's in cpu_device_meet(), which came here from another place of the kernel. A `ret` would
// then be predicted wrong, and so would the `ret` of each function between the kernel and this one. So there are none,
// and it ends with a jump. A processor predicts where a jump goes to by where it went the last times.

// Where a frame keeps the registers that a call preserves. The two functions resume each other's frames, and that of a
// new carrier (first_frame()). Boost's frames are others, and differ between its versions.
#define CPU_DEVICE_SAVE_REGISTERS \
  "movq %r12, 0x08(%rsp)\n"       \
  "movq %r13, 0x10(%rsp)\n"       \
  "movq %r14, 0x18(%rsp)\n"       \
  "movq %r15, 0x20(%rsp)\n"       \
  "movq %rbx, 0x28(%rsp)\n"       \
  "movq %rbp, 0x30(%rsp)\n"
#define CPU_DEVICE_LOAD_REGISTERS \
  "movq 0x08(%rsp), %r12\n"       \
  "movq 0x10(%rsp), %r13\n"       \
  "movq 0x18(%rsp), %r14\n"       \
  "movq 0x20(%rsp), %r15\n"       \
  "movq 0x28(%rsp), %rbx\n"       \
  "movq 0x30(%rsp), %rbp\n"

asm(R"(
  .pushsection .text
  .globl cpu_device_jump
  .hidden cpu_device_jump
  .type cpu_device_jump, @function
cpu_device_jump:
  leaq -0x38(%rsp), %rsp
)" CPU_DEVICE_SAVE_REGISTERS R"(
  movq %rsp, (%rdi)
  movq %rsi, %rsp
)" CPU_DEVICE_LOAD_REGISTERS R"(
  leaq 0x38(%rsp), %rsp
  movq %rdx, %rdi       # for the first function of a new carrier
  movq %rcx, %rax       # for a thread that is in cpu_device_meet()
  ret
  .size cpu_device_jump, . - cpu_device_jump
  .popsection
)");

extern "C" void cpu_device_jump(void** from, void* to, void* data, const void* result);
#endif

#if CPU_DEVICE_SWITCHES_AT_MEETINGS
asm(R"(
  .pushsection .text
  .globl cpu_device_meet
  .type cpu_device_meet, @function
cpu_device_meet:
  .cfi_startproc
  leaq -0x38(%rsp), %rsp
  .cfi_def_cfa_offset 0x40
)" CPU_DEVICE_SAVE_REGISTERS R"(
  movq %rsp, %r8
  call cpu_device_arrive
  cmpq %rax, %rsp
  je 1f
  movq %rax, %rsp
  movq %rdx, %rax
)" CPU_DEVICE_LOAD_REGISTERS R"(
  movq 0x38(%rsp), %rcx
  leaq 0x40(%rsp), %rsp
  .cfi_def_cfa_offset 0
  jmp *%rcx
  .cfi_def_cfa_offset 0x40
1:
  movq %rdx, %rax       # the same thread goes on: cpu_device_arrive() has kept its registers
  leaq 0x38(%rsp), %rsp
  .cfi_def_cfa_offset 0x08
  ret
  .cfi_endproc
  .size cpu_device_meet, . - cpu_device_meet
  .popsection
)");
#endif

namespace cpu_device::detail {

namespace {

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

#if defined(__x86_64__)
constexpr std::size_t kReturnAddress = 0x38;  // its place in a frame: above the registers

/// The frame of a new carrier: cpu_device_jump() resumes it, and returns to the beginning of `first`. The stack ends at
/// `top`, a multiple of 16, and all of it is 0: the registers of the frame, and the return address of `first`.
void* first_frame(std::byte* top, void (*first)(Carrier&)) noexcept {
  // A function begins with its return address on top of the stack, 8 bytes below a multiple of 16.
  std::byte* const frame = top - sizeof(void*) - (kReturnAddress + sizeof(void*));
  std::memcpy(frame + kReturnAddress, &first, sizeof first);
  return frame;
}
#else
using boost::context::detail::transfer_t;
#endif

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

#if defined(__x86_64__)
/// Suspends the caller, writes its frame to `from`, and resumes `to`.
void Carrier::jump(void*& from, Carrier& to, const void* result) noexcept {
  cpu_device_jump(&from, to.context_, &to, result);
}

/// The first function that runs on a new carrier.
void enter_carrier(Carrier& self) {
#else
/// The same with fcontext, where what is resumed writes down the frame of what was suspended.
struct Carrier::Switch {
  void*& from;
  Carrier& to;
};

void Carrier::jump(void*& from, Carrier& to, const void*) noexcept {
  Switch here{from, to};
  const transfer_t arrival = boost::context::detail::jump_fcontext(to.context_, &here);
  static_cast<Switch*>(arrival.data)->from = arrival.fctx;
}

void enter_carrier(transfer_t arrival) {
  Carrier& self = static_cast<Carrier::Switch*>(arrival.data)->to;
  static_cast<Carrier::Switch*>(arrival.data)->from = arrival.fctx;
#endif
#if CPU_DEVICE_ASAN
  __sanitizer_finish_switch_fiber(nullptr, nullptr, nullptr);
#endif
  self.entry_(self);
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
#if defined(__x86_64__)
  context_ = first_frame(top, enter_carrier);
#else
  context_ = boost::context::detail::make_fcontext(top, kStackBytes, enter_carrier);
#endif
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

void Carrier::switch_to(Carrier& to, const void* result) noexcept {
#if CPU_DEVICE_TSAN
  __tsan_switch_to_fiber(to.tsan_fiber_, 0);
#elif CPU_DEVICE_ASAN
  __sanitizer_start_switch_fiber(&fake_stack_, to.stack_low_, to.stack_bytes_);
#endif
  jump(context_, to, result);
#if CPU_DEVICE_ASAN
  __sanitizer_finish_switch_fiber(fake_stack_, nullptr, nullptr);
#endif
}

void Carrier::leave_for(Carrier& to) noexcept {
  void* left = nullptr;
  jump(left, to, nullptr);
  std::abort();  // this is never resumed
}

}  // namespace cpu_device::detail
