#pragma once
/// @file What two ranks tell each other when they have connected.

#include "gpusock/types.hpp"

#include <cstdint>

namespace param_sync {

/// The first message of each side of a connection: who it is, and the settings that all ranks must share.
///
/// `SettingOf` names the settings. It is an enum with `none` = 0 and `version` = 1; settings 1 to `kSettings` - 1 are
/// compared, in this order. `kMagicOf` tells programs that speak this protocol from others; `kVersionOf` is the
/// protocol's version.
template <class SettingOf, int kSettings, std::uint64_t kMagicOf, std::uint64_t kVersionOf>
struct Hello {
  using Setting = SettingOf;
  static constexpr std::uint64_t kMagic = kMagicOf;
  static constexpr std::uint64_t kVersion = kVersionOf;
  static constexpr std::uint64_t kPatienceNs = 5'000'000'000;  ///< a rank that connects sends its hello within this
                                                               ///< time

  std::uint64_t magic = kMagic;
  std::uint64_t value[kSettings] = {0, kVersion};  ///< by Setting; value[0] is not used
  std::int32_t rank = -1;
  std::int32_t channel = -1;  ///< the number of the connection, where two ranks have several

  /// True if the other side speaks this protocol.
  GPUSOCK_FN bool is_hello() const { return magic == kMagic; }

  /// The first setting in which two ranks differ; none if they may work together. A program that speaks another
  /// protocol differs in its version.
  GPUSOCK_FN Setting difference(const Hello& other) const {
    if (!other.is_hello()) return Setting::version;
    for (int i = 1; i < kSettings; ++i) {
      if (value[i] != other.value[i]) return static_cast<Setting>(i);
    }
    return Setting::none;
  }
  GPUSOCK_FN std::uint64_t& operator[](Setting setting) { return value[static_cast<int>(setting)]; }
  GPUSOCK_FN std::uint64_t operator[](Setting setting) const { return value[static_cast<int>(setting)]; }
};

}  // namespace param_sync
