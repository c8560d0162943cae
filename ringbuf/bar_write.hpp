#pragma once
/// @file Words in a device's memory that the host stores through a mapping; on a GPU, a mapping of its BAR (GDRCopy).
///
/// The device's threads poll such a word in their own memory. The host never loads through the mapping, as a load would
/// take a round trip over the bus; it keeps the word in its own memory as well. Mappings of a GPU's memory combine
/// writes: their stores are weakly ordered, and may stay in the processor's buffers. So one fence comes before the
/// store, for what was written earlier, and one after it, to send the store on its way.
///
/// Ordering table (scope: system)
///   label  operation          order    partner             data protected
///   X1     host: BAR write    release  C1, P2, T4, Q2, W2  what the host wrote, and read of a ring, before; in its
///                                                          memory or through the mapping

#include "ringbuf/atomics.hpp"

#include <cstdint>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace gpusock::ringbuf {

/// Completes earlier stores of this thread, also those through mappings, before later ones.
inline void order_stores() {
#if defined(__SSE2__)
  _mm_sfence();
#elif defined(__aarch64__)
  asm volatile("dmb st" ::: "memory");
#else
  __sync_synchronize();
#endif
}

/// Stores a word through a mapping, on the host. One thread at a time stores each word, unless the caller says why not.
template <class Atomics = SystemAtomics>
inline void bar_write(std::uint64_t* mapped_word, std::uint64_t value) {
  order_stores();
  typename Atomics::template Ref<std::uint64_t>(*mapped_word).store(value, kRelease);  // X1, pairs with C1, P2, T4, Q2,
                                                                                       // W2
  order_stores();
}

}  // namespace gpusock::ringbuf
