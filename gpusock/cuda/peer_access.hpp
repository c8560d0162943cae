#pragma once
/// @file Which GPUs reach each other's memory, among those that contexts of this process use.

#include "gpusock/cuda/gpu.hpp"

#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace gpusock::cudart {

/// Peer access (cudaDeviceEnablePeerAccess) lets kernels of one GPU load from and store to another one's memory, over
/// NVLink or the PCIe bus. It is enabled while contexts are made, because that may wait for kernels. It is never
/// disabled, because the program may use it, too.
class PeerAccess {
 public:
  static PeerAccess& get();

  /// Adds a GPU that a context uses. Lets it and each GPU added before reach each other's memory, if they can and no
  /// kernel runs on either. Throws nothing: why_not() returns the reason of a failure.
  void add(Gpu& gpu);

  /// True if kernels of GPU `from` can use memory of GPU `to`.
  bool reaches(int from, int to) const;
  /// Returns why they cannot, as text for people.
  std::string why_not(int from, int to) const;
  /// Returns the other GPUs that reach this one's memory.
  std::vector<Gpu*> those_that_reach(int gpu) const;

 private:
  using Pair = std::pair<int, int>;  // from, to

  void connect(Gpu& one, Gpu& other);
  void keep_apart(const Pair& pair, const std::string& why);
  void note(const Pair& pair, const std::string& why_not);

  std::mutex adding_;         // held during calls of CUDA, so proxies must not wait for it
  mutable std::mutex mutex_;  // held for a moment only
  std::vector<Gpu*> used_;
  std::map<Pair, std::string> why_not_;  // empty text: `from` reaches `to`
};

}  // namespace gpusock::cudart
