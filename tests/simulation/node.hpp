#pragma once
/// @file What a context is made of, in a simulated process: production's parts, on a fiber instead of the engine's
/// thread. The engine itself is not simulated: serve() and the hooks follow what it does, but sleep for as long as
/// nobody wakes them.

#include "gpusock/device.cuh"
#include "host_proxy/links/fabric/maker.hpp"
#include "host_proxy/links/p2p/maker.hpp"
#include "host_proxy/links/tcp/maker.hpp"
#include "host_proxy/links/verbs/maker.hpp"
#include "host_proxy/memory/device_copies.hpp"
#include "host_proxy/proxy/proxy.hpp"
#include "host_proxy/proxy/sleeper.hpp"
#include "tests/support/sim/kernel.hpp"

#include <memory>
#include <string>
#include <vector>

namespace gpusock::sim {

struct NodeOptions {
  std::uint32_t sockets_max = 4;
  std::uint64_t ring_bytes = 4096;
  std::string secret;
  bool assist = false;  ///< callers that wait run the proxy's step
  bool has_fabric = false;
  bool has_verbs = false;
  bool device_words = false;  ///< callers are kernels, which poll the proxy's words in device memory
  bool device_rings = false;  ///< rings that the proxy reaches by copies alone
  bool gpudirect = false;     ///< which RDMA NICs reach themselves
  bool flushed = false;       ///< where kernels see what NICs wrote only once it is flushed
  std::uint64_t copy_bytes_max = 4096;
  std::uint32_t status_turns = 1;            ///< as detail::Side's: kernels of a GPU look at the status seldom
  std::uint64_t nap_ns = ~std::uint64_t{0};  ///< the longest sleep: the engine's is 1 s
  bool tells_lost_rings = false;             ///< it is a problem where nobody wakes the proxy for what there is to do
  std::uint64_t handshake_timeout_ns = 5'000'000'000;
};

class Node {
 public:
  /// Under AsProcess(&process).
  Node(Schedule& schedule, Process& process, const NodeOptions& options);
  ~Node();  ///< the same; none of its fibers runs any more
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;

  Process& process() { return process_; }
  const Net& net() const { return net_; }
  proxy::SideKind callers_side() const {
    return options_.device_words ? proxy::SideKind::device : proxy::SideKind::host;
  }
  proxy::Proxy& proxy() { return proxy_; }
  Fiber& server() { return *server_; }

  std::uint64_t stalled_until_ns() const { return stalled_until_ns_; }
  void stall_until(std::uint64_t time_ns) { stalled_until_ns_ = time_ns; }
  /// As Context::cancel().
  void cancel();
  bool canceled() const { return canceled_ns_ != Schedule::kNever; }
  std::uint64_t canceled_ns() const { return canceled_ns_; }
  /// As Engine::drain(), on a fiber: closes every socket, and goes on until what was sent is delivered.
  void drain(std::uint64_t linger_ns);

  /// What has arrived in the rings of this socket, which is open and connected, and is not received.
  std::uint64_t unread_bytes(Socket socket) const;
  /// What is wrong with the words that callers and proxy share, or "".
  std::string check_words();
  /// What has not been given back although all is closed, or "".
  std::string check_released() const;

 private:
  static proxy::LinkResources list_links(Node& node);
  void serve();
  bool may_sleep();
  void expect_ring();
  bool step(proxy::Proxy::Pass pass);
  bool assist(std::uint32_t slot);
  void wake_server();
  void ring(proxy::Sleeper::Asleep least);
  void lock();
  std::uint64_t move_past_ring(std::uint32_t slot, const detail::PastRing& wanted);
  void make_net();

  Schedule& schedule_;
  Process& process_;
  NodeOptions options_;
  std::shared_ptr<proxy::Platform> platform_;
  proxy::TableMemory table_;
  proxy::PosixNetwork network_;
  proxy::SegmentPool segments_;
  std::unique_ptr<proxy::DeviceCopies> copies_;
  std::vector<std::unique_ptr<proxy::LinkMaker>> makers_;
  proxy::LinkResources resources_;
  proxy::Proxy proxy_;
  std::vector<table::CallerSlot> slots_;
  std::vector<std::uint64_t> taken_;
  std::vector<table::CallerSet> sets_;
  table::PollSetView set_view_;
  detail::Hooks hooks_{};
  Net net_;

  bool stepping_ = false;
  bool rung_ = false;
  bool slept_through_ = false;
  std::string problem_;
  std::uint64_t canceled_ns_ = Schedule::kNever;
  proxy::Sleeper sleeper_;
  std::uint64_t stalled_until_ns_ = 0;
  std::uint64_t idle_since_ns_ = 0;
  Fiber* server_ = nullptr;

  struct Seen {
    std::uint64_t words[4] = {};
    std::uint32_t generation = 0;
  };
  std::vector<Seen> seen_;
};

}  // namespace gpusock::sim
