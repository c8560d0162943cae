#pragma once
/// @file The engine that serves a context's sockets: one function, step(), that never waits.

#include "plain_types/socket_info.hpp"
#include "host_proxy/net/network.hpp"
#include "host_proxy/proxy/connection.hpp"
#include "host_proxy/proxy/listener.hpp"
#include "host_proxy/proxy/poll_sets.hpp"
#include "host_proxy/table/word_shadow.hpp"
#include "host_proxy/table/proxy_slots.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace gpusock::proxy {

struct ProxyOptions {
  std::uint64_t handshake_timeout_ns = 5'000'000'000;
  /// How long a peer that has not proved that it knows the secret may take up room that others wait for.
  std::uint64_t unauthenticated_ns() const { return handshake_timeout_ns / 10; }
  /// How much of the time between two polls of the network counts as watched, at most.
  std::uint64_t watched_ns_max() const { return unauthenticated_ns() / 8 + 1; }
};

/// Counters since the start.
struct ProxyStats {
  std::uint64_t steps = 0;
  std::uint64_t connections = 0;
  std::array<Link::Traffic, kLinkKinds> traffic{};  ///< by LinkKind

  const Link::Traffic& of(LinkKind kind) const { return traffic[static_cast<std::size_t>(kind)]; }
};

/// Serves the sockets of one table. Not thread-safe: the caller of step() holds the engine's lock (engine.hpp).
///
/// A lack of memory does not leave step() as an exception. If it affects one connection, that connection ends with
/// -ENOMEM for its caller and a reset for its peer. A connection that cannot be opened, or taken from a listener, is
/// refused. All others go on.
class Proxy {
 public:
  /// `network` and `resources` outlive it.
  Proxy(TableMemory& table, Network& network, LinkResources& resources, const ProxyOptions& options);
  ~Proxy();

  /// What one step looks at.
  enum class Pass {
    quick,  ///< sockets in use, and a part of the others in turn
    full,   ///< everything: all words that callers write, and the network's news
  };

  /// Call it when a caller has just committed or requested something on this slot: the next step looks at it.
  void hint(std::uint32_t slot) { hinted_slot_ = slot; }

  /// Moves bytes between a caller of this slot and its network, past the ring, and returns how many. Then makes a step;
  /// if no other connection is active, only some of the calls do.
  std::uint64_t move_past_ring(std::uint32_t slot, const detail::PastRing& wanted, std::uint64_t now_ns);

  /// Does all that can be done at this time; true if anything moved. Never waits.
  bool step(std::uint64_t now_ns, Pass pass = Pass::quick);

  /// When step() is due even if nothing happens.
  std::uint64_t next_deadline_ns() const { return due_ns_; }
  /// True if something waits until callers give ring space back: a socket that cannot read on, or an entry of a poll
  /// set.
  bool waits_for_credit() const;
  /// True if something that rings no doorbell must be looked at again soon.
  bool wants_polling() const;
  /// True if the next message of a handshake may be there within microseconds.
  bool awaits_answer(std::uint64_t now_ns) const;
  /// True if there are sockets in use, or being opened or closed.
  bool has_connections() const { return !connections_.empty(); }

  /// Closes every socket in order, as its callers would have done; step() goes on delivering what was sent.
  void close_all(std::uint64_t now_ns);

  ProxyStats stats() const;
  const PollSets& poll_sets() const { return poll_sets_; }

  /// Every socket that is open or being opened or closed, as it stands now.
  std::vector<SocketInfo> sockets(std::uint64_t now_ns) const;
  /// What the operating system knows of this handle's connection, if it is on the tcp link. A system call.
  TcpInfo tcp_info(std::int32_t handle) const;

  // For connections.
  ProxySlots& slots() { return slots_; }
  /// True once a link was set up that moves bytes without the proxy. Any thread may call it.
  bool has_direct_links() const { return slots_.has_direct_links(); }
  Network& network() { return network_; }
  const LinkResources& links() { return resources_; }
  void activate(Connection& connection);  ///< it may have something to do
  /// A connection must be stepped by then.
  void due(std::uint64_t deadline_ns) { due_ns_ = std::min(due_ns_, deadline_ns); }
  void count_established() { ++stats_.connections; }
  /// True if these reasons for the lack of a link differ from those at the last call: equal ones get no second warning.
  bool is_news(const std::string& reasons) { return std::exchange(told_reasons_, reasons) != reasons; }

