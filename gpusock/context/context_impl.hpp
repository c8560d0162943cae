#pragma once
/// @file What a Context owns, in the order in which it is made.

#include "gpusock/context/device_holdings.hpp"
#include "host_proxy/proxy/engine.hpp"

#include <sys/types.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

namespace gpusock {

struct Stream::Impl {
  explicit Impl(Context& owner);
  Context& context;
  std::unique_ptr<detail::DeviceStream> native;
};

struct Context::Impl {
  explicit Impl(const Options& chosen);
  ~Impl();

  void synchronize();
  /// Returns the context's own stream. It is made at the first launch on it, because many programs launch only on
  /// streams of their own, and a GPU has few. Throws Error as Stream's constructor does.
  detail::DeviceStream& own_stream();
  /// Counts a launch, a synchronization or a memory call. Throws Error (ECANCELED) in a process that was forked.
  void begin_call() {
    require_own_process();
    host_api_calls.fetch_add(1, std::memory_order_relaxed);
  }
  /// True if this process made the context. A forked process has none of its threads, and what the context shares with
  /// peers belongs to the parent.
  bool in_own_process() const { return getpid() == process; }
  void require_own_process() const;
  /// Called in a process that was just forked. After it, calls on sockets return -ECANCELED, and touch nothing that the
  /// parent uses.
  void leave_to_parent() noexcept;

  const pid_t process = getpid();
  Options options;
  detail::HeldByDevice held;
  detail::Device& device;
  detail::KernelMemory& memory;
  proxy::TableMemory& table;
  proxy::PosixNetwork network;
  std::vector<std::unique_ptr<proxy::LinkMaker>> links;  // best first
  proxy::LinkResources resources;
  proxy::Proxy proxy;

  // The callers' own state. If kernels are a caller side of their own, theirs is in device memory (DeviceHoldings).
  std::vector<table::CallerSlot> host_slots;
  std::vector<std::uint64_t> host_taken;
  std::vector<detail::Adaptation> adaptations;  // by slot; also for kernels that run on a CPU
  std::vector<table::CallerSet> host_callers_sets;
  table::PollSetView host_sets;
  detail::Hooks hooks{};
  detail::Hooks kernel_hooks{};
  detail::Side host_side;
  Net net;

  std::atomic<std::uint64_t> host_api_calls{0};
  proxy::Observer observer;
  proxy::Engine engine;

 private:
  std::once_flag own_stream_once_;
  std::unique_ptr<detail::DeviceStream> own_stream_;
  void make_net();
};

namespace detail {
/// Returns the device's stream of `stream`, or of the context's own stream if `stream` is nullptr.
DeviceStream& chosen_stream(Context& context, Stream* stream);
}  // namespace detail

}  // namespace gpusock
