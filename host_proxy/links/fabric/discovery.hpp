#pragma once
/// @file What libfabric has on this machine, asked on a thread of its own: loading the library and its providers'
/// looking around takes from milliseconds to seconds, and a proxy's step must not wait. Asked once in a process:
/// libfabric itself looks for devices once.

#include "host_proxy/links/fabric/libfabric_port.hpp"

#include <atomic>
#include <memory>
#include <optional>
#include <string>

namespace gpusock::proxy::fabric {

class Discovery {
 public:
  /// The answer for this provider (empty: for all), asked for from the first call in the process on. Any thread.
  /// Throws std::bad_alloc; then the next call asks again.
  static std::shared_ptr<Discovery> of(const std::string& wanted);

  bool over() const { return over_.load(std::memory_order_acquire); }
  /// Waits until it is.
  void wait() const { over_.wait(false, std::memory_order_acquire); }
  /// True if there was no memory to ask: of() then asks again.
  bool failed() const { return over() && !providers_; }
  /// Once it is over, and has not failed.
  const FabricProviders& providers() const { return *providers_; }

 private:
  static void ask(const std::shared_ptr<Discovery>& asked, const std::string& wanted);
  static void ask_or_fail(const std::shared_ptr<Discovery>& asked, const std::string& wanted);
  void say_over();

  std::optional<FabricProviders> providers_;
  std::atomic<bool> over_ = false;
};

}  // namespace gpusock::proxy::fabric
