#pragma once
/// @file An mlx5 NIC that libibverbs finds and opens, whose queues nobody serves: for what libmlx5 writes into them.

#include "tests/support/folder.hpp"

#include <cstdint>

namespace gpusock::test {

inline constexpr std::uint32_t kUverbsQueuePair = 0x00beef;  ///< the number of each queue pair

/// Exists before the first call of libibverbs in the process, and until its last.
class FakeUverbs {
 public:
  FakeUverbs();

 private:
  Folder folder_;
};

}  // namespace gpusock::test
