#pragma once
/// @file What two ranks tell each other when they have connected.

#include "param_sync/executor/failure.hpp"

namespace param_sync::executor {

/// The first message of each side of a connection: its rank, which channel this is, and what all ranks must share.
struct ChannelHello {
  static constexpr std::uint64_t kMagic = 0x65786563536d6150;  // "PamScexe"
  static constexpr std::uint64_t kVersion = 3;
  static constexpr std::uint64_t kPatienceNs = 5'000'000'000;  ///< a rank that connects sends its hello within this
                                                               ///< time
  std::uint64_t magic = kMagic;
  std::uint64_t value[kChannelHelloFields] = {};  ///< by ChannelHelloField; value[0] is not used
  std::int32_t rank = -1;
  std::int32_t channel = -1;  ///< its number

  GPUSOCK_FN ChannelHelloField difference(const ChannelHello& other) const {
    for (int i = 1; i < kChannelHelloFields; ++i) {
      if (value[i] != other.value[i]) return static_cast<ChannelHelloField>(i);
    }
    return ChannelHelloField::none;
  }
  GPUSOCK_FN std::uint64_t& operator[](ChannelHelloField field) { return value[static_cast<int>(field)]; }
  GPUSOCK_FN std::uint64_t operator[](ChannelHelloField field) const { return value[static_cast<int>(field)]; }
};

}  // namespace param_sync::executor
