#include "host_proxy/proxy/proxy.hpp"

#include "plain_types/clock.hpp"
#include "plain_types/error.hpp"
#include "host_proxy/base/log.hpp"
#include "host_proxy/memory/device_copies.hpp"
#include "host_proxy/memory/segment.hpp"

#include <algorithm>
#include <cerrno>
#include <limits>
#include <utility>

namespace gpusock::proxy {
namespace {

using Ref = ringbuf::SystemAtomics::Ref<std::uint64_t>;

constexpr std::uint32_t kColdPagesPerStep = 2;
/// A connection that moved nothing for this many steps leaves the active list until something concerns it.
constexpr std::uint64_t kIdleSteps = 256;
/// With at most this many active connections, reading them without asking is cheaper than asking epoll first.
constexpr std::size_t kGuessedReads = 2;
/// How often the network is asked for news while connections are read without asking.
constexpr std::uint64_t kPollInterval = 16;
/// Ring memory stays mapped this long after its connection ended, so that a call that another thread is still in reads
/// stale words and not an unmapped page.
constexpr std::uint64_t kRetireNs = 1'000'000'000;
/// After this long a step tries again what an exception ended. The delay keeps a lasting lack of memory from using up a
/// processor.
constexpr std::uint64_t kRetryNs = 10'000'000;

/// A closed connection that still delivers has at least this long before it makes room for a client.
constexpr std::uint64_t kClosingMinNs = 1'000'000'000;

/// If a client waits no longer than this for a slot, that is not logged: another connection was just closed.
constexpr std::uint64_t kWaitToldNs = 100'000'000;

/// Logs why this client waits, once: no call of a kernel says it.
void tell_of_wait(Connection& client, bool for_rings, std::uint64_t now_ns) {
  if (client.waits_since_ns == 0) client.waits_since_ns = now_ns;
  if (now_ns - client.waits_since_ns < kWaitToldNs || std::exchange(client.wait_was_told, true)) return;
  try_log(LogLevel::warn, [&] {
    return std::string("a client waits, as all ") +
           (for_rings ? "ring memory is in use: raise Options::connections_max"
                      : "sockets are in use: raise Options::sockets_max") +
           ", or close connections sooner";
  });
}

}  // namespace

Proxy::Proxy(TableMemory& table, Network& network, LinkResources& resources, const ProxyOptions& options)
    : network_(network),
      resources_(resources),
      options_(options),
      table_(table),
      slots_(table),
      poll_sets_(slots_.view(), table.sets(SideKind::host, nullptr)),
      requests_(slots_.view().requests, table.slots()),
      tx_committed_(slots_.view().tx_committed, table.slots()),
      rx_consumed_(slots_.view().rx_consumed, table.slots()),
      resting_((table.slots() + kPageSlots - 1) / kPageSlots),
      accept_queue_of_(table.slots(), kNone) {
  unready_.reserve(table.slots());
  for (std::uint32_t queue = table::kListenersMax; queue-- > 0;) {
    accept_queues_[queue] = table.accept_queue(queue);
    free_queues_[static_cast<int>(table.consumers_of(queue))].push_back(queue);
  }
}

Proxy::~Proxy() = default;

/// Runs a part of the step that concerns one connection, and returns its result. An exception ends the connection.
template <class What>
auto Proxy::contain(Connection& connection, What what) {
  using Result = decltype(what());
  try {
    return what();
  } catch (const std::exception& error) {
    log_shortage(error);
    connection.give_up(errno_of(error));
    activate(connection);
    return Result();
  }
}

/// Runs a part of the step that concerns no single connection, and returns its result. After an exception it returns
/// false, and a later step tries again.
template <class What>
bool Proxy::contain(std::uint64_t now_ns, What what) {
  try {
    return what();
  } catch (const std::exception& error) {
    log_shortage(error);
    retry_ns_ = detail::later_ns(now_ns, kRetryNs);
    due(retry_ns_);
    return false;
  }
}

/// Logs it once: if memory is short, every connection would log it.
void Proxy::log_shortage(const std::exception& error) noexcept {
  if (std::exchange(shortage_logged_, true)) return;
  try_log(LogLevel::error, [&] {
    return std::string("a connection is refused or ended: ") + error.what() +
           "; others go on, and this is logged once. Check the limits on memory (ulimit -v, "
           "the cgroup's memory.max)";
  });
}

bool Proxy::step(std::uint64_t now_ns, Pass pass) {
  return contain(now_ns, [&] { return step_all(now_ns, pass); });
}

bool Proxy::step_all(std::uint64_t now_ns, Pass pass) {
  ++stats_.steps;
  const bool full = pass == Pass::full;
  if (hinted_slot_ < slots_.count()) {
    scan_requests(now_ns, hinted_slot_);
    scan_rings(hinted_slot_);
    hinted_slot_ = kNone;
  }
  bool moved = poll_links(now_ns);
  moved |= step_active(now_ns);
  scan(now_ns, full ? static_cast<std::uint32_t>(resting_.size()) : kColdPagesPerStep);
  if (full || active_.size() > kGuessedReads || stats_.steps % kPollInterval == 0) {
    poll_network(now_ns);
    for (LinkMaker* maker : resources_.makers) {
      moved |= contain(now_ns, [&] {
        maker->maintain(now_ns);
        return false;
      });
    }
    if (resources_.copies != nullptr) resources_.copies->collect();
    moved |= open_unready(now_ns);
    moved |= step_listeners(now_ns);
    expire(now_ns);
    for (const auto& listener : listeners_) make_room(*listener, now_ns);
  }
  if (full) moved |= step_active(now_ns);  // what the scan and the network have just found
  return poll_sets_.write_queued() || moved;
}

bool Proxy::poll_links(std::uint64_t now_ns) {
  bool news = false;
  for (LinkMaker* maker : resources_.makers) news |= contain(now_ns, [&] { return maker->poll(now_ns); });
  return news;
}

std::uint64_t Proxy::move_past_ring(std::uint32_t slot, const detail::PastRing& wanted, std::uint64_t now_ns) {
  std::uint64_t moved = 0;
  if (Connection* connection = slots_[slot].connection) {
    activate(*connection);
    moved = contain(*connection, [&] { return connection->move_past_ring(wanted); });
  }
  if (active_.size() > 1 || ++moves_since_step_ >= kPollInterval) {
    moves_since_step_ = 0;
    step(now_ns);
  }
  return moved;
}

void Proxy::scan(std::uint64_t now_ns, std::uint32_t pages) {
  for (std::uint32_t i = 0; i < pages; ++i) {
    scan_page(now_ns, next_page_);
    next_page_ = next_page_ + 1 == resting_.size() ? 0 : next_page_ + 1;
  }
}

void Proxy::scan_page(std::uint64_t now_ns, std::uint32_t page) {
  const std::uint32_t first = page * kPageSlots;
  const std::uint32_t last = std::min(slots_.count(), first + kPageSlots);
  if (requests_.any_changed(first, last)) {
    for (std::uint32_t slot = first; slot < last; ++slot) scan_requests(now_ns, slot);
  }
  if (resting_[page] != 0 && (tx_committed_.any_changed(first, last) || rx_consumed_.any_changed(first, last))) {
    for (std::uint32_t slot = first; slot < last; ++slot) scan_rings(slot);
  }
}

void Proxy::scan_requests(std::uint64_t now_ns, std::uint32_t slot) {
  if (!requests_.changed(slot)) return;
  take_requests(slot, load_requests(slot), now_ns);
}

/// Wakes a resting connection whose caller has committed bytes or given space back.
void Proxy::scan_rings(std::uint32_t slot) {
  Connection* connection = slots_[slot].connection;
  if (!tx_committed_.changed(slot) && !rx_consumed_.changed(slot)) return;
  note_rings(slot);
  if (connection != nullptr) activate(*connection);
}

/// Notes how far the callers are. The links read the words themselves, with acquire.
void Proxy::note_rings(std::uint32_t slot) {
  tx_committed_.note(slot);
  rx_consumed_.note(slot);
}

/// Sets whether the scan of cold pages has to look at this connection's rings.
void Proxy::set_resting(Connection& connection, bool resting) {
  if (connection.resting == resting || !connection.has_slot()) return;
  connection.resting = resting;
  resting_[connection.slot() / kPageSlots] += resting ? 1 : -1;
}

std::uint64_t Proxy::load_requests(std::uint32_t slot) {
  return Ref(slots_.view().requests[slot]).load(ringbuf::kAcquire);  // T2, pairs with T1
}

void Proxy::take_requests(std::uint32_t slot, std::uint64_t word, std::uint64_t now_ns) {
  ProxySlot& state = slots_[slot];
  if (table::generation_of_request(word) != state.generation) {
    requests_.note(slot, word);
    return;  // the request is of an earlier connection in this slot
  }
  const std::uint64_t before = requests_.seen(slot);
  const std::uint64_t seen = table::generation_of_request(before) == state.generation ? before : 0;
  const std::uint64_t fresh = word & ~seen & ((1u << table::kRequestBits) - 1);
  requests_.note(slot, word);
  if ((fresh & table::kRequestOpen) != 0) state.block = slots_.view().open_requests[slot].block;
  if (slot >= table_.accepted()) {
    if (accept_queue_of_[slot] != kNone) {  // its first request: a caller has taken it
      if (Listener* listener = slots_[accept_queue_of_[slot]].listener) listener->remove_pending();
      accept_queue_of_[slot] = kNone;
    }
  } else if ((fresh & table::kRequestOpen) != 0 && (word & table::kRequestClose) == 0) {
    if (!try_open(slot, now_ns)) open_later(slot);
  }
  if (word >> table::kChangeShift != seen >> table::kChangeShift) {
    set_options(slot);
    poll_sets_.watch(slot, state.generation);
  }
  if ((fresh & ~std::uint64_t{table::kRequestOpen}) == 0) return;
  poll_sets_.note_change(slot, state.generation);  // a direction that this side has ended does not wait
  const bool never_accepted = slot >= table_.accepted() && (word & table::kRequestOpen) == 0;
  if (never_accepted && state.connection != nullptr) state.connection->abandon();
  if (state.connection != nullptr) {
    request(*state.connection, fresh, now_ns);
  } else if ((fresh & table::kRequestClose) != 0) {
    if (state.listener != nullptr) {
      take_back(*state.listener, now_ns);
      close_listener(*state.listener);
    }
    slots_.release(slot);
  }
}

void Proxy::request(Connection& connection, std::uint64_t bits, std::uint64_t now_ns) {
  contain(connection, [&] { connection.request(bits, now_ns); });
  const bool missed = (bits & table::kRequestClose) != 0 && !connection.closed();
  if (missed)
    connection.request(bits, now_ns);  // it was given up before it got the request; now nothing is left that could fail
}

void Proxy::set_options(std::uint32_t slot) {
  const std::uint64_t word = Ref(slots_.view().options[slot]).load(ringbuf::kRelaxed);  // relaxed: T2 ordered it
  const auto options = table::SocketOptions::unpack(word);
  if (Connection* connection = slots_[slot].connection) {
    connection->set_options(options);
    activate(*connection);  // a new timeout begins with its next step
  }
  if (Listener* listener = slots_[slot].listener) listener->set_options(options);
}

/// Options that the caller has set since its requests were last taken apply to the connections that come now.
void Proxy::update_options(std::uint32_t slot) {
  const std::uint64_t word = load_requests(slot);
  const bool changed = word >> table::kChangeShift != 0;
  if (changed && table::generation_of_request(word) == slots_[slot].generation) set_options(slot);
}

/// Opens what the slot asks for. Returns false if its links are not ready: then try again. If there is no memory for
/// it, its caller gets the error.
bool Proxy::try_open(std::uint32_t slot, std::uint64_t now_ns) {
  try {
    return open(slot, now_ns);
  } catch (const std::exception& error) {
    log_shortage(error);
    slots_.publish(slot, table::Phase::failed, errno_of(error));
    return true;
  }
}

/// As try_open(), but throws. After an exception there is no connection or listener.
bool Proxy::open(std::uint32_t slot, std::uint64_t now_ns) {
  const table::OpenRequest request = slots_.view().open_requests[slot];
  slots_[slot].opened_ns = now_ns;
  if (!links_are_ready(request.endpoint)) return false;
  if (request.kind == table::OpenKind::listen) {
    open_listener(slot, request);
    return true;
  }
  if (!has_link(request.endpoint, "connect to")) {
    slots_.publish(slot, table::Phase::failed, EPROTONOSUPPORT);
    return true;
  }
  ConnectAttempts attempts(request.endpoint);
  auto stream = attempts.start_next(network_);
  if (stream == nullptr) {
    slots_.publish(slot, table::Phase::failed, attempts.error());
    return true;
  }
  slots_.publish(slot, table::Phase::opening);
  slots_[slot].connection = &add(
      std::make_unique<Connection>(*this, slot, std::move(stream), request.endpoint, attempts,
                                   detail::later_ns(now_ns, options_.handshake_timeout_ns)),
      now_ns);
  return true;
}

/// Notes a slot for open_unready(). Each slot is noted once, so there is room.
void Proxy::open_later(std::uint32_t slot) {
  std::erase_if(unready_, [slot](const Unready& entry) { return entry.slot == slot; });
  unready_.push_back({slot, slots_[slot].generation});
}

/// Opens what waited for its links. A caller may have given up meanwhile.
bool Proxy::open_unready(std::uint64_t now_ns) {
  bool moved = false;
  std::erase_if(unready_, [&](const Unready& entry) {
    if (slots_[entry.slot].generation != entry.generation) return true;
    const bool tried = try_open(entry.slot, now_ns);
    moved |= tried;
    return tried;
  });
  return moved;
}

bool Proxy::links_are_ready(const Endpoint& asked) {
  bool ready = true;
  for (LinkMaker* maker : resources_.makers) {
    if (asked.link == LinkKind::automatic || asked.link == maker->kind()) ready &= maker->prepare(asked);
  }
  return ready;
}

/// False, with the reason as an errno, if listening at this address is not allowed.
bool Proxy::may_listen(const Endpoint& at, int& error) const {
  if (!at.is_plain_tcp() && !at.is_loopback() && resources_.secret.empty()) {
    log_error("refused to listen at " + at.host_port() +
              ": beyond loopback peers must share a secret; set GPUSOCK_SECRET on " +
              "all of them, or name link=tcp to serve anyone");
    error = EACCES;
    return false;
  }
  if (!has_link(at, "listen at")) {
    error = EPROTONOSUPPORT;
    return false;
  }
  if (at.ring_bytes > resources_.ring_bytes_max) {
    log_error("refused to listen at " + at.host_port() + ": no connection could have rings of " +
              std::to_string(at.ring_bytes) + " bytes, since this device's ring memory was set up for " +
              std::to_string(resources_.ring_bytes_max) + "; raise Options::ring_bytes");
    error = ENOBUFS;
    return false;
  }
  return true;
}

/// False, and logged, if this context does not have the link that the endpoint names.
bool Proxy::has_link(const Endpoint& at, const char* doing) const {
  if (resources_.has(at.link)) return true;
  log_error("refused to " + std::string(doing) + " " + at.host_port() + ": this context has no link " +
            std::string(gpusock::to_string(at.link)) + "; gpusock-doctor says why");
  return false;
}

namespace {

/// How many connections the system keeps beside those in the backlog. The largest backlog gets as many as the system
/// allows: it reduces larger numbers to that (net.core.somaxconn).
int system_queue(int backlog) { return backlog < table::kBacklogMax ? backlog : std::numeric_limits<int>::max(); }

}  // namespace

/// Listens at the first address of the endpoint that this host has. Any other error ends the attempt: if the first
/// address is busy, clients reach the other server there, and not this one at a later address.
std::unique_ptr<Acceptor> Proxy::listen(const table::OpenRequest& request, int& error) {
  error = EAFNOSUPPORT;
  for (int index = 0; index < request.endpoint.addresses(); ++index) {
    const Endpoint at = request.endpoint.at_address(index);
    if (!may_listen(at, error)) return nullptr;
    if (auto acceptor = network_.listen(at, system_queue(request.backlog), error)) return acceptor;
    log_info("listening at " + at.host_port() + ": " + describe_errno(error));
    if (error != EADDRNOTAVAIL && error != EAFNOSUPPORT) return nullptr;
  }
  return nullptr;
}

void Proxy::open_listener(std::uint32_t slot, const table::OpenRequest& request) {
  const Endpoint& at = request.endpoint;
  auto& queues = free_queues_[static_cast<int>(slots_.opener(slot))];
  int error = EMFILE;
  auto acceptor = queues.empty() ? nullptr : listen(request, error);
  if (acceptor == nullptr) {
    slots_.publish(slot, table::Phase::failed, error);
    return;
  }
  const std::uint32_t queue = queues.back();
  listeners_.push_back(std::make_unique<Listener>(slot, std::move(acceptor), request, queue));
  queues.pop_back();  // from here on nothing throws
  slots_[slot].listener = listeners_.back().get();
  table::SocketSetup& setup = slots_.view().setups[slot];
  setup = {};
  setup.local = listeners_.back()->local();
  setup.local.link = at.link;
  setup.local.type = at.type;
  setup.local.ring_bytes = at.ring_bytes;
  setup.accept_queue = queue;
  setup.accept_start = accept_queues_[queue].position();
  slots_.publish(slot, table::Phase::listening);
}

/// Takes back the connections that no caller has taken from a listener's queue. Callers have closed the listener, and
/// no call is in it any more (CallerSlot::generation_and_users), so no call takes another connection. The queue's next
/// listener skips what is left there.
void Proxy::take_back(Listener& listener, std::uint64_t now_ns) {
  for (std::uint32_t slot = table_.accepted(); slot < slots_.count(); ++slot) {
    if (accept_queue_of_[slot] != listener.slot()) continue;
    scan_requests(now_ns, slot);  // callers write the request of a connection that they took before the listener's
                                  // close
    if (accept_queue_of_[slot] != listener.slot()) continue;
    accept_queue_of_[slot] = kNone;
    if (Connection* connection = slots_[slot].connection) {
      connection->abandon();
      connection->request(table::kRequestClose, now_ns);
    } else {
      slots_.release(slot);
    }
  }
}

void Proxy::close_listener(Listener& listener) {
  for (const auto& connection : connections_) {
    if (connection->listener() == &listener) {
      const bool accepted = connection->has_slot() && accept_queue_of_[connection->slot()] != listener.slot();
      contain(*connection, [&] { connection->orphan(accepted); });
      activate(*connection);
    }
  }
  for (std::uint32_t& owner : accept_queue_of_) {
    if (owner == listener.slot()) owner = kNone;
  }
  free_queues_[static_cast<int>(slots_.opener(listener.slot()))].push_back(listener.queue());
  slots_[listener.slot()].listener = nullptr;
  std::erase_if(listeners_, [&](const auto& entry) { return entry.get() == &listener; });
}

bool Proxy::step_listeners(std::uint64_t now_ns) {
  bool moved = false;
  for (const auto& listener : listeners_) {
    // A connection for which there is no memory is closed, and the next one is taken later.
    moved |= contain(now_ns, [&] {
      bool any = false;
      while (auto stream = listener->try_accept()) {
        update_options(listener->slot());
        add(std::make_unique<Connection>(*this, *listener, std::move(stream), listener->asked(), listener->options(),
                                         detail::later_ns(now_ns, options_.handshake_timeout_ns)),
            now_ns);
        listener->add_pending();
        any = true;
      }
      return any;
    });
  }
  return moved;
}

/// Finds the connection that is to make room for others: the one with the smallest `since_ns(connection)`, where kNever
/// leaves a connection out. Returns it once `time_ns` have passed since then, and nullptr before that. It looks at no
/// connection before `look_again_ns`, which it updates.
template <class Since>
Connection* Proxy::find_overdue(Since since_ns, std::uint64_t time_ns, std::uint64_t& look_again_ns,
                                std::uint64_t now_ns) {
  Connection* first = nullptr;
  if (now_ns >= look_again_ns) {
    std::uint64_t first_ns = detail::kNever;
    for (const auto& connection : connections_) {
      const std::uint64_t its_ns = since_ns(*connection);
      if (its_ns >= first_ns) continue;
      first_ns = its_ns;
      first = connection.get();
    }
    look_again_ns = detail::later_ns(first != nullptr ? first_ns : now_ns, time_ns);
    if (look_again_ns > now_ns) first = nullptr;
  }
  return first;
}

/// Polls the network and counts for how long it has been watched. Only a small part of a time in which the proxy did
/// not run counts: the proxy has not read yet what clients sent meanwhile, and they have no answer yet.
void Proxy::poll_network(std::uint64_t now_ns) {
  if (now_ns > polled_ns_) {
    watched_ns_ += std::min(now_ns - polled_ns_, options_.watched_ns_max());
    polled_ns_ = now_ns;
  }
  network_.poll();
}

/// Unauthenticated clients that say nothing must not keep honest peers out: if a backlog is full, the oldest of them is
/// evicted once the proxy has watched it for as long as an honest peer needs.
void Proxy::make_room(Listener& listener, std::uint64_t now_ns) {
  if (!listener.keeps_waiting()) return;
  const auto since_ns = [&](const Connection& connection) {
    const bool keeps_out = connection.listener() == &listener && connection.is_unauthenticated();
    return keeps_out ? connection.came_watched_ns : detail::kNever;
  };
  if (Connection* oldest = find_overdue(since_ns, options_.unauthenticated_ns(), listener.look_again_ns, watched_ns_)) {
    oldest->evict();
    activate(*oldest);
  }
  const std::uint64_t left_ns = listener.look_again_ns - std::min(listener.look_again_ns, watched_ns_);
  due(detail::later_ns(now_ns, std::min(left_ns, options_.watched_ns_max())));
}

/// Notes an incoming connection that has agreed on a link.
void Proxy::wait_for_slot(Connection& connection) {
  if (connection.waits_for_slot) return;
  connection.waits_for_slot = true;
  const auto later = [](std::uint64_t order, const Connection* other) { return order < other->order; };
  slot_waiters_.insert(std::upper_bound(slot_waiters_.begin(), slot_waiters_.end(), connection.order, later),
                       &connection);
}

/// Gives the connections that have agreed on a link to their listeners' callers, in the order in which they came. If
/// all slots are taken, they wait, and so do their peers. A connection of plain TCP also waits if there is no ring
/// memory for it.
bool Proxy::hand_over(std::uint64_t now_ns) {
  std::size_t kept = 0;
  const std::size_t count = slot_waiters_.size();
  for (std::size_t i = 0; i < count; ++i) {
    Connection& connection = *slot_waiters_[i];
    if (connection.wants_slot()) {  // false: it has ended while it waited
      const bool no_rings = connection.waits_for_rings();
      const auto slot = no_rings ? std::nullopt : slots_.take_for_accept();
      if (!slot) {
        tell_of_wait(connection, no_rings, now_ns);
        cut_closing_short(now_ns);
        slot_waiters_[kept++] = &connection;
        continue;
      }
      accept_agreed(connection, *slot, now_ns);
    }
    connection.waits_for_slot = false;
  }
  slot_waiters_.erase(slot_waiters_.begin() + static_cast<std::ptrdiff_t>(kept),
                      slot_waiters_.begin() + static_cast<std::ptrdiff_t>(count));
  return kept != count;
}

/// A closed connection whose peer does not take what was sent must not keep its socket from others for the whole linger
/// time. While a client waits for a socket or its rings, the connection that was closed first is reset.
void Proxy::cut_closing_short(std::uint64_t now_ns) {
  const auto since_ns = [](const Connection& connection) { return connection.closing_since_ns(); };
  if (Connection* first = find_overdue(since_ns, kClosingMinNs, closing_look_ns_, now_ns)) {
    first->cut_closing_short();
    activate(*first);
  }
  due(closing_look_ns_);
}

void Proxy::accept_agreed(Connection& connection, std::uint32_t slot, std::uint64_t now_ns) {
  Listener& listener = *connection.listener();
  connection.give_slot(slot);
  slots_[slot].connection = &connection;
  slots_[slot].opened_ns = now_ns;
  accept_queue_of_[slot] = listener.slot();
  contain(connection, [&] { connection.step(now_ns); });
  if (connection.over()) {  // it could not be set up, and no caller knows it
    connection.take_slot_back();
    accept_queue_of_[slot] = kNone;
    slots_.release(slot);
    return;
  }
  accept_queues_[listener.queue()].push(slots_.handle(slot));
  poll_sets_.note_change(listener.slot(), slots_[listener.slot()].generation);
}

bool Proxy::step_active(std::uint64_t now_ns) {
  bool moved = false;
  const bool guess = active_.size() <= kGuessedReads;
  for (std::size_t i = 0; i < active_.size();) {
    Connection& connection = *active_[i];
    connection.before_read(guess);
    const bool progressed = contain(connection, [&] { return connection.step(now_ns); });
    if (!guess) connection.after_read();
    if (connection.wants_slot()) wait_for_slot(connection);
    if (connection.has_slot()) poll_sets_.look(connection.slot(), slots_[connection.slot()].generation);
    moved |= progressed;
    connection.idle_steps = progressed ? 0 : connection.idle_steps + 1;
    const bool rest = !connection.watches_memory() &&
                      (connection.idle_steps > kIdleSteps || (!progressed && !guess && connection.nothing_to_read()));
    if (connection.over() || (rest && !connection.wants_slot())) {
      active_[i] = active_.back();
      active_.pop_back();
      connection.active = false;
      if (connection.over()) {
        destroy(connection, now_ns);
      } else {
        set_resting(connection, true);
      }
    } else {
      ++i;
    }
  }
  return hand_over(now_ns) || moved;
}

void Proxy::expire(std::uint64_t now_ns) {
  if (now_ns < due_ns_) return;
  std::erase_if(retired_, [&](const Retired& entry) { return now_ns >= entry.until_ns; });
  due_ns_ = retired_.empty() ? detail::kNever : retired_.front().until_ns;
  if (retry_ns_ > now_ns) due(retry_ns_);
  for (const auto& connection : connections_) {
    if (now_ns >= connection->deadline_ns()) {
      activate(*connection);
    } else {
      due(connection->deadline_ns());
    }
  }
}

/// Adds a connection, with all the memory that its life will need. An exception leaves everything as it was.
Connection& Proxy::add(std::unique_ptr<Connection> connection, std::uint64_t now_ns) {
  const std::size_t count = connections_.size() + 1;
  if (active_.capacity() < count) active_.reserve(2 * count);
  if (slot_waiters_.capacity() < count) slot_waiters_.reserve(2 * count);
  std::list<Retired> node(1);
  connections_.push_back(std::move(connection));
  unretired_.splice(unretired_.end(), node);
  Connection& added = *connections_.back();
  added.list_entry = std::prev(connections_.end());
  added.order = ++connections_added_;
  added.came_ns = now_ns;
  added.came_watched_ns = watched_ns_;
  due(added.deadline_ns());
  activate(added);
  return added;
}

void Proxy::destroy(Connection& connection, std::uint64_t now_ns) {
  add_traffic(stats_, connection);
  if (connection.waits_for_slot) std::erase(slot_waiters_, &connection);
  if (!connection.has_slot() && connection.listener() != nullptr) connection.listener()->remove_pending();
  if (connection.has_slot()) {
    slots_[connection.slot()].connection = nullptr;
    if (connection.closed()) slots_.release(connection.slot());
  }
  retire(connection.take_segment(), now_ns);
  connections_.erase(connection.list_entry);
}

void Proxy::retire(std::shared_ptr<Segment> segment, std::uint64_t now_ns) noexcept {
  if (segment == nullptr || segment->is_kept()) {
    unretired_.pop_front();
    return;
  }
  unretired_.front() = {std::move(segment), detail::later_ns(now_ns, kRetireNs)};
  retired_.splice(retired_.end(), unretired_, unretired_.begin());
  due(retired_.back().until_ns);
}

bool Proxy::waits_for_credit() const {
  return poll_sets_.waits_for_callers() ||
         std::any_of(connections_.begin(), connections_.end(),
                     [](const auto& connection) { return connection->waits_for_credit(); });
}

bool Proxy::wants_polling() const {
  return std::any_of(resources_.makers.begin(), resources_.makers.end(),
                     [](const LinkMaker* maker) { return maker->wants_polling(); }) ||
         std::any_of(active_.begin(), active_.end(),
                     [](const Connection* connection) { return connection->watches_memory(); });
}

bool Proxy::awaits_answer(std::uint64_t now_ns) const {
  return std::any_of(active_.begin(), active_.end(),
                     [now_ns](const Connection* connection) { return connection->awaits_answer(now_ns); });
}

void Proxy::close_all(std::uint64_t now_ns) {
  unready_.clear();
  while (!listeners_.empty()) close_listener(*listeners_.front());
  for (const auto& connection : connections_) {
    request(*connection, table::kRequestClose, now_ns);
  }
}

void Proxy::activate(Connection& connection) {
  connection.idle_steps = 0;
  if (connection.active) return;
  connection.active = true;
  set_resting(connection, false);
  active_.push_back(&connection);  // add() has made room
}

void Proxy::add_traffic(ProxyStats& stats, const Connection& connection) const {
  if (connection.link() == nullptr) return;
  const Link::Traffic traffic = connection.link()->traffic();
  Link::Traffic& all = stats.traffic[static_cast<std::size_t>(connection.link_kind())];
  all.tx_bytes += traffic.tx_bytes;
  all.rx_bytes += traffic.rx_bytes;
}

ProxyStats Proxy::stats() const {
  ProxyStats all = stats_;
  for (const auto& connection : connections_) add_traffic(all, *connection);
  return all;
}

}  // namespace gpusock::proxy
