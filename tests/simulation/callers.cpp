// What callers do in a run to open, accept and close connections, and what they check of each call.
#include "tests/simulation/calls.hpp"

#include <functional>
#include <vector>

namespace gpusock::sim {
namespace {

/// Listeners of a process, where a planned connection needs them.
enum Kind { kPlain, kStreams, kRecords, kKinds };
int kind_of(const PlannedConnection& connection) {
  return connection.link == LinkKind::tcp ? kPlain : connection.records ? kRecords : kStreams;
}

}  // namespace

bool Run::needs_listener(std::uint32_t process_index, int kind) const {
  return std::any_of(plan_.connections.begin(), plan_.connections.end(), [&](const auto& connection) {
    return connection.server == process_index && kind_of(connection) == kind;
  });
}

Endpoint Run::endpoint_of(std::uint32_t process_index, int kind, LinkKind link, bool by_loopback) const {
  Endpoint endpoint;
  endpoint.family = 4;
  const std::uint32_t ip = by_loopback ? htonl(0x7f000001) : kernel_.hosts[plan_.processes[process_index].host].ip;
  std::memcpy(endpoint.address, &ip, sizeof ip);
  endpoint.port = static_cast<std::uint16_t>(5000 + process_index * kKinds + static_cast<std::uint32_t>(kind));
  endpoint.link = link;
  endpoint.type = kind == kRecords ? SocketType::seqpacket : SocketType::stream;
  return endpoint;
}

/// What a client connects to. Some servers' names have an address before the right one where nobody takes connections:
/// one of the client's own host, which may also connect the socket to itself, or one to which no way leads.
Endpoint Run::name_of(const PlannedConnection& connection) const {
  Endpoint name = endpoint_of(connection.server, kind_of(connection), connection.link, connection.by_loopback);
  if (!connection.knocks_first) return name;
  const bool same_host = plan_.processes[connection.client].host == plan_.processes[connection.server].host;
  const std::uint32_t wrong = htonl(same_host ? 0x0affffff : 0x7f000001);
  name.further[0].family = 4;
  std::memcpy(name.further[0].address, name.address, sizeof name.address);
  std::memcpy(name.address, &wrong, sizeof wrong);
  return name;
}

// --- the listening side

void Run::listen_and_serve(std::uint32_t process_index, int kind) {
  constexpr int kSessionsMax = 10;  // then it stays, for who takes longer than all of them
  bool again = true;
  for (int session = 0; again; ++session) {
    const Socket listener = listen(process_index, kind);
    if (listener < 0) return;
    processes_[process_index].listening[kind] = true;
    again = accept_some(process_index, kind, listener, is_hasty(process_index) && session < kSessionsMax);
    processes_[process_index].listening[kind] = false;
    const int result = processes_[process_index].node->net().close(this_thread(), listener);
    if (result != 0) fail("closing a listener gave " + std::to_string(result));
  }
}

Socket Run::listen(std::uint32_t process_index, int kind) {
  Node& node = *processes_[process_index].node;
  const Endpoint at = endpoint_of(process_index, kind, kind == kPlain ? LinkKind::tcp : LinkKind::automatic, false);
  for (;;) {
    const auto listener = static_cast<Socket>(timed(node, "listen", 1'000'000'000, [&](Deadline deadline) {
      return node.net().listen(this_thread(), at, plan_.backlog, deadline);
    }));
    if (listener >= 0 || listener == -ECANCELED || visitors_ == 0) return listener;
    // A listener that was just closed may still hold the port, and others all sockets.
    const bool busy = listener == -EMFILE || (listener == -EADDRINUSE && is_hasty(process_index));
    if (!busy && !plan_.faulty()) fail("listen gave " + std::to_string(listener));
    schedule_.sleep(1'000'000);
  }
}

