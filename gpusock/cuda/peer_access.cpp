#include "gpusock/cuda/peer_access.hpp"

#include "gpusock/cuda/check.hpp"
#include "host_proxy/base/log.hpp"

#include <algorithm>

namespace gpusock::cudart {
namespace {

std::string name_of(int gpu) { return "GPU " + std::to_string(gpu); }

bool can_reach(int from, int to) {
  int can = 0;
  return taken(cudaDeviceCanAccessPeer(&can, from, to)) == cudaSuccess && can != 0;
}

/// Enables access. Returns an empty text, or why it failed. The program may have enabled it before.
std::string enable(int from, int to) {
  const CurrentGpu current(from);
  const cudaError_t error = taken(cudaDeviceEnablePeerAccess(to, 0));
  if (error == cudaSuccess || error == cudaErrorPeerAccessAlreadyEnabled) return {};
  return name_of(from) + " cannot be given access to the memory of " + name_of(to) + ": " + describe(error);
}

}  // namespace

PeerAccess& PeerAccess::get() {
  static auto* const access = new PeerAccess;  // never destroyed: static contexts may end at any time
  return *access;
}

void PeerAccess::add(Gpu& gpu) {
  const std::lock_guard adding(adding_);
  std::vector<Gpu*> others;
  {
    const std::lock_guard lock(mutex_);
    others = used_;
    if (std::find(used_.begin(), used_.end(), &gpu) == used_.end()) used_.push_back(&gpu);
  }
  for (Gpu* other : others) {
    if (other != &gpu) connect(gpu, *other);
  }
}

void PeerAccess::connect(Gpu& one, Gpu& other) {
  const Pair there(one.number, other.number), back(other.number, one.number);
  if (reaches(there.first, there.second) && reaches(back.first, back.second)) return;
  for (const Pair& pair : {there, back}) {
    if (can_reach(pair.first, pair.second)) continue;
    return keep_apart(there, name_of(pair.first) + " does not reach the memory of " + name_of(pair.second) +
                                 " (cudaDeviceCanAccessPeer)");
  }
  std::string why;
  const bool quiet = while_quiet({&one, &other}, [&] {
    for (const Pair& pair : {there, back}) {
      const std::string refused = enable(pair.first, pair.second);
      note(pair, refused);
      if (!refused.empty()) why = refused;
    }
  });
  if (!quiet) {
    why = "kernels ran on " + name_of(one.number) + " or " + name_of(other.number) +
          " when a context was made there: make all contexts first";
  }
  if (!why.empty()) keep_apart(there, why);
}

void PeerAccess::keep_apart(const Pair& pair, const std::string& why) {
  proxy::log_info("rings between " + name_of(pair.first) + " and " + name_of(pair.second) +
                  " lie in host memory: " + why);
  note(pair, why);
  note({pair.second, pair.first}, why);
}

/// Notes whether access was given. Access that was given once stays.
void PeerAccess::note(const Pair& pair, const std::string& why_not) {
  const std::lock_guard lock(mutex_);
  std::string& noted = why_not_.try_emplace(pair, why_not).first->second;
  if (!noted.empty()) noted = why_not;
}

bool PeerAccess::reaches(int from, int to) const {
  const std::lock_guard lock(mutex_);
  const auto found = why_not_.find({from, to});
  return found != why_not_.end() && found->second.empty();
}

std::string PeerAccess::why_not(int from, int to) const {
  const std::lock_guard lock(mutex_);
  const auto found = why_not_.find({from, to});
  return found == why_not_.end() ? "one of their contexts has GPUSOCK_RING=host" : found->second;
}

std::vector<Gpu*> PeerAccess::those_that_reach(int gpu) const {
  std::vector<Gpu*> gpus;
  for (Gpu* each : [this] {
         const std::lock_guard lock(mutex_);
         return used_;
       }()) {
    if (each->number != gpu && reaches(each->number, gpu)) gpus.push_back(each);
  }
  return gpus;
}

}  // namespace gpusock::cudart
