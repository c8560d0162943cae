#pragma once
/// @file A hash of one number.

#include "gpusock/types.hpp"

#include <cstdint>

namespace param_sync::codec {

/// Mixes the bits of a number: the finalizer of MurmurHash3 (Appleby, 2011). Different numbers have different results.
GPUSOCK_FN inline std::uint64_t mixed(std::uint64_t number) {
  number = (number ^ number >> 33) * 0xff51'afd7'ed55'8ccd;
  number = (number ^ number >> 33) * 0xc4ce'b9fe'1a85'ec53;
  return number ^ number >> 33;
}

}  // namespace param_sync::codec
