#pragma once
/// @file How nodes that a launcher has started learn each other's addresses.

#include "gpusock/gpusock.hpp"

#include <memory>
#include <string>
#include <vector>

namespace param_sync {

struct Config;
struct Launch;

/// One way to meet. What waits gives up after the run's --timeout. Throws gpusock::Error, and Interrupted after
/// interrupt().
class Introduction {
 public:
  virtual ~Introduction() = default;

  /// Where this node is to listen. May wait for another node.
  virtual gpusock::Endpoint where_to_listen() = 0;

  /// Tells the others that this node listens at `mine`; the addresses of all, by rank.
  virtual std::vector<gpusock::Endpoint> meet(const gpusock::Endpoint& mine) = 0;

  /// Ends what waits, soon. From any thread.
  virtual void interrupt() noexcept {}
};

/// Endpoint::parse() of what a launcher's variables say; throws gpusock::program::Misuse where it is none.
gpusock::Endpoint parse_place(const std::string& text);
/// Throws gpusock::program::Misuse where it has no port, by which others could find it.
void need_port(const gpusock::Endpoint& place, const std::string& text);

/// The way that `launch` says; `config` gets the rank and the number of nodes.
std::unique_ptr<Introduction> introduce(const Launch& launch, Config& config);

}  // namespace param_sync
