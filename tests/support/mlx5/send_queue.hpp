#pragma once
/// @file RDMA writes that a kernel hands to an mlx5 NIC without the host: entries in the send queue, then the doorbell
/// record, then the doorbell. No link uses this yet (README.md).
///
// clang-format off
/// Ordering table
///   label  operation                             scope   order    partner  data protected
///   G1     kernel: store the doorbell record     system  release  the NIC  entries, and the bytes that they name
///   G2     kernel: store the doorbell            system  release  the NIC  the record: the NIC may read it afterwards
///   G3     kernel: load a completion's last word system  acquire  the NIC  the rest of the completion; overwriting the
///                                                                          entry and the bytes that it names
///   G4     kernel: store the CQ's record         system  release  the NIC  the completion, which the NIC overwrites
// clang-format on
/// G3 and G4 are in completion_queue.hpp. The NIC is no thread of a memory model: that a release store orders its
/// writer's earlier stores for it rests on docs/memory-model.md, part E. rdma-core does the same with fences:
/// post_send_db() in providers/mlx5/qp.c (G1, G2), mlx5_get_next_cqe() and update_cons_index() in cq.c (G3, G4).
///
/// G2 is for a page that is mapped uncached, as cudaHostRegister does for a kernel with cudaHostRegisterIoMemory. A
/// processor that maps it write-combined needs another fence after the doorbell (mmio_flush_writes() in rdma-core).

#include "tests/support/mlx5/completion_queue.hpp"
#include "tests/support/mlx5/layout.hpp"
#include "ringbuf/annotations.hpp"
#include "ringbuf/atomics.hpp"

#include <cerrno>
#include <cstdint>

namespace gpusock::rdma::mlx5 {

/// One RDMA write. As rdma::Write of the host, whose header needs libibverbs.
struct Write {
  const void* data = nullptr;  ///< as the NIC knows it, or, where `copied`, as the caller does
  std::uint32_t bytes = 0;
  std::uint32_t local_key = 0;  ///< of nothing where `copied`
  std::uint64_t remote_address = 0;
  std::uint32_t remote_key = 0;
  bool copied = false;  ///< `data` is copied into the entry, and may be changed at once; bytes <= inline_bytes
};

/// What a queue pair was made with (mlx5dv_qp). Words are aligned to 8 bytes.
struct SendQueueMemory {
  std::uint64_t* entries = nullptr;          ///< `blocks` * kBlockBytes
  std::uint32_t blocks = 0;                  ///< a power of two, at most kBlocksMax
  std::uint64_t* doorbell_record = nullptr;  ///< of both queues: the receive queue has no entries, and its half stays 0
  std::uint64_t* doorbell = nullptr;         ///< in the NIC's page
  std::uint32_t number = 0;                  ///< the queue pair's, 24 bits
  std::uint32_t inline_bytes = 0;            ///< that one entry may hold
};

/// The kernel's half of a send queue. Positions count blocks.
class SendQueue {
 public:
  SendQueue() = default;
  /// `start`: where positions begin; its lowest 16 bits are the NIC's own index, 0 for a new queue pair.
  GPUSOCK_FN explicit SendQueue(const SendQueueMemory& memory, std::uint64_t start = 0)
      : memory_(memory), appended_(start), rung_(start), completed_(start) {}

  GPUSOCK_FN std::uint64_t appended() const { return appended_; }
  /// Entries before it are complete: the other NIC has acknowledged them, and nothing that they name is read any more.
  GPUSOCK_FN std::uint64_t completed() const { return completed_; }
  /// Blocks that are free.
  GPUSOCK_FN std::uint32_t room() const { return memory_.blocks - static_cast<std::uint32_t>(appended_ - completed_); }
  /// True if a request has failed: the queue pair is broken, and nothing is sent any more.
  GPUSOCK_FN bool failed() const { return failed_; }

  /// Blocks that this write fills.
  GPUSOCK_FN static std::uint32_t blocks_of(const Write& write) { return blocks_of_segments(segments_of(write)); }

