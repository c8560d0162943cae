#pragma once
/// @file Runs a proxy's steps on its own thread, which sleeps if there is nothing to do, and on callers' threads.
///
/// On a machine with few processors, a thread switch between a caller and the network costs more than the work. There a
/// caller that waits, or has just committed, runs the proxy's step itself if no other thread is in it (assisting). The
/// engine's thread keeps out of the way as long as callers assist, and sleeps in the kernel while nothing happens.
/// sleeper.hpp says why it does not miss a commit when it falls asleep.

#include "host_proxy/net/posix_network.hpp"
#include "host_proxy/proxy/news.hpp"
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
  std::vector<int> processors = {};         ///< the thread's processors, as far as this process may use them; empty:
                                            ///< any
  Observer* observer = nullptr;             ///< the thread keeps its page fresh for gpusock-top; outlives the engine
  const std::atomic<bool>* spin = nullptr;  ///< while it is true, the thread does not sleep; outlives the engine
};

class Engine {
 public:
  /// Throws Error (EAGAIN) if no thread can be started.
  Engine(Proxy& proxy, PosixNetwork& network, const EngineOptions& options);
  ~Engine();  ///< stops the thread; the sockets stay as they are
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  /// Call it when a caller has committed bytes or written a request on this slot.
  void ring_doorbell(std::uint32_t slot);
  /// Moves bytes past this slot's ring. Returns how many; 0 if the link or the moment does not allow that. Only if
  /// callers assist, for the one caller that sends, or receives, on the slot and keeps it from being released.
  std::uint64_t move_past_ring(std::uint32_t slot, const detail::PastRing& wanted);

  /// Call it when a caller has given ring space back.
  void ring_for_credit();
  /// Does one turn of a caller's wait, which has lasted `waited_ns` at this time.
  void assist(std::uint64_t now_ns, std::uint64_t waited_ns);
  /// True while the thread keeps away because callers make steps.
  bool keeps_away(std::uint64_t now_ns) const;

  /// What steps have done, for callers that wait for it alone. nullptr if callers may wait for what no step does: some
  /// link moves bytes without the proxy.
  News* news() { return proxy_.has_direct_links() ? nullptr : &news_; }
  /// Wakes callers that sleep until there is news.
  void tell_news() { news_.tell(); }

  /// Stops the engine's thread and closes every socket. Goes on for `linger_ns`, or until all that was sent is
  /// delivered.
  void drain(std::uint64_t linger_ns);

  ProxyStats stats();
  std::vector<SocketInfo> sockets();

  /// No thread makes a step while the result lives. For looking at the proxy, and for tests of stalls.
  [[nodiscard]] std::unique_lock<std::mutex> suspend() { return std::unique_lock(stepping_); }
  std::uint64_t wakeups() const { return wakeups_.load(std::memory_order_relaxed); }

  /// A caller that has waited this long goes to sleep instead of assisting.
  static constexpr std::uint64_t kAssistNs = 200'000;

 private:
  void start_thread();
  void run();
  bool step(std::uint64_t now_ns, Proxy::Pass pass);
  void show(std::uint64_t now_ns);
  void stop();
  bool try_step(std::uint64_t now_ns, std::uint32_t hinted_slot);
  void wake_thread_behind_assistant();
  void ring_if_asleep(Sleeper::Asleep least);
  void call_thread();
  void rest();
  void park();
  bool looks_again_at_once(std::uint64_t now_ns) const;
  void sleep_in_network();
  std::uint64_t nap_ns(std::uint64_t now_ns);

  Proxy& proxy_;
  PosixNetwork& network_;
  EngineOptions options_;
  std::mutex stepping_;
  Sleeper sleeper_;
  News news_;
  std::atomic<bool> parked_{false};
  std::atomic<std::uint64_t> assisted_at_ns_{0};
  std::atomic<std::uint64_t> assistants_steps_{0};  // written with the lock held
  std::atomic<std::uint64_t> wakeups_{0};
  std::atomic<bool> stopping_{false};
  std::uint64_t idle_since_ns_ = 0;
  std::uint64_t park_ns_;
  std::thread thread_;
};

}  // namespace gpusock::proxy
