#pragma once
/// @file Device memory with values of the host.

#include <gpusock/gpusock.hpp>

#include <algorithm>
#include <cstddef>
#include <vector>

namespace examples {

/// Device memory with a copy of these values.
template <class T>
gpusock::DeviceBuffer<T> in_device(gpusock::Context& context, const std::vector<T>& values) {
  gpusock::DeviceBuffer<T> made(context, std::max<std::size_t>(1, values.size()));
  made.copy_in(values);
  return made;
}

}  // namespace examples
