#pragma once
/// @file The first messages of two ranks on each of their channels.

#include "param_sync/executor/failure.hpp"

#include "gpusock/types.hpp"

#include <cstdint>
#include <vector>

namespace param_sync::executor {

struct Settings;  // executor.hpp

/// The first message of each side of a channel: which rank it is, and the settings that all ranks must share.
struct ChannelHello {
  static constexpr std::uint64_t kMagic = 0x65786563536d6150;  // "PaScexe"
  static constexpr std::uint64_t kVersion = 4;                 ///< version of the protocol
  static constexpr std::uint64_t kPatienceNs = 5'000'000'000;  ///< a connecting rank sends its hello within this time

  std::uint64_t magic = kMagic;
  std::uint64_t value[kChannelHelloFields] = {0, kVersion};  ///< by ChannelHelloField; value[0] is not used
  std::int32_t rank = -1;
  std::int32_t channel = -1;  ///< Channel::number

  /// True if the other side speaks this protocol.
  GPUSOCK_FN bool is_hello() const { return magic == kMagic; }

  /// The first setting in which two ranks differ, or `none`. Programs with another protocol differ in their version.
  GPUSOCK_FN ChannelHelloField difference(const ChannelHello& other) const {
    if (!other.is_hello()) return ChannelHelloField::version;
    for (int i = 1; i < kChannelHelloFields; ++i) {
      if (value[i] != other.value[i]) return static_cast<ChannelHelloField>(i);
    }
    return ChannelHelloField::none;
  }
  GPUSOCK_FN std::uint64_t& operator[](ChannelHelloField field) { return value[static_cast<int>(field)]; }
  GPUSOCK_FN std::uint64_t operator[](ChannelHelloField field) const { return value[static_cast<int>(field)]; }
};

/// A hash that is equal for equal schedules that are executed in the same way.
std::uint64_t fingerprint(const std::vector<schedule::Schedule>& schedules, const Settings& settings);

}  // namespace param_sync::executor
