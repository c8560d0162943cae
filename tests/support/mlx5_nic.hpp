#pragma once
/// @file A model of an mlx5 NIC's queues: it reads the send queue after a doorbell, executes RDMA writes on memory, and
/// writes completions. Its decoder shares nothing with tests/support/mlx5; tests/unit/mlx5/golden_test.cpp compares its
/// offsets with those of <infiniband/mlx5dv.h>.

#include "ringbuf/atomics.hpp"

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

namespace gpusock::test {

/// Offsets in an entry of the send queue, and in a completion.
struct Mlx5Offsets {
  static constexpr std::uint32_t kIndexAndOpcode = 0, kNumberAndSegments = 4, kFlags = 11;
  static constexpr std::uint32_t kRemoteAddress = 16, kRemoteKey = 24;
  static constexpr std::uint32_t kBytes = 32, kLocalKey = 36, kLocalAddress = 40, kInlineData = 36;
  static constexpr std::uint32_t kVendorSyndrome = 54, kSyndrome = 55, kQueuePair = 56, kCounter = 60, kOwner = 63;
};

class Mlx5Nic : private Mlx5Offsets {
 public:
  static constexpr std::uint32_t kBlock = 64;
  static constexpr std::uint8_t kProtectionError = 0x04, kFlushed = 0x05, kRemoteAccessError = 0x13;
  static constexpr std::uint8_t kDone = 0, kFailed = 13, kInvalid = 15;

  struct Queues {
    const std::byte* send = nullptr;
    std::uint32_t blocks = 0;
    std::uint64_t* record = nullptr;
    std::uint64_t* doorbell = nullptr;
    std::uint32_t number = 0;
    std::byte* completions = nullptr;
    std::uint32_t completion_count = 0;
    std::uint64_t* completion_record = nullptr;
  };
  /// Memory that a key gives access to. `address`: as requests name it.
  struct Region {
    std::uint32_t key = 0;
    std::uint64_t address = 0;
    std::byte* memory = nullptr;
    std::uint64_t bytes = 0;
  };

  Mlx5Nic(const Queues& queues, std::vector<Region> local, std::vector<Region> remote, std::uint64_t start = 0,
          std::uint64_t completion_start = 0)
      : queues_(queues),
        local_(std::move(local)),
        remote_(std::move(remote)),
        known_(start),
        executed_(start),
        completed_(completion_start) {}

  /// A NIC may look at the record at any time, so also without a doorbell.
  void set_eager(bool eager) { eager_ = eager; }

  /// Looks for a doorbell, and executes at most one request; true if it did.
  bool step() {
    look();
    if (error_ != nullptr || executed_ == known_) return false;
    execute();
    return true;
  }
  void run() {
    while (step()) {
    }
  }

  /// What the software did that a NIC does not forgive; nullptr: nothing.
  const char* error() const { return error_; }
  std::uint64_t executed() const { return executed_; }

  /// True if the completion queue's record says that there is room.
  bool can_complete() {
    const auto consumed = static_cast<std::uint32_t>(swapped(acquire(*queues_.completion_record)) >> 32);
    return ((completed_ - consumed) & 0xffffff) < queues_.completion_count;
  }
  /// Writes the next completion, whether or not it is true.
  void complete(std::uint8_t kind, std::uint16_t block, std::uint8_t syndrome, std::uint32_t number) {
    if (!can_complete()) return fail("the completion queue is full");
    std::array<std::byte, kBlock> entry;
    entry.fill(std::byte{0xa5});  // what has no meaning to a sender
    entry[kVendorSyndrome] = std::byte{0x77};
    entry[kSyndrome] = std::byte{syndrome};
    put(entry, kQueuePair, 0x08000000 | number, 4);
    put(entry, kCounter, block, 2);
    const bool lap = (completed_ & queues_.completion_count) != 0;
    entry[kOwner] = static_cast<std::byte>(kind << 4 | (lap ? 1 : 0));
    std::byte* const to = queues_.completions + (completed_++ & (queues_.completion_count - 1)) * kBlock;
    std::memcpy(to, entry.data(), kBlock - 8);
    std::uint64_t last = 0;
    std::memcpy(&last, entry.data() + kBlock - 8, 8);
    Ref(*reinterpret_cast<std::uint64_t*>(to + kBlock - 8)).store(last, ringbuf::kRelease);
  }

 private:
  using Ref = ringbuf::SystemAtomics::Ref<std::uint64_t>;
  using Entry = std::array<std::byte, 16 * kBlock>;

