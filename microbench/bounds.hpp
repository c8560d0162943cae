#pragma once
/// @file What a run may ask for at most: of this process, and of a server.

#include <cstdint>

namespace bench {

inline constexpr std::uint64_t kMessageBytesMax = 64 << 20;
inline constexpr std::uint64_t kIterationsMax = 100'000'000;
inline constexpr std::uint64_t kWarmupMax = 1000;  ///< messages
/// Of round trips. Bandwidth's warm-up waits for no answers.
inline constexpr std::uint64_t kWarmupMaxNs = 200'000'000;
inline constexpr std::uint64_t kSamplesMax = 1'000'000;  ///< of all sockets of a round
inline constexpr std::uint32_t kSocketsMax = 128;        ///< of each direction
inline constexpr std::uint32_t kBlockThreadsMax = 512;   ///< kernels are compiled for as many
inline constexpr std::uint64_t kRingBytesMin = 4 << 10;
inline constexpr std::uint64_t kRingBytesMax = 64 << 20;
inline constexpr double kDurationMax_s = 600;
inline constexpr double kLimitMax_s = 600;  ///< that a round may take longer than its duration

/// Messages and rings of all sockets of one side.
inline constexpr std::uint64_t kSideBytesMax = std::uint64_t{2} << 30;

}  // namespace bench
