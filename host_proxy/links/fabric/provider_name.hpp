#pragma once
/// @file Which names a libfabric provider may have (GPUSOCK_FABRIC_PROVIDER).

#include <string_view>

namespace gpusock::proxy {

/// True if the text may be one name as fi_info prints it: "tcp", "verbs;ofi_rxm". Does not check whether libfabric has
/// the provider here.
inline bool is_fabric_provider_name(std::string_view text) {
  constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.;";
  return !text.empty() && text.find_first_not_of(kLetters) == std::string_view::npos;
}

}  // namespace gpusock::proxy
