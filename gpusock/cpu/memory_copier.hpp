#pragma once
/// @file The CPU device's copier, and how its device memory is hidden from the proxy.
///
/// The CPU device's memory belongs to this process, so here, and only here, a proxy could touch ring bytes of the
/// device by mistake without harm. Therefore the proxy knows ring bytes by hidden addresses, which no processor
/// accepts. Only the copier makes real addresses of them.

#include "host_proxy/memory/copier.hpp"

#include <vector>

namespace gpusock::proxy {

/// Returns the address by which the proxy knows this device memory. Using it faults at once (a system call: EFAULT). On
/// x86-64 it is not canonical with 48 or with 57 bits of address. On AArch64 it is in neither half of the address
/// space, even if the top byte is ignored.
inline std::byte* hide(std::byte* memory) {
  constexpr std::uintptr_t kHidingBits = 0x407c'0000'0000'0000;
  return reinterpret_cast<std::byte*>(reinterpret_cast<std::uintptr_t>(memory) ^ kHidingBits);
}
inline std::byte* reveal(std::byte* hidden) { return hide(hidden); }

/// Copies with the processor, as late as a copy engine might: not when a copy is started, but at the second query(). So
/// tests find code that frees memory, or publishes bytes, before the copy has ended.
class MemoryCopier final : public Copier {
 public:
  /// Used instead of memcpy if a thread needs a right to touch device memory; nullptr: memcpy.
  using Move = void (*)(void* to, const void* from, std::size_t bytes) noexcept;
  explicit MemoryCopier(Move move = nullptr) : move_(move) {}

  Copy to_host(std::byte* to, const ringbuf::RingSpans& from) override { return start({to, from, true, 0, true}); }
  Copy to_device(const ringbuf::RingSpans& to, const std::byte* from) override {
    return start({const_cast<std::byte*>(from), to, false, 0, true});
  }
  State query(Copy copy) override;

 private:
  struct Pending {
    std::byte* host;
    ringbuf::RingSpans ring;  // with hidden addresses
    bool to_host;
    int queries;
    bool used;
  };
  Copy start(const Pending& pending);

  Move move_;
  std::vector<Pending> copies_;  // a copy's name is its index
};

}  // namespace gpusock::proxy
