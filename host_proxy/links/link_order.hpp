#pragma once
/// @file The order of the links, from the best to the worst.

#include "plain_types/endpoint.hpp"

#include <array>

namespace gpusock::proxy {

/// All links, best first. link=auto takes the first one that both peers have.
inline constexpr std::array kLinksBestFirst{LinkKind::p2p, LinkKind::verbs, LinkKind::fabric, LinkKind::tcp};
static_assert(kLinksBestFirst.size() == kLinkKinds - 1);

}  // namespace gpusock::proxy
