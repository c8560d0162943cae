#pragma once
/// @file The list of updates: what an owner may do with a sum of gradients. To add one, write a file like sgd.hpp and
/// add its type here. All other code knows only how many floats of state an update has for each parameter.

#include "param_sync/update/sgd.hpp"

#include <cstdint>
#include <variant>

namespace param_sync {

/// An update, for the host. Kernels are templates of its type, and std::visit() selects the instance. The first type is
/// the default of programs that name no update.
using AnyUpdate = std::variant<Sgd>;

/// Returns how many floats of state each parameter has.
inline int state_floats(const AnyUpdate& update) {
  return std::visit([](const auto& is) { return is.kStateFloats; }, update);
}

/// Returns the name of an update, for error messages.
inline const char* name_of(const AnyUpdate& update) {
  return std::visit([](const auto& is) { return is.kName; }, update);
}

/// Returns how many floats of memory the states of `parameters` parameters need.
inline std::uint64_t state_floats(const AnyUpdate& update, std::uint64_t parameters) {
  return static_cast<std::uint64_t>(state_floats(update)) * parameters;
}

/// Returns the default update with these settings.
inline AnyUpdate update_of(const UpdateSettings& settings) {
  return std::variant_alternative_t<0, AnyUpdate>::of(settings);
}

}  // namespace param_sync
