#pragma once
/// @file What may be the name of a libfabric provider (GPUSOCK_FABRIC_PROVIDER).

#include <string_view>

namespace gpusock::proxy {

/// True for one name as fi_info prints it: "tcp", "verbs;ofi_rxm". Whether libfabric has the provider here is another
/// question.
inline bool is_fabric_provider_name(std::string_view text) {
  constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.;";
  return !text.empty() && text.find_first_not_of(kLetters) == std::string_view::npos;
}

}  // namespace gpusock::proxy