/// True where there is to be another listener.
bool Run::accept_some(std::uint32_t process_index, int kind, Socket listener, bool hasty) {
  constexpr std::uint64_t kWaitNs = 50'000, kHastyWaitNs = 5'000'000;
  Node& node = *processes_[process_index].node;
  std::uint64_t left = hasty ? schedule_.random().below(6) : ~std::uint64_t{0};
  std::uint64_t wait_ns = hasty ? kHastyWaitNs : kWaitNs;
  bool last_call = false;
  while ((visitors_ != 0 || !last_call) && problem_.empty()) {
    if (visitors_ == 0) {  // who has come, and left, before we accepted
      last_call = true;
      wait_ns = 500'000'000;
    }
    if (left-- == 0) return visitors_ != 0;
    const auto socket = static_cast<Socket>(timed(node, "accept", wait_ns, [&](Deadline deadline) {
      return node.net().accept(this_thread(), listener, deadline);
    }));
    if (socket >= 0) {
      wait_ns = hasty ? kHastyWaitNs : kWaitNs;
      last_call = false;
      script("server", process_index,
             [this, process_index, socket, kind] { handle(process_index, socket, kind == kRecords); });
    } else if (socket == -ETIMEDOUT) {
      wait_ns = std::min<std::uint64_t>(2 * wait_ns, 100'000'000);
    } else {
      if (socket != -ECANCELED) fail("accept gave " + std::to_string(socket));
      return false;
    }
  }
  return false;
}

/// A connection that was accepted says which one it is.
void Run::handle(std::uint32_t process_index, Socket socket, bool records) {
  Node& node = *processes_[process_index].node;
  std::vector<std::byte> buffer(plan_.ring_bytes);
  std::int64_t result = -ETIMEDOUT;
  for (Patience patience(*this); result == -ETIMEDOUT && !patience.over(); patience.pause()) {
    result = timed(node, "recv (name)", plan_.faulty() ? 50'000'000 : kLongNs, [&](Deadline deadline) {
      return node.net().recv(this_thread(), socket, buffer.data(), records ? buffer.size() : kHeaderBytes, kWaitAll,
                             deadline);
    });
  }
  std::uint64_t number = attempts_.size();
  RecordName name{};
  std::memcpy(&name, buffer.data(), sizeof name);
  if (result >= static_cast<std::int64_t>(kHeaderBytes)) number = name.attempt;
  if (result < static_cast<std::int64_t>(kHeaderBytes) || !problem_.empty()) {  // a visitor who gave up
    if (result == -EPROTO || result == -EINVAL || result == -EBUSY)
      fail("the first recv gave " + std::to_string(result));
    node.net().close(this_thread(), socket);
    return;
  }
  if (number >= attempts_.size() || attempts_[number].met ||
      plan_.connections[attempts_[number].planned].server != process_index) {
    return fail("the first bytes of a connection are of none, or of another");
  }
  Attempt& attempt = attempts_[number];
  attempt.met = true;
  const End end{*this, node, socket, attempt, plan_.connections[attempt.planned], 1, process_index};
  Flow* flow = check(end, buffer.data(), static_cast<std::uint64_t>(result));
  if (flow == nullptr) return;
  consume(end, *flow, static_cast<std::uint64_t>(result));
  converse(end);
}

// --- the connecting side

