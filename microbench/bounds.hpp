#pragma once
/// @file Limits of what a run may ask of this process and of a server.

#include <cstdint>

namespace bench {

inline constexpr std::uint64_t kMessageBytesMax = 64 << 20;
inline constexpr std::uint64_t kIterationsMax = 100'000'000;
inline constexpr std::uint64_t kWarmupMax = 1000;  ///< messages
/// For round trips only: bandwidth's warm-up does not wait for answers.
inline constexpr std::uint64_t kWarmupMaxNs = 200'000'000;
inline constexpr std::uint64_t kSamplesMax = 1'000'000;  ///< of all sockets in a round
inline constexpr std::uint32_t kSocketsMax = 128;        ///< in each direction
inline constexpr std::uint32_t kCrowdMax = 4096;         ///< scale: sockets, as many as a context has
/// Rate and scale: bytes of a message. Its first word tells it from the message that ends a round.
inline constexpr std::uint64_t kCrowdBytesMin = 8;
inline constexpr std::uint64_t kWindowMax = 1024;  ///< rate: messages of a socket that are on their way
/// Rate: bytes of them. Rings and TCP's own buffers hold that much: then neither side waits for room, which it would do
/// for ever, because the other one waits as well.
inline constexpr std::uint64_t kWindowBytesMax = 64 << 10;
inline constexpr std::uint32_t kBlockThreadsMax = 512;  ///< kernels are compiled for blocks of up to this size
inline constexpr std::uint64_t kRingBytesMin = 4 << 10;
inline constexpr std::uint64_t kRingBytesMax = 64 << 20;
inline constexpr double kDurationMax_s = 600;
inline constexpr double kLimitMax_s = 600;  ///< how much longer than its duration a round may take

/// Bytes of the messages and rings of all sockets of one side.
inline constexpr std::uint64_t kSideBytesMax = std::uint64_t{2} << 30;

}  // namespace bench
