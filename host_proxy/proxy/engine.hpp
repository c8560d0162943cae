#pragma once
/// @file Runs a proxy: a thread of its own that sleeps when there is nothing to do, and callers that lend a hand.
///
/// Where processors are few, a thread switch between a caller and the network costs more than the work: a caller that
/// waits, or has just committed, then runs the proxy's step itself if no other thread is in it (assisting). The
/// engine's thread keeps out of the way as long as callers do so, and sleeps in the kernel while nothing happens. How
/// falling asleep does not miss a commit is in sleeper.hpp.

#include "host_proxy/net/posix_network.hpp"
#include "host_proxy/proxy/observer.hpp"
#include "host_proxy/proxy/proxy.hpp"
#include "host_proxy/proxy/sleeper.hpp"

#include <atomic>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

namespace gpusock::proxy {

struct EngineOptions {
  bool assist = true;                       ///< true if callers may run steps
  bool callers_can_wake = true;             ///< false: the device cannot ring, so the thread looks by itself
  std::vector<int> processors = {};         ///< what the thread is kept on, as far as this process may use them; empty:
                                            ///< anywhere
  Observer* observer = nullptr;             ///< what the thread keeps refreshed for gpusock-top; outlives the engine
  const std::atomic<bool>* spin = nullptr;  ///< while it is true, the thread does not sleep; outlives the engine
};

class Engine {
 public:
  /// Throws Error (EAGAIN) where there is no thread to be had.
  Engine(Proxy& proxy, PosixNetwork& network, const EngineOptions& options);
  ~Engine();  ///< stops the thread; the sockets stay as they are
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  /// A caller has committed bytes or posted a request on this slot.
  void ring_doorbell(std::uint32_t slot);
  /// Moves bytes past this slot's ring; how many, 0 where the link or the moment does not allow that. For the one
  /// caller that sends, or receives, on the slot, while it keeps the slot from being released. Where callers assist.
  std::uint64_t move_past_ring(std::uint32_t slot, const detail::PastRing& wanted);

  /// A caller has given ring space back.
  void ring_for_credit();
  /// One turn, at this time, of a caller's wait that has lasted `waited_ns`.
  void assist(std::uint64_t now_ns, std::uint64_t waited_ns);

  /// Closes every socket and goes on until all that was sent is delivered, or for `linger_ns`. The engine's thread is
  /// stopped first.
  void drain(std::uint64_t linger_ns);

  ProxyStats stats();
  std::vector<SocketInfo> sockets();

  /// Nobody makes a step while the result lives: for looking at the proxy, and for tests of stalls.
  [[nodiscard]] std::unique_lock<std::mutex> suspend() { return std::unique_lock(stepping_); }
  std::uint64_t wakeups() const { return wakeups_.load(std::memory_order_relaxed); }

  /// A caller that has waited this long goes to sleep instead of assisting.
  static constexpr std::uint64_t kAssistNs = 200'000;

 private:
  void start_thread();
  void run();
  void show(std::uint64_t now_ns);
  void stop();
  bool try_step(std::uint64_t now_ns, std::uint32_t hinted_slot);
  void wake_thread_behind_assistant();
  void ring_if_asleep(Sleeper::Asleep least);
  void rest();
  bool looks_again_at_once(std::uint64_t now_ns) const;
  void sleep_in_network();
  std::uint64_t nap_ns(std::uint64_t now_ns);

  Proxy& proxy_;
  PosixNetwork& network_;
  EngineOptions options_;
  std::mutex stepping_;
  Sleeper sleeper_;
  std::atomic<bool> parked_{false};
  std::atomic<std::uint64_t> assisted_at_ns_{0};
  std::atomic<std::uint64_t> wakeups_{0};
  std::atomic<bool> stopping_{false};
  std::uint64_t idle_since_ns_ = 0;
  std::thread thread_;
};

}  // namespace gpusock::proxy
