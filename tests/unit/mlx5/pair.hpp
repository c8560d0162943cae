#pragma once
/// @file A send queue and a completion queue in memory, with a NIC that serves them.

#include "tests/support/mlx5/send_queue.hpp"
#include "tests/support/mlx5_nic.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

namespace gpusock::test {

struct Mlx5Pair {
  static constexpr std::uint32_t kNumber = 0xabcdef, kLocalKey = 0x1234, kRemoteKey = 0x8765'4321;
  static constexpr std::uint64_t kRemoteAddress = 0x7f00'1234'5678'0000;
  static constexpr std::uint32_t kInlineBytes = 220;

  /// Positions of both queues begin at `start`.
  explicit Mlx5Pair(std::uint32_t blocks, std::uint64_t start = 0)
      : entries(blocks * 8, ~std::uint64_t{0}),
        completions(blocks * 8, ~std::uint64_t{0}),
        memory{entries.data(), blocks, &record, &doorbell, kNumber, kInlineBytes},
        queue(memory, start),
        done({completions.data(), blocks, &completion_record}, start),
        nic({reinterpret_cast<std::byte*>(entries.data()), blocks, &record, &doorbell, kNumber,
             reinterpret_cast<std::byte*>(completions.data()), blocks, &completion_record},
            {{kLocalKey, reinterpret_cast<std::uint64_t>(local.data()), local.data(), local.size()}},
            {{kRemoteKey, kRemoteAddress, remote.data(), remote.size()}}, start, start) {
    record = rdma::mlx5::big_endian(start & 0xffff);
    completion_record = rdma::mlx5::big_endian((start & 0xffffff) << 32);
    for (std::size_t i = 0; i < local.size(); ++i) local[i] = static_cast<std::byte>(i * 7 + i / 256);
  }

  /// From the same offset in `local` to the one in `remote`.
  rdma::mlx5::Write write(std::uint32_t at, std::uint32_t bytes, bool copied) {
    return {local.data() + at, bytes, copied ? 0 : kLocalKey, kRemoteAddress + at, kRemoteKey, copied};
  }
  bool arrived(std::uint32_t at, std::uint32_t bytes) const {
    return std::memcmp(local.data() + at, remote.data() + at, bytes) == 0;
  }
  /// Takes all completions: how many, or the first error.
  int take_completions() {
    rdma::mlx5::Completion completion;
    for (int count = 0;; ++count) {
      if (const int got = done.poll(completion); got != 1) return got == 0 ? count : got;
      if (const int error = queue.take(completion); error != 0) return error;
    }
  }

  std::array<std::byte, 4096> local{}, remote{};
  std::vector<std::uint64_t> entries, completions;
  alignas(64) std::uint64_t record = 0;
  alignas(64) std::uint64_t doorbell = 0;
  alignas(64) std::uint64_t completion_record = 0;
  rdma::mlx5::SendQueueMemory memory;
  rdma::mlx5::SendQueue queue;
  rdma::mlx5::CompletionQueue done;
  Mlx5Nic nic;
};

}  // namespace gpusock::test
