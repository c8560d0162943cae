#pragma once
/// @file Which GPUs reach each other's memory, of those that contexts of this process use.

#include "gpusock/cuda/gpu.hpp"

#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace gpusock::cudart {

/// Peer access (cudaDeviceEnablePeerAccess) lets kernels of one GPU load from and store to another one's memory, over
/// NVLink or the PCIe bus. It is set up while contexts are made, because that may wait for kernels; and it stays, as
/// the program may use it, too.
class PeerAccess {
 public:
  static PeerAccess& get();

  /// A context uses this GPU: lets it and each of those before reach each other's memory, where they can and no kernel
  /// runs on either. Throws nothing: why_not() has the reason.
  void add(Gpu& gpu);

  /// True if kernels of GPU `from` can use memory of GPU `to`.
  bool reaches(int from, int to) const;
  /// Why they cannot, for people.
  std::string why_not(int from, int to) const;
  /// The other GPUs that reach this one's memory.
  std::vector<Gpu*> those_that_reach(int gpu) const;

 private:
  using Pair = std::pair<int, int>;  // from, to

  void connect(Gpu& one, Gpu& other);
  void keep_apart(const Pair& pair, const std::string& why);
  void note(const Pair& pair, const std::string& why_not);

  std::mutex adding_;         // held while CUDA is called; proxies must not wait for it
  mutable std::mutex mutex_;  // for a moment
  std::vector<Gpu*> used_;
  std::map<Pair, std::string> why_not_;  // empty: it reaches it
};

}  // namespace gpusock::cudart