  static std::uint64_t acquire(std::uint64_t& word) { return Ref(word).load(ringbuf::kAcquire); }
  static std::uint64_t swapped(std::uint64_t value) { return __builtin_bswap64(value); }
  template <std::size_t Size>
  static std::uint64_t get(const std::array<std::byte, Size>& from, std::uint32_t at, int bytes) {
    std::uint64_t value = 0;
    for (int i = 0; i < bytes; ++i) value = value << 8 | std::to_integer<std::uint64_t>(from[at + i]);
    return value;
  }
  template <std::size_t Size>
  static void put(std::array<std::byte, Size>& to, std::uint32_t at, std::uint64_t value, int bytes) {
    for (int i = bytes; i-- > 0; value >>= 8) to[at + i] = static_cast<std::byte>(value);
  }

  void fail(const char* what) {
    const char* none = nullptr;
    error_.compare_exchange_strong(none, what);
  }

  void look() {
    const std::uint64_t bell = acquire(*queues_.doorbell);
    const bool rung = bell != bell_;
    if (!rung && !eager_) return;
    bell_ = bell;
    const std::uint64_t record = swapped(acquire(*queues_.record));
    if (record >> 32 != 0) fail("the receive queue's half of the doorbell record is not zero");
    // The doorbell names the last entry: the record must be past it. It may be far past it, if the NIC looked without
    // one.
    const auto named = static_cast<std::uint16_t>(swapped(bell) >> 40);
    const auto past = static_cast<std::uint16_t>(record - named - 1);
    if (rung && past >= 0x8000) fail("the doorbell was rung before its record was written");
    known_ += static_cast<std::uint16_t>(record - known_);
    if (known_ - executed_ > queues_.blocks) fail("the record counts more than the queue has");
  }

  void execute() {
    Entry entry;
    const auto block = static_cast<std::uint16_t>(executed_);
    copy_block(executed_, entry, 0);
    const std::uint64_t head = get(entry, kIndexAndOpcode, 4);
    const std::uint64_t tail = get(entry, kNumberAndSegments, 4);
    const std::uint64_t segments = tail & 0x3f;
    const std::uint64_t blocks = (segments + 3) / 4;
    if (head != (std::uint64_t{block} << 8 | 0x08)) return fail("no RDMA write of this index");
    if (tail >> 8 != queues_.number || segments < 2 || blocks > known_ - executed_) return fail("a broken entry");
    for (std::uint32_t i = 1; i < blocks; ++i) copy_block(executed_ + i, entry, i);
    executed_ += blocks;
    if (flushing_) return complete(kFailed, block, kFlushed, queues_.number);
    const std::uint8_t syndrome = write(entry, segments);
    flushing_ = syndrome != 0;
    const bool notify = (entry[kFlags] & std::byte{0x08}) != std::byte{0};
    if (flushing_ || notify) complete(flushing_ ? kFailed : kDone, block, syndrome, queues_.number);
  }

  void copy_block(std::uint64_t position, Entry& entry, std::uint32_t index) {
    std::memcpy(entry.data() + index * kBlock, queues_.send + (position & (queues_.blocks - 1)) * kBlock, kBlock);
  }

  /// The write itself: 0 or a syndrome.
  std::uint8_t write(const Entry& entry, std::uint64_t segments) {
    if (segments == 2) return 0;
    const std::uint64_t length = get(entry, kBytes, 4);
    const std::uint64_t bytes = length & 0x7fffffff;
    const bool copied = length >> 31 != 0;
    if (segments != (copied ? 2 + (4 + bytes + 15) / 16 : 3)) {
      fail("the entry's length does not fit its data");
      return kProtectionError;
    }
    const std::byte* from = entry.data() + kInlineData;
    if (!copied) from = find(local_, get(entry, kLocalKey, 4), get(entry, kLocalAddress, 8), bytes);
    if (from == nullptr) return kProtectionError;
    std::byte* to = find(remote_, get(entry, kRemoteKey, 4), get(entry, kRemoteAddress, 8), bytes);
    if (to == nullptr) return kRemoteAccessError;
    std::memcpy(to, from, bytes);
    return 0;
  }

  static std::byte* find(const std::vector<Region>& regions, std::uint64_t key, std::uint64_t address,
                         std::uint64_t bytes) {
    for (const Region& region : regions) {
      const std::uint64_t at = address - region.address;
      if (region.key == key && at <= region.bytes && bytes <= region.bytes - at) return region.memory + at;
    }
    return nullptr;
  }

  Queues queues_;
  std::vector<Region> local_, remote_;
  std::uint64_t known_;     // blocks that the record has counted
  std::uint64_t executed_;  // blocks
  std::uint64_t completed_;
  std::uint64_t bell_ = 0;
  bool eager_ = false;
  bool flushing_ = false;
  std::atomic<const char*> error_ = nullptr;
};

}  // namespace gpusock::test
