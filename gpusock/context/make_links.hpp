#pragma once
/// @file Which links a context has. This is the one place that knows all kinds.

#include "gpusock/gpusock.hpp"
#include "host_proxy/links/link_setup.hpp"
#include "host_proxy/net/posix_network.hpp"

#include <memory>
#include <vector>

namespace gpusock::detail {

/// Makes the links that this machine, this build and these options have, best first. `network` and `segments` must
/// outlive them. Throws Error.
std::vector<std::unique_ptr<proxy::LinkMaker>> make_links(const Options& options, proxy::PosixNetwork& network,
                                                          proxy::SegmentPool& segments);

}  // namespace gpusock::detail
