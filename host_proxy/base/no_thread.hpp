#pragma once
/// @file What to advise if no thread can be started.

#include <pthread.h>
#include <sys/mman.h>

#include <cstddef>

namespace gpusock::proxy {

/// Says which limit to change. Call it right after a thread could not be started. The operating system's error does not
/// say which: it is EAGAIN, too, if there is no memory for the thread's stack.
inline const char* remedy_for_no_thread() {
  pthread_attr_t attributes;
  std::size_t bytes = 0;
  if (pthread_getattr_default_np(&attributes) == 0) {
    pthread_attr_getstacksize(&attributes, &bytes);
    pthread_attr_destroy(&attributes);
  }
  void* const stack = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
  if (stack == MAP_FAILED) return "raise the limits on memory (ulimit -v, -d), or lower that on stacks (ulimit -s)";
  munmap(stack, bytes);
  return "raise the limit on threads (ulimit -u, or the cgroup's pids.max)";
}

}  // namespace gpusock::proxy
