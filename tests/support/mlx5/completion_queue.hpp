#pragma once
/// @file The completion queue of an mlx5 NIC, as a kernel polls it. No link uses this yet (README.md). The ordering
/// table is in send_queue.hpp.
///
/// The owner bit of an entry is the parity of the lap in which the NIC wrote it (get_sw_cqe() in providers/mlx5/cq.c of
/// rdma-core). So an entry of the last lap is none.

#include "tests/support/mlx5/layout.hpp"
#include "ringbuf/annotations.hpp"
#include "ringbuf/atomics.hpp"

#include <cerrno>
#include <cstdint>

namespace gpusock::rdma::mlx5 {

struct Completion {
  std::uint32_t number = 0;  ///< the queue pair's
  std::uint16_t block = 0;   ///< the index of the request's first block
  bool failed = false;
  std::uint8_t syndrome = 0;  ///< of one that failed: MLX5_CQE_SYNDROME_*
  std::uint8_t vendor_syndrome = 0;
};

/// What a completion queue was made with (mlx5dv_cq): entries of 64 bytes, all of them of the kind kNotWritten at
/// first. It has room for each block of its send queues, since an error completes every request.
struct CompletionQueueMemory {
  std::uint64_t* entries = nullptr;
  std::uint32_t count = 0;                   ///< of entries, a power of two
  std::uint64_t* doorbell_record = nullptr;  ///< aligned to 8 bytes; asks for no interrupt
};

/// The kernel's half of a completion queue.
class CompletionQueue {
 public:
  CompletionQueue() = default;
  /// `start`: where positions begin, 0 for a new queue.
  GPUSOCK_FN explicit CompletionQueue(const CompletionQueueMemory& memory, std::uint64_t start = 0)
      : memory_(memory), position_(start) {}

  /// Takes the oldest completion: 1; 0: there is none; -EPROTO: the NIC wrote a kind that send queues do not get.
  GPUSOCK_FN int poll(Completion& completion) {
    using Ref = ringbuf::SystemAtomics::Ref<std::uint64_t>;
    std::uint64_t* const entry = memory_.entries + (position_ & (memory_.count - 1)) * kCompletionWords;
    const std::uint64_t last = big_endian(Ref(entry[7]).load(ringbuf::kAcquire));  // G3, pairs with the NIC's write
    const std::uint64_t kind = last >> 4 & 0xf;
    const bool lap = (position_ & memory_.count) != 0;
    if (kind == kNotWritten || (last & 1) != lap) return 0;
    if (kind != kRequestDone && kind != kRequestFailed) return -EPROTO;
    completion.number = static_cast<std::uint32_t>(last >> 32) & kNumberMask;
    completion.block = static_cast<std::uint16_t>(last >> 16);
    completion.failed = kind == kRequestFailed;
    const std::uint64_t syndromes = completion.failed ? big_endian(entry[6]) : 0;
    completion.syndrome = static_cast<std::uint8_t>(syndromes);
    completion.vendor_syndrome = static_cast<std::uint8_t>(syndromes >> 8);
    ++position_;
    Ref(*memory_.doorbell_record).store(big_endian((position_ & kNumberMask) << 32), ringbuf::kRelease);  // G4
    return 1;
  }

 private:
  CompletionQueueMemory memory_;
  std::uint64_t position_ = 0;
};

}  // namespace gpusock::rdma::mlx5