void Run::visit(std::uint32_t planned) {
  const PlannedConnection& connection = plan_.connections[planned];
  schedule_.sleep(connection.start_ns);
  Node& node = *processes_[connection.client].node;
  if (connection.knocks_first) knock(node, connection);
  for (int time = 0; time < connection.times; ++time) {
    std::uint64_t deadline_ns = connection.deadline_ns;
    for (Patience patience(*this);; deadline_ns = std::min<std::uint64_t>(2 * deadline_ns, 10'000'000'000)) {
      if (patience.over() || !problem_.empty() || node.canceled()) return;
      if (processes_[connection.server].listening[kind_of(connection)] && try_visit(planned, deadline_ns)) break;
      patience.pause();
    }
  }
}

/// Where nobody listens, that is what a caller hears.
void Run::knock(Node& node, const PlannedConnection& connection) {
  Endpoint nowhere = name_of(connection);
  nowhere.port = 4999;
  std::int64_t result = -EMFILE;
  while (result == -EMFILE && problem_.empty()) {
    schedule_.sleep(50'000);
    result = timed(node, "connect (to nobody)", 20'000'000'000,
                   [&](Deadline deadline) { return node.net().connect(this_thread(), nowhere, deadline); });
  }
  if (result != -ECONNREFUSED && !plan_.faulty())
    fail("connecting to where nobody listens gave " + std::to_string(result));
}

/// Where nothing breaks and there is room for all, who connects for the first time has a connection before this.
std::uint64_t Run::connect_ns() const {
  const bool undisturbed = !plan_.faulty() && plan_.wire.loss_percent == 0 && plan_.connections.size() <= 2;
  return undisturbed ? plan_.fabric_answers_ns + kConnectNs : Schedule::kNever;
}

/// Where nothing breaks, processes of one host share memory unless another link was asked for.
void Run::check_link(const End& end) {
  const bool together = plan_.processes[end.planned.client].host == plan_.processes[end.planned.server].host;
  if (plan_.faulty() || !together || end.planned.link != LinkKind::automatic) return;
  SocketStats stats;
  if (end.node.net().stats(end.socket, stats) == 0 && stats.link != LinkKind::p2p) {
    fail("auto took " + std::string(to_string(stats.link)) + " within one host");
  }
}

/// True where there was a connection, or there is to be none.
bool Run::try_visit(std::uint32_t planned, std::uint64_t deadline_ns) {
  const PlannedConnection& connection = plan_.connections[planned];
  Node& node = *processes_[connection.client].node;
  Attempt& attempt = attempts_.emplace_back();
  attempt.number = attempts_.size() - 1;
  attempt.planned = planned;
  for (Way& way : attempt.ways) way.salt = schedule_.random()();
  const Endpoint to = name_of(connection);
  const auto socket = static_cast<Socket>(timed(node, "connect", deadline_ns, [&](Deadline deadline) {
    return node.net().connect(this_thread(), to, deadline);
  }));
  if (socket == -ECANCELED) return true;
  if (socket < 0) {
    // Where packets are lost an honest peer may take as long as an unauthenticated client, which a full backlog evicts
    // (Proxy::make_room).
    const bool sent_away = socket == -ECONNRESET && plan_.wire.loss_percent != 0;
    if (socket == -ETIMEDOUT && deadline_ns == connection.deadline_ns && deadline_ns > connect_ns())
      fail("connect took too long");
    const bool busy = socket == -EMFILE || socket == -ETIMEDOUT || sent_away;
    const bool broken = (plan_.faulty() || is_hasty(connection.server)) &&
                        (socket == -ECONNREFUSED || socket == -ECONNRESET || socket == -EHOSTUNREACH ||
                         socket == -ENOBUFS || (plan_.faulty() && socket == -ENOMEM) || is_shortage(socket));
    // The listener of a run without faults is open, but all of its process's sockets may be: then nobody closes in
    // order.
    if (!busy && !broken && !(plan_.faulty() && connection.link == LinkKind::fabric))
      fail("connect gave " + std::to_string(socket));
    return false;
  }
  const End end{*this, node, socket, attempt, connection, 0, connection.client};
  check_link(end);
  converse(end);
  return true;
}

// --- both

void Run::converse(const End& end) {
  const auto busy = std::make_shared<int>(1);
  const auto all_is_sent = std::make_shared<bool>(false);
  script(end.side == 0 ? "client's receiver" : "server's receiver", end.process_index, [end, busy, all_is_sent, this] {
    receive_all(end, *all_is_sent);
    --*busy;
  });
  if (end.planned.endings[end.side] == Ending::midway) {
    script("somebody else", end.process_index, [end, this] {
      schedule_.sleep(end.planned.midway_ns);
      if (schedule_.random().one_in(2)) await_unseen_input(end);
      const int result = close(end);
      if (result != 0) fail("close gave " + std::to_string(result));
    });
  }
  const auto senders = std::make_shared<int>(0);
  if (end.planned.records) {
    for (int sender = 1; sender < end.planned_out().senders; ++sender) {
      ++*senders;
      script("another sender", end.process_index, [end, sender, senders, this] {
        send_records(end, sender);
        --*senders;
      });
    }
    send_records(end, 0);
  } else {
    send_stream(end);
  }
  while (*senders != 0) schedule_.sleep(20'000);
  *all_is_sent = true;
  const Net& net = end.node.net();
  const Ending ending = end.planned.endings[end.side];
  if (ending == Ending::orderly) {
    const int result = net.shutdown(this_thread(), end.socket, Shutdown::write);
    if (result != 0) fail("shutdown gave " + std::to_string(result));
    for (std::uint64_t pause_ns = 1'000; *busy != 0; pause_ns = std::min<std::uint64_t>(2 * pause_ns, 2'000'000))
      schedule_.sleep(pause_ns);
  } else if (ending == Ending::reset) {
    net.setsockopt(this_thread(), end.socket, SocketOption::linger, 0);
  } else if (ending == Ending::midway) {
    return;
  }
  const int result = close(end);
  if (result != 0) fail("close gave " + std::to_string(result));
}

/// The operating system's end of this connection; nullptr where the socket is closed, or the connection gone.
std::shared_ptr<TcpSocket> Run::connection_of(const End& end) const {
  Endpoint local, remote;
  const Net& net = end.node.net();
  if (net.getsockname(end.socket, local) != 0 || net.getpeername(end.socket, remote) != 0) return nullptr;
  const auto address_of = [](const Endpoint& endpoint) {
    Address address{0, endpoint.port};
    std::memcpy(&address.ip, endpoint.address, sizeof address.ip);
    return address;
  };
  return kernel_.find(address_of(local), address_of(remote));
}

/// Waits a little for a moment that is rare otherwise: the operating system has input for this socket, and its proxy
/// has taken none of it yet.
void Run::await_unseen_input(const End& end) {
  constexpr int kLooks = 200;
  for (int look = 0; look < kLooks; ++look) {
    const auto connection = connection_of(end);
    if (connection == nullptr || (connection->bytes_there() != 0 && end.node.unread_bytes(end.socket) == 0)) return;
    schedule_.sleep(500);
  }
}

/// Closes the socket, and notes what has arrived there and is not received: on plain TCP the peer is to hear of that.
int Run::close(const End& end) {
  const auto connection = connection_of(end);
  if (connection != nullptr && end.planned.link == LinkKind::tcp) {
    end.attempt.received_at_close[end.side] = end.in().flows[0].received;
    end.attempt.unread_at_close[end.side] = connection->bytes_there() + end.node.unread_bytes(end.socket);
  }
  return end.node.net().close(this_thread(), end.socket);
}

/// A call has timed out: the connection must not have been gone, as its host's system knows, for longer than the proxy
/// needs to say so.
void Run::check_not_over(const End& end, const char* call) {
  const auto socket = connection_of(end);
  if (socket == nullptr || socket->over_since_ns() == Schedule::kNever) return;
  const std::uint64_t since_ns = std::max(socket->over_since_ns(), end.node.stalled_until_ns());
  if (schedule_.now_ns() > since_ns + kLateNs) fail(std::string(call) + " waited on a connection that was gone");
}

bool Run::is_shortage(std::int64_t result) const {
  return plan_.shortage && (result == -ENOMEM || result == -ENOBUFS || result == -ENFILE || result == -ENOSPC);
}

/// May this call end its way like that.
bool Run::may_end(const End& end, const char* call, std::int64_t result) {
  end.attempt.failed = true;
  if (result == -ETIMEDOUT && std::strncmp(call, "send", 4) == 0) check_not_over(end, call);
  const bool rude = end.planned.endings[0] != Ending::orderly || end.planned.endings[1] != Ending::orderly ||
                    is_hasty(end.planned.server);
  const bool read_shut_down = result == -EPIPE && std::strncmp(call, "send", 4) == 0;
  const bool broken = result == -ECONNRESET || read_shut_down || (result == -ETIMEDOUT && plan_.faulty()) ||
                      is_shortage(result);
  const bool ok = (result == -ECANCELED && end.node.canceled()) ||
                  (result == -EBADF && end.planned.endings[end.side] != Ending::orderly) ||
                  (broken && (rude || plan_.faulty())) ||
                  (result == -EPROTO && end.planned.records && end.attempt.broken[1 - end.side]);  // killed in a
                                                                                                   // record's middle
  if (!ok) fail(std::string(call) + " gave " + std::to_string(result));
  return ok;
}

/// True while a sender has to go on trying: its peer's process is gone, and its link has to find that out, also where
/// the host cannot say so and the fabric or the NIC does not.
bool Run::must_be_told_of_loss(const End& end) {
  SocketStats stats;
  if (!end.attempt.broken[1 - end.side] || end.node.net().stats(end.socket, stats) != 0) return false;
  if (stats.link != LinkKind::fabric && stats.link != LinkKind::verbs) return false;
  if (schedule_.now_ns() > last_fault_ns_ + kToldNs) fail("a sender is not told that its peer is gone");
  return problem_.empty();
}

}  // namespace gpusock::sim
