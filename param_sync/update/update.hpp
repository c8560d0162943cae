#pragma once
/// @file The table of updates: what an owner may do with a sum of gradients. A new one is a file like sgd.hpp, and a
/// type in the list here. All else knows only that an update has so many floats of state for each parameter.

#include "param_sync/update/sgd.hpp"

#include <cstdint>
#include <variant>

namespace param_sync {

/// An update, for the host: kernels are templates of its type, of which std::visit() takes the right one. The first one
/// is what programs take that name none.
using AnyUpdate = std::variant<Sgd>;

/// Floats of state for each parameter.
inline int state_floats(const AnyUpdate& update) {
  return std::visit([](const auto& is) { return is.kStateFloats; }, update);
}

/// The name of an update, in messages.
inline const char* name_of(const AnyUpdate& update) {
  return std::visit([](const auto& is) { return is.kName; }, update);
}

/// Floats of memory for the states of so many parameters.
inline std::uint64_t state_floats(const AnyUpdate& update, std::uint64_t parameters) {
  return static_cast<std::uint64_t>(state_floats(update)) * parameters;
}

/// The first one, by these settings.
inline AnyUpdate update_of(const UpdateSettings& settings) {
  return std::variant_alternative_t<0, AnyUpdate>::of(settings);
}

}  // namespace param_sync
