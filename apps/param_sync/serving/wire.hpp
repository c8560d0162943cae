#pragma once
/// @file What clients of `param_sync serve` send and get. All numbers are little-endian. A client may send requests
/// before it has the answers to earlier ones; they come in the same order.
///
///     request:  "ASK1", an id (4 bytes), the pixels of an image, row by row, a byte each
///     answer:   the same id (4 bytes), an errno (4), the class (4), the number of classes (4), the version of the
///               weights (8), their age in microseconds (8), a score for each class (a 32-bit float each)
///
/// If the errno is not 0, class and number of classes are 0, and no score follows. It is 71 (EPROTO) for what is no
/// request, and then the connection ends; 110 (ETIMEDOUT) if the answer would be later than --objective-ms; 116
/// (ESTALE) if the weights are older than --stale-ms; and 11 (EAGAIN) if there are no weights yet.

#include <cstdint>

namespace param_sync {

inline constexpr std::uint32_t kAskMagic = 0x314B5341;  ///< "ASK1"

struct AskHead {
  std::uint32_t magic;
  std::uint32_t id;
};

struct AnswerHead {
  std::uint32_t id;
  std::int32_t error;     ///< an errno, or 0
  std::uint32_t label;    ///< the class with the largest score
  std::uint32_t classes;  ///< scores that follow
  std::uint64_t version;  ///< how many steps of training have made the weights; of a file 0
  std::uint64_t age_us;   ///< since when there may be newer ones; 0 if there will be none
};

}  // namespace param_sync
