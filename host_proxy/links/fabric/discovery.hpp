#pragma once
/// @file Asks libfabric on a thread of its own what it has on this machine. Loading the library and the providers'
/// search for devices take from milliseconds to seconds, and a proxy's step must not wait. A process asks once for each
/// provider name, because libfabric itself looks for devices only once.

#include "host_proxy/links/fabric/libfabric_port.hpp"

#include <atomic>
#include <memory>
#include <optional>
#include <string>

namespace gpusock::proxy::fabric {

class Discovery {
 public:
  /// The discovery of this provider (empty: of all), which the first call in the process begins. Any thread may call.
  /// Throws std::bad_alloc; the next call then asks again.
  static std::shared_ptr<Discovery> of(const std::string& wanted);

  bool over() const { return over_.load(std::memory_order_acquire); }
  /// Waits until over() is true.
  void wait() const { over_.wait(false, std::memory_order_acquire); }
  /// True if there was not enough memory to ask; of() then asks again.
  bool failed() const { return over() && !providers_; }
  /// Valid once the discovery is over, and has not failed.
  const FabricProviders& providers() const { return *providers_; }

 private:
  static void ask(const std::shared_ptr<Discovery>& asked, const std::string& wanted);
  static void ask_or_fail(const std::shared_ptr<Discovery>& asked, const std::string& wanted);
  void say_over();

  std::optional<FabricProviders> providers_;
  std::atomic<bool> over_ = false;
};

}  // namespace gpusock::proxy::fabric
