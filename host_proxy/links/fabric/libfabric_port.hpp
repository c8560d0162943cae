#pragma once
/// @file libfabric's endpoints. The library is loaded when a fabric is first asked for. If programs were linked to it,
/// each would pay its start-up time (Debian's pulls in libraries that wait 200 ms before main).

#include "plain_types/endpoint.hpp"
#include "host_proxy/links/fabric/port.hpp"

#include <memory>
#include <string>
#include <vector>

namespace gpusock::proxy::fabric {

/// One provider on one network, on which endpoints are opened. It outlives its ports.
class FabricDomain {
 public:
  virtual ~FabricDomain() = default;
  virtual const std::string& provider() const = 0;
  /// Opens an endpoint. The keys of memory that is registered there are valid at no other one. Throws Error.
  virtual std::unique_ptr<FabricPort> open_port() = 0;
};

/// The providers that libfabric has on this machine. `wanted` is a provider's name ("tcp", "verbs;ofi_rxm"), or empty
/// for all that suit the fabric link.
class FabricProviders {
 public:
  /// Asks libfabric, once; that takes a moment. Throws only if there is no memory; else problem() says what failed.
  explicit FabricProviders(std::string wanted);
  ~FabricProviders();

  /// Names of the providers for connections from this address of this machine, best first.
  std::vector<std::string> names_for(const Endpoint& local) const;
  /// Why names_for() found none.
  std::string problem(const Endpoint& local) const;
  /// Opens the provider `name` for connections from this address. Throws Error.
  std::shared_ptr<FabricDomain> open(const std::string& name, const Endpoint& local) const;

  /// True if this provider is better than the tcp link.
  static bool is_hardware(const std::string& name);
  /// True if there may be such a provider here. Looks at the devices, and does not load libfabric.
  static bool may_have_hardware();
  /// True if this provider reaches only processes of this host.
  static bool is_local(const std::string& name) { return name == "shm"; }

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace gpusock::proxy::fabric
