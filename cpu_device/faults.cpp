#include "cpu_device/pool.hpp"

#include <signal.h>

#include <cstdio>
#include <cstring>

namespace cpu_device::detail {

namespace {

[[maybe_unused]] constexpr int kSignals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL};
constexpr std::size_t kSignalStackBytes = 64 * 1024 + 64;  // an unusual size, by which a handler recognizes it
struct sigaction previous[NSIG];

/// Does what would have happened without this handler.
void pass_on(int signal, siginfo_t* info, void* context) {
  const struct sigaction& before = previous[signal];
  if (before.sa_flags & SA_SIGINFO) {
    before.sa_sigaction(signal, info, context);
  } else if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN) {
    before.sa_handler(signal);
  } else {
    sigaction(signal, &before, nullptr);    // the instruction runs again, and this time it ends the process
    if (info->si_code <= 0) raise(signal);  // a process sent the signal: no instruction runs again
  }
}

/// True on a thread that runs blocks. Only such a thread may read t_running: in a shared library, a thread's first
/// access to thread-local memory allocates it, which a handler must not do.
[[maybe_unused]] bool runs_blocks() {
  stack_t now{};
  return sigaltstack(nullptr, &now) == 0 && (now.ss_flags & SS_ONSTACK) != 0 && now.ss_size == kSignalStackBytes;
}

[[maybe_unused]] void on_fault(int signal, siginfo_t* info, void* context) {
  const bool by_instruction = info->si_code > 0;
  if (by_instruction && runs_blocks() && t_running) t_running->fail_by_signal(signal, info->si_addr);
  pass_on(signal, info, context);
}

}  // namespace

void install_fault_handlers() {
#if !CPU_DEVICE_ASAN && !CPU_DEVICE_TSAN  // a sanitizer's own report says more
  struct sigaction action {};
  action.sa_sigaction = on_fault;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;  // on a kernel's fault it never returns: block no signal
  sigemptyset(&action.sa_mask);
  for (const int signal : kSignals) sigaction(signal, &action, &previous[signal]);
#endif
}

SignalStack::SignalStack() : memory_(std::make_unique<std::byte[]>(kSignalStackBytes)) {}

void SignalStack::install() noexcept {
  installed_ = true;
#if !CPU_DEVICE_ASAN && !CPU_DEVICE_TSAN
  stack_t stack{};
  stack.ss_sp = memory_.get();
  stack.ss_size = kSignalStackBytes;
  sigaltstack(&stack, nullptr);
#endif
}

SignalStack::~SignalStack() {
  if (!installed_) return;
#if !CPU_DEVICE_ASAN && !CPU_DEVICE_TSAN
  stack_t stack{};
  stack.ss_flags = SS_DISABLE;
  sigaltstack(&stack, nullptr);
#endif
}

std::string describe_signal(int signal, const void* address, const Carrier* carrier) {
  if (carrier && carrier->guard_contains(address)) {
    return "its stack of " + std::to_string(kStackBytes / 1024) + " KiB overflowed";
  }
  char text[32];
  std::snprintf(text, sizeof text, " at address %p", address);
  return std::string(sigdescr_np(signal)) + text;
}

}  // namespace cpu_device::detail
