#pragma once
/// @file How nodes that a launcher has started learn each other's addresses.

#include "gpusock/gpusock.hpp"

#include <memory>
#include <string>
#include <vector>

namespace param_sync {

struct Config;
struct Launch;

/// One way of bootstrap. Calls that wait give up after the run's --timeout. They throw gpusock::Error, and Interrupted
/// after interrupt().
class Bootstrap {
 public:
  virtual ~Bootstrap() = default;

  /// Where this node is to listen. May wait for another node.
  virtual gpusock::Endpoint where_to_listen() = 0;

  /// Publishes that this node listens at `mine`, and returns the addresses of all nodes, by rank.
  virtual std::vector<gpusock::Endpoint> exchange_addresses(const gpusock::Endpoint& mine) = 0;

  /// Ends a call that waits. Any thread may call it.
  virtual void interrupt() noexcept {}
};

/// The way that `launch` names; `config` gets the rank and the number of nodes.
std::unique_ptr<Bootstrap> make_bootstrap(const Launch& launch, Config& config);

}  // namespace param_sync