 private:
  bool step_all(std::uint64_t now_ns, Pass pass);
  template <class What>
  auto contain(Connection& connection, What what);
  template <class What>
  bool contain(std::uint64_t now_ns, What what);
  void log_shortage(const std::exception& error) noexcept;
  bool poll_links(std::uint64_t now_ns);
  void scan(std::uint64_t now_ns, std::uint32_t pages);
  void scan_page(std::uint64_t now_ns, std::uint32_t page);
  void scan_requests(std::uint64_t now_ns, std::uint32_t slot);
  void scan_rings(std::uint32_t slot);
  void note_rings(std::uint32_t slot);
  void set_resting(Connection& connection, bool resting);
  void take_requests(std::uint32_t slot, std::uint64_t word, std::uint64_t now_ns);
  void request(Connection& connection, std::uint64_t bits, std::uint64_t now_ns);
  std::uint64_t load_requests(std::uint32_t slot);
  void set_options(std::uint32_t slot);
  void update_options(std::uint32_t slot);
  bool try_open(std::uint32_t slot, std::uint64_t now_ns);
  bool open(std::uint32_t slot, std::uint64_t now_ns);
  void open_later(std::uint32_t slot);
  bool open_unready(std::uint64_t now_ns);
  bool links_are_ready(const Endpoint& asked);
  void open_listener(std::uint32_t slot, const table::OpenRequest& request);
  std::unique_ptr<Acceptor> listen(const table::OpenRequest& request, int& error);
  bool may_listen(const Endpoint& at, int& error) const;
  bool has_link(const Endpoint& at, const char* doing) const;
  void take_back(Listener& listener, std::uint64_t now_ns);
  void close_listener(Listener& listener);
  bool step_listeners(std::uint64_t now_ns);
  void make_room(Listener& listener, std::uint64_t now_ns);
  template <class Since>
  Connection* find_overdue(Since since_ns, std::uint64_t time_ns, std::uint64_t& look_again_ns, std::uint64_t now_ns);
  void wait_for_slot(Connection& connection);
  bool hand_over(std::uint64_t now_ns);
  void cut_closing_short(std::uint64_t now_ns);
  void accept_agreed(Connection& connection, std::uint32_t slot, std::uint64_t now_ns);
  bool step_active(std::uint64_t now_ns);
  void poll_network(std::uint64_t now_ns);
  void expire(std::uint64_t now_ns);
  Connection& add(std::unique_ptr<Connection> connection, std::uint64_t now_ns);
  void destroy(Connection& connection, std::uint64_t now_ns);
  void retire(std::shared_ptr<Segment> segment, std::uint64_t now_ns) noexcept;
  void add_traffic(ProxyStats& stats, const Connection& connection) const;
  void describe(const Connection& connection, SocketInfo& info) const;
  SocketInfo describe_slot(std::uint32_t slot, std::uint64_t now_ns) const;

  Network& network_;
  LinkResources& resources_;
  ProxyOptions options_;
  TableMemory& table_;
  ProxySlots slots_;
  PollSets poll_sets_;
  WordShadow requests_;
  WordShadow tx_committed_;
  WordShadow rx_consumed_;
  std::vector<std::uint32_t> resting_;  // by page: connections that are open and not active
  std::list<std::unique_ptr<Connection>> connections_;
  std::vector<Connection*> active_;
  std::vector<Connection*> slot_waiters_;  // connections that wait for a slot, in the order in which they came
  std::uint64_t connections_added_ = 0;
  std::list<std::unique_ptr<Listener>> listeners_;
  std::array<ringbuf::HandleProducer<>, table::kListenersMax> accept_queues_;
  std::array<std::vector<std::uint32_t>, 2> free_queues_;  // per caller side, last freed first
  std::vector<std::uint32_t> accept_queue_of_;             // by accepted slot: the listener's slot, or kNone

  struct Retired {
    std::shared_ptr<Segment> segment;
    std::uint64_t until_ns;
  };
  std::list<Retired> retired_;
  std::list<Retired> unretired_;  // a node of retired_ for each connection: its end allocates nothing

  /// A slot that is to be opened once its links are prepared.
  struct Unready {
    std::uint32_t slot;
    std::uint32_t generation;
  };
  std::vector<Unready> unready_;
  bool shortage_logged_ = false;
  std::string told_reasons_;  // the last reasons for the lack of a link, see is_news()

  static constexpr std::uint32_t kNone = ~std::uint32_t{0};
  std::uint32_t hinted_slot_ = kNone;
  std::uint32_t next_page_ = 0;
  std::uint64_t moves_since_step_ = 0;
  std::uint64_t due_ns_ = ~std::uint64_t{0};
  std::uint64_t polled_ns_ = 0;        // when the network was polled last
  std::uint64_t watched_ns_ = 0;       // how long the network has been watched: see poll_network()
  std::uint64_t closing_look_ns_ = 0;  // when to look again for a closed connection that makes room
  std::uint64_t retry_ns_ = 0;         // when to repeat work that an exception has ended; in the past: there is none
  ProxyStats stats_;
};

}  // namespace gpusock::proxy
