#pragma once
/// @file What goes over a connection between a training and a program that follows it. All numbers are little-endian.
///
/// A follower asks as often as it likes, and gets an answer to each question, in their order. Where the answer says so,
/// the weights follow it: all layers' parameters, one after the other, as 32-bit floats.

#include <cstdint>

namespace param_sync {

inline constexpr std::uint32_t kWeightsMagic = 0x31545750;  ///< "PWT1"

/// A question. After one that is none of these the connection ends.
struct WeightsRequest {
  std::uint32_t magic;
  std::uint32_t zero;
  std::uint64_t have;   ///< the version that the follower has; 0: none
  std::uint64_t model;  ///< a number that differs if the layers differ: Layout::fingerprint() of one node
};

/// An answer.
struct WeightsAnswer {
  std::uint32_t magic;
  std::int32_t error;     ///< an errno, after which the connection ends; EPROTO: the layers differ, or no question
  std::uint64_t version;  ///< the newest one: how many steps have made the weights; 0: none yet
  std::uint64_t floats;   ///< that follow; 0 if the follower has this version
  std::uint64_t is_last;  ///< 1: the training has ended, and this is its last version
};

}  // namespace param_sync
