#pragma once
/// @file How a training publishes its weights.

#include "gpusock/gpusock.hpp"

#include <cstdint>
#include <memory>

namespace param_sync {

/// The weights of one node for all who follow it, up to 32 at a time; others wait until one leaves. A kernel of its own
/// answers them. One thread uses it.
class Publisher {
 public:
  /// Listens. Call it before resident kernels are launched: it allocates memory for four times the weights. `model`:
  /// WeightsRequest::model. Throws gpusock::Error: what open_listener() throws.
  Publisher(gpusock::Context& context, const gpusock::Endpoint& at, std::uint64_t floats, std::uint64_t model);
  /// Ends what still runs.
  ~Publisher();
  Publisher(const Publisher&) = delete;
  Publisher& operator=(const Publisher&) = delete;

  /// Where followers connect.
  const gpusock::Endpoint& where() const;
  /// Launches the kernel that answers followers.
  void start();
  /// Publishes the weights as soon as the kernels of `stream` so far have ended; no later kernel may change them before
  /// that. Does not wait. Does nothing if a kernel has failed. `failed`: in device memory, not 0 once one has.
  void offer(gpusock::Stream& stream, const float* weights, std::uint64_t version, const std::uint64_t* failed);
  /// Gives followers the last version, and ends their connections. Waits no longer than a second for those that are
  /// silent, and some ten seconds for those that do not read. The kernels of offer() must have ended.
  void finish(std::uint64_t last_version);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace param_sync
