#pragma once
/// @file How kernels become known to the double. nvcc registers them with the runtime; here gpusock::launch() does.

#include <functional>
#include <tuple>
#include <type_traits>

namespace cuda_double {

/// Makes a call of one CUDA thread from a launch's argument addresses. The arguments are copied.
using Binder = std::function<void()> (*)(const void* symbol, void** arguments);

void note_kernel(const void* symbol, Binder binder);

/// The address by which the runtime knows a kernel, which is noted.
template <class... Parameters>
const void* symbol_of(void (*kernel)(Parameters...)) {
  const auto* const symbol = reinterpret_cast<const void*>(kernel);
  note_kernel(symbol, [](const void* of, void** arguments) -> std::function<void()> {
    using Values = std::tuple<std::remove_cv_t<Parameters>...>;
    const auto function = reinterpret_cast<void (*)(Parameters...)>(const_cast<void*>(of));
    const Values values = [&]<std::size_t... kIndex>(std::index_sequence<kIndex...>) {
      return Values(*static_cast<std::tuple_element_t<kIndex, Values>*>(arguments[kIndex])...);
    }
    (std::index_sequence_for<Parameters...>());
    return [function, values] { std::apply(function, values); };
  });
  return symbol;
}

}  // namespace cuda_double