  /// Appends a write, which the NIC does not see before ring(). `notify`: it gets a completion; so does one in each
  /// quarter of the queue, since room comes back with completions only. 0 or a negated errno: -EAGAIN: there is no room
  /// now; -EINVAL: it is larger than half of the queue, than inline_bytes, or than 2 GiB - 1; -ECONNRESET: failed().
  GPUSOCK_FN int append(const Write& write, bool notify) {
    if (failed_) return -ECONNRESET;
    if (write.bytes >= kInline || (write.copied && write.bytes > memory_.inline_bytes)) return -EINVAL;
    const std::uint32_t segments = segments_of(write);
    const std::uint32_t blocks = blocks_of_segments(segments);
    if (segments > kSegmentsMax || blocks > memory_.blocks / 2) return -EINVAL;
    if (blocks > room()) return -EAGAIN;
    unannounced_ += blocks;
    const bool announced = notify || unannounced_ >= memory_.blocks / 4;
    if (announced) unannounced_ = 0;

    control_ = big_endian((appended_ & kIndexMask) << 40 | std::uint64_t{kRdmaWrite} << 32 |
                          (memory_.number & kNumberMask) << 8 | segments);
    word(0) = control_;
    word(1) = big_endian(announced ? kNotify : 0);
    word(2) = big_endian(write.remote_address);
    word(3) = big_endian(std::uint64_t{write.remote_key} << 32);
    if (write.copied) {
      append_bytes(write);
    } else if (write.bytes != 0) {  // a length of 0 in this segment would mean 2 GiB
      word(4) = big_endian(std::uint64_t{write.bytes} << 32 | write.local_key);
      word(5) = big_endian(reinterpret_cast<std::uint64_t>(write.data));
    }
    appended_ += blocks;
    return 0;
  }

  /// Hands all that was appended to the NIC.
  GPUSOCK_FN void ring() {
    if (rung_ == appended_) return;
    rung_ = appended_;
    using Ref = ringbuf::SystemAtomics::Ref<std::uint64_t>;
    Ref(*memory_.doorbell_record).store(big_endian(appended_ & kIndexMask), ringbuf::kRelease);  // G1, before G2
    Ref(*memory_.doorbell).store(control_, ringbuf::kRelease);                                   // G2, after G1
  }

  /// Takes a completion of this queue pair: room comes back up to its entry. 0 or a negated errno: -EIO: the request
  /// has failed (Completion::syndrome), and so have all later ones; -EPROTO: it is of no request that is under way.
  GPUSOCK_FN int take(const Completion& completion) {
    if (completion.number != memory_.number) return -EPROTO;
    failed_ = failed_ || completion.failed;
    if (failed_) return -EIO;
    const std::uint64_t under_way = rung_ - completed_;
    const std::uint64_t before = (completion.block - completed_) & kIndexMask;
    if (before >= under_way) return -EPROTO;
    const std::uint64_t first = big_endian(memory_.entries[word_index(completed_ + before, 0)]);
    const std::uint64_t after = before + blocks_of_segments(static_cast<std::uint32_t>(first & kSegmentsMask));
    if (after > under_way) return -EPROTO;
    completed_ += after;
    return 0;
  }

 private:
  GPUSOCK_FN static std::uint32_t segments_of(const Write& write) {
    if (write.bytes == 0) return 2;
    return write.copied ? 2 + (4 + write.bytes + kSegmentBytes - 1) / kSegmentBytes : 3;
  }
  GPUSOCK_FN static std::uint32_t blocks_of_segments(std::uint32_t segments) { return (segments + 3) / 4; }

  /// Of the entry at this position, which may go on at the queue's start.
  GPUSOCK_FN std::uint64_t word_index(std::uint64_t position, std::uint32_t index) const {
    return (position * kBlockWords + index) & (std::uint64_t{memory_.blocks} * kBlockWords - 1);
  }
  GPUSOCK_FN std::uint64_t& word(std::uint32_t index) { return memory_.entries[word_index(appended_, index)]; }

  /// The length in four bytes, the bytes, and zeros up to the segment's end.
  GPUSOCK_FN void append_bytes(const Write& write) {
    if (write.bytes == 0) return;
    const auto* from = static_cast<const std::uint8_t*>(write.data);
    std::uint64_t value = kInline | write.bytes;
    std::uint32_t index = 4;
    for (std::uint32_t i = 0; (4 + i) % kSegmentBytes != 0 || i < write.bytes; ++i) {
      value = value << 8 | (i < write.bytes ? from[i] : 0);
      if ((4 + i) % 8 == 7) word(index++) = big_endian(value);
    }
  }

  SendQueueMemory memory_;
  std::uint64_t appended_ = 0;
  std::uint64_t rung_ = 0;
  std::uint64_t completed_ = 0;
  std::uint64_t control_ = 0;      // the last entry's first word: what the doorbell is written with
  std::uint32_t unannounced_ = 0;  // blocks since the last entry that asked for a completion
  bool failed_ = false;
};

}  // namespace gpusock::rdma::mlx5
