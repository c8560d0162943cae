#pragma once
/// @file A context without threads, devices or a clock: its callers' waits run the proxy's steps, and time is a number.

#include "gpusock/cpu/host_platform.hpp"
#include "gpusock/device.cuh"
#include "host_proxy/links/tcp/maker.hpp"
#include "host_proxy/memory/segment.hpp"
#include "host_proxy/memory/device_copies.hpp"
#include "host_proxy/proxy/proxy.hpp"
#include "tests/fuzz/target.hpp"
#include "tests/fuzz/wire.hpp"

#include <functional>
#include <memory>
#include <vector>

namespace gpusock::fuzz {

class Node {
 public:
  static constexpr std::uint64_t kRingBytes = 4096;
  static constexpr std::uint32_t kSockets = 4;
  static constexpr std::uint64_t kCopyBytesMax = 1024;

  /// In device memory the proxy reaches rings by copies alone.
  explicit Node(RingPlacement rings = RingPlacement::host)
      : table(platform, kSockets, false),
        segments(platform, {kRingBytes, kRingBytes}, 0, rings),
        copies(rings == RingPlacement::device
                   ? std::make_unique<proxy::DeviceCopies>(platform->make_copier(), kCopyBytesMax)
                   : nullptr),
        tcp(segments),
        resources{{&tcp}, copies.get(), kRingBytes, "swordfish"},
        slots_(table.slots()),
        taken_(1 + table::kListenersMax),
        sets_(table.sets()),
        set_view_(table.sets(proxy::SideKind::host, sets_.data())) {}

  /// Before start(): a kind of link, worse than those before it and better than tcp.
  void add(proxy::LinkMaker& maker) { resources.makers.insert(resources.makers.end() - 1, &maker); }

  void start() {
    proxy = std::make_unique<proxy::Proxy>(table, network, resources, proxy::ProxyOptions{});
    hooks_.self = this;
    hooks_.ring_doorbell = [](void* self, std::uint32_t slot) { static_cast<Node*>(self)->proxy->hint(slot); };
    hooks_.ring_for_credit = [](void*) {};
    hooks_.move_past_ring = [](void* self, std::uint32_t slot, const detail::PastRing& wanted) {
      Node& node = *static_cast<Node*>(self);
      return node.proxy->move_past_ring(slot, wanted, node.now_ns);
    };
    hooks_.relax = [](void* self, std::uint64_t, std::uint64_t, bool) { static_cast<Node*>(self)->turn(); };
    const detail::Side side{
        table.view(proxy::SideKind::host), slots_.data(), taken_.data(), taken_.data() + 1, &set_view_, &hooks_};
    net = detail::NetAccess::make(side, side);
  }

  /// A step of the proxy, a millisecond later.
  void turn(int times = 1) {
    for (; times > 0; --times) {
      now_ns += 1'000'000;
      proxy->step(now_ns, proxy::Proxy::Pass::full);
      if (beside) beside();
    }
  }
  void pass(std::uint64_t seconds) {
    now_ns += seconds * 1'000'000'000;
    turn(4);
  }

  const table::SocketSetup& setup_of(Socket socket) {
    return table.view(proxy::SideKind::host).setups[table::slot_of(socket)];
  }

  std::uint64_t status_of(Socket socket) const {
    const std::uint64_t& word = table.view(proxy::SideKind::host).proxy_words[table::slot_of(socket)].status;
    return ringbuf::SystemAtomics::Ref<const std::uint64_t>(word).load(ringbuf::kAcquire);
  }

  std::shared_ptr<proxy::Platform> platform = std::make_shared<proxy::HostPlatform>();
  proxy::TableMemory table;
  WireNetwork network;
  proxy::SegmentPool segments;
  std::unique_ptr<proxy::DeviceCopies> copies;  ///< for rings in device memory
  proxy::TcpMaker tcp;
  proxy::LinkResources resources;
  std::unique_ptr<proxy::Proxy> proxy;
  Net net;
  std::uint64_t now_ns = 1;
  std::function<void()> beside;  ///< what happens beside each step

 private:
  std::vector<table::CallerSlot> slots_;
  std::vector<std::uint64_t> taken_;
  std::vector<table::CallerSet> sets_;
  table::PollSetView set_view_;
  detail::Hooks hooks_{};
};

}  // namespace gpusock::fuzz
