#pragma once
/// @file A context as the production code has it, on the model's memory: socket table, proxy with its tcp link,
/// callers. In the place of the operating system's network stands one that gives back what it is sent.

#include "checker/run.hpp"

#include "gpusock/device.cuh"
#include "gpusock/owned_socket.cuh"
#include "host_proxy/links/tcp/maker.hpp"
#include "host_proxy/proxy/proxy.hpp"

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

namespace gpusock::model {

inline constexpr std::uint64_t kRingBytes = kRingBytesMin;

/// What became of the connections of one world, in the order in which they were made.
struct Wire {
  std::string sent;      ///< by this side
  std::string arriving;  ///< what this side has still to read
  bool peer_ended = false;
  bool ended = false;  ///< by this side
  bool gone = false;   ///< the stream was destroyed
};

class ModelNetwork final : public proxy::Network {
 public:
  bool refuses = false;       ///< connecting fails
  bool echoes = false;        ///< what is sent comes back
  int incoming = 0;           ///< connections that a listener will be given
  std::string greeting;       ///< what each connection's peer sends by itself
  bool ends = false;          ///< and then ends its direction
  int served_from = 0;        ///< the first listeners are given no connections
  bool first_breaks = false;  ///< nothing can be sent on the first connection
  int listeners = 0;          ///< that there were
  std::vector<std::shared_ptr<Wire>> wires;

  std::unique_ptr<proxy::Acceptor> listen(const Endpoint& at, int backlog, int& error) override;
  std::unique_ptr<proxy::ByteStream> connect(const Endpoint& to, int& error) override;
  void poll() override {}

  std::unique_ptr<proxy::ByteStream> make_stream();
};

/// How callers look at what the proxy writes.
enum class Looks {
  often,      ///< as host threads
  seldom,     ///< at the status in every second turn only, as kernels on a GPU do in every fourth
  on_device,  ///< as kernels that poll their device's memory, where the proxy writes it
};

class World {
 public:
  explicit World(std::uint32_t sockets_max = 1, Looks looks = Looks::often);
  ~World();

  Net net() const { return detail::NetAccess::make(side_, side_); }
  const detail::Side& side() const { return side_; }
  table::CallerSlot& slot(std::uint32_t which) { return slots_[which]; }

  /// Steps of the proxy, as long as they move something.
  void step() {
    while (proxy_->step(kEarly, proxy::Proxy::Pass::full)) {
    }
  }
  /// Ends the context, as Context::cancel() does.
  void cancel();
  /// A host thread wakes a set of kernels'.
  int wake_by_host(PollSet set) const {
    return detail::NetAccess::make(host_side_, host_side_).wake(this_thread(), set);
  }

  ModelNetwork network;

 private:
  void look_seldom();

  std::unique_ptr<proxy::TableMemory> table_;
  proxy::LinkResources resources_;
  std::unique_ptr<proxy::Proxy> proxy_;
  std::vector<table::CallerSlot> slots_;
  std::uint64_t free_taken_ = 0;
  std::vector<std::uint64_t> accept_taken_;
  std::vector<table::CallerSet> sets_;
  table::PollSetView set_view_;
  detail::Side side_;
  std::vector<table::CallerSet> host_sets_;
  table::PollSetView host_set_view_;
  detail::Side host_side_;  ///< where callers are kernels: the host threads'
  detail::Hooks seldom_{};
  std::uint64_t turns_[8] = {};  ///< of waiting, by thread
};

/// What callers do in the place of assisting the proxy: nothing, and give way where they wait.
const detail::Hooks& hooks();

/// Every thread of these cases calls for itself.
inline const ThisThread kMe = this_thread();

/// Where sockets of these cases connect and listen.
Endpoint somewhere();

}  // namespace gpusock::model
