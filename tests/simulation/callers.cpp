// What callers do in a run, and what they check of each call.
#include "tests/simulation/run.hpp"

#include <algorithm>
#include <cstring>
#include <exception>
#include <functional>
#include <vector>

namespace gpusock::sim {
namespace {

/// How late a call may return: its last look may lie so long before.
constexpr std::uint64_t kLateNs = 3'000'000;
/// What a connection takes at most: over the slowest network and by the last of the links, when a full backlog has
/// twice not answered (TCP asks again after 1 s, and 2 s later).
constexpr std::uint64_t kConnectNs = 500'000'000 + 3'000'000'000;
/// Deadline of calls of which it is not known, where they fail, how far they came; only where nothing breaks.
constexpr std::uint64_t kLongNs = 900'000'000'000;
/// After the last fault: TCP gives up within 51 s, once the link has asked it to deliver something.
constexpr std::uint64_t kToldNs = 200'000'000'000;
constexpr std::uint64_t kHeaderBytes = 16;

/// Listeners of a process, where a planned connection needs them.
enum Kind { kPlain, kStreams, kRecords, kKinds };
int kind_of(const PlannedConnection& connection) {
  return connection.link == LinkKind::tcp ? kPlain : connection.records ? kRecords : kStreams;
}

std::uint64_t word_at(std::uint64_t salt, std::uint64_t index) { return Random(salt ^ index * 0xd6e8feb86659fd93u)(); }

void fill(std::byte* into, std::uint64_t salt, std::uint64_t offset, std::uint64_t bytes) {
  for (std::uint64_t i = 0; i < bytes;) {
    const std::uint64_t word = word_at(salt, (offset + i) / 8);
    for (std::uint64_t part = (offset + i) % 8; part < 8 && i < bytes; ++part)
      into[i++] = static_cast<std::byte>(word >> 8 * part);
  }
}

/// A stream's bytes: on the way from the client they begin with the attempt's number, twice.
void fill_stream(std::byte* into, const Way& way, std::uint64_t attempt, bool named, std::uint64_t offset,
                 std::uint64_t bytes) {
  fill(into, way.salt, offset, bytes);
  const std::uint64_t name[2] = {attempt, ~attempt};
  if (named && offset < kHeaderBytes) {
    std::memcpy(into, reinterpret_cast<const std::byte*>(name) + offset, std::min(bytes, kHeaderBytes - offset));
  }
}

struct RecordName {
  std::uint32_t attempt;
  std::uint32_t sender;
  std::uint32_t sequence;
  std::uint32_t bytes;
};
static_assert(sizeof(RecordName) == kHeaderBytes);

void fill_record(std::byte* into, const Way& way, const RecordName& name) {
  std::memcpy(into, &name, sizeof name);
  fill(into + kHeaderBytes, way.salt + name.sender, std::uint64_t{name.sequence} << 20, name.bytes - kHeaderBytes);
}

}  // namespace

/// How long a caller tries again where something may be broken; where nothing is, for ever.
struct Run::Patience {
  explicit Patience(Run& the_run) : run(the_run), until_ns(the_run.schedule_.now_ns() + 3'000'000'000) {}
  bool over() const { return run.plan_.faulty() && run.schedule_.now_ns() > std::max(until_ns, run.last_fault_ns_); }
  void use() {  // it went on
    until_ns = run.schedule_.now_ns() + 3'000'000'000;
    pause_ns = 5'000;
  }
  /// Before it is tried again: the longer, the more often it was in vain.
  void pause() { run.schedule_.sleep(pause_ns = std::min<std::uint64_t>(2 * pause_ns, 20'000'000)); }
  Run& run;
  std::uint64_t until_ns;
  std::uint64_t pause_ns = 5'000;
};

/// A poll set with the socket of one receiver; some have none. By the attempt's number, and not at random: so other
/// callers do what they did before there were sets.
class Run::OwnSet {
 public:
  explicit OwnSet(const End& end) : end_(end), edge_(end.attempt.number % 2 == 0) {
    const Net& net = end.node.net();
    if ((end.attempt.number / 2 + static_cast<std::uint64_t>(end.side)) % 3 != 0) set_ = net.open_set(this_thread());
    if (set_ < 0) return;
    const int events = edge_ ? kPollIn | kPollEdge : int{kPollIn};
    watches_ = net.watch(this_thread(), set_, end.socket, events, end.attempt.number) == 0;
  }
  ~OwnSet() {
    if (std::uncaught_exceptions() != 0) return;  // its process was killed
    if (set_ >= 0 && end_.node.net().close_set(this_thread(), set_) != 0) end_.run.fail("closing a poll set failed");
  }
  OwnSet(const OwnSet&) = delete;
  OwnSet& operator=(const OwnSet&) = delete;

  bool watches() const { return watches_; }
  bool edge() const { return edge_; }
  std::int64_t wait(Deadline deadline) const {
    PollEvent event;
    const int count = end_.node.net().wait(this_thread(), set_, &event, 1, deadline);
    if (count == 1 && (event.socket != end_.socket || event.tag != end_.attempt.number))
      end_.run.fail("a poll set returned what it does not watch");
    return count;
  }

 private:
  End end_;
  bool edge_;
  PollSet set_ = -1;
  bool watches_ = false;
};

/// Makes a call that may take this long, and checks that it does not take longer.
template <class Call>
std::int64_t Run::timed(Node& node, const char* what, std::uint64_t duration_ns, Call call) {
  const std::uint64_t start_ns = schedule_.now_ns();
  const auto result = static_cast<std::int64_t>(call(Deadline::after_ns(duration_ns)));
  const std::uint64_t end_ns = schedule_.now_ns();
  if (verbose_) tell(std::string(what) + " = " + std::to_string(result));
  if (end_ns - start_ns > duration_ns + kLateNs) {
    fail(std::string(what) + " returned " + std::to_string(end_ns - start_ns - duration_ns) +
         " ns behind its deadline");
  }
  if (node.canceled() && end_ns > std::max(start_ns, node.canceled_ns()) + kLateNs)
    fail(std::string(what) + " went on although its context had ended");
  if (result == -ETIMEDOUT && !plan_.faulty() && end_ns - start_ns < duration_ns && std::strcmp(what, "connect") != 0) {
    fail(std::string(what) + " timed out before its deadline");
  }
  return result;
}

bool Run::needs_listener(std::uint32_t place, int kind) const {
  return std::any_of(plan_.connections.begin(), plan_.connections.end(),
                     [&](const auto& connection) { return connection.server == place && kind_of(connection) == kind; });
}

Endpoint Run::endpoint_of(std::uint32_t place, int kind, LinkKind link, bool by_loopback) const {
  Endpoint endpoint;
  endpoint.family = 4;
  const std::uint32_t ip = by_loopback ? htonl(0x7f000001) : kernel_.hosts[plan_.processes[place].host].ip;
  std::memcpy(endpoint.address, &ip, sizeof ip);
  endpoint.port = static_cast<std::uint16_t>(5000 + place * kKinds + static_cast<std::uint32_t>(kind));
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

void Run::listen_and_serve(std::uint32_t place, int kind) {
  constexpr int kSessionsMax = 10;  // then it stays, for who takes longer than all of them
  bool again = true;
  for (int session = 0; again; ++session) {
    const Socket listener = listen(place, kind);
    if (listener < 0) return;
    places_[place].listening[kind] = true;
    again = accept_some(place, kind, listener, is_hasty(place) && session < kSessionsMax);
    places_[place].listening[kind] = false;
    const int result = places_[place].node->net().close(this_thread(), listener);
    if (result != 0) fail("closing a listener gave " + std::to_string(result));
  }
}

Socket Run::listen(std::uint32_t place, int kind) {
  Node& node = *places_[place].node;
  const Endpoint at = endpoint_of(place, kind, kind == kPlain ? LinkKind::tcp : LinkKind::automatic, false);
  for (;;) {
    const auto listener = static_cast<Socket>(timed(node, "listen", 1'000'000'000, [&](Deadline deadline) {
      return node.net().listen(this_thread(), at, plan_.backlog, deadline);
    }));
    if (listener >= 0 || listener == -ECANCELED || visitors_ == 0) return listener;
    // A listener that was just closed may still hold the port, and others all sockets.
    const bool busy = listener == -EMFILE || (listener == -EADDRINUSE && is_hasty(place));
    if (!busy && !plan_.faulty()) fail("listen gave " + std::to_string(listener));
    schedule_.sleep(1'000'000);
  }
}

/// True where there is to be another listener.
bool Run::accept_some(std::uint32_t place, int kind, Socket listener, bool hasty) {
  constexpr std::uint64_t kWaitNs = 50'000, kHastyWaitNs = 5'000'000;
  Node& node = *places_[place].node;
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
      script("server", place, [this, place, socket, kind] { handle(place, socket, kind == kRecords); });
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
void Run::handle(std::uint32_t place, Socket socket, bool records) {
  Node& node = *places_[place].node;
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
      plan_.connections[attempts_[number].planned].server != place) {
    return fail("the first bytes of a connection are of none, or of another");
  }
  Attempt& attempt = attempts_[number];
  attempt.met = true;
  const End end{*this, node, socket, attempt, plan_.connections[attempt.planned], 1, place};
  Flow* flow = check(end, buffer.data(), static_cast<std::uint64_t>(result));
  if (flow == nullptr) return;
  consume(end, *flow, static_cast<std::uint64_t>(result));
  converse(end);
}

// --- the connecting side

void Run::visit(std::uint32_t planned) {
  const PlannedConnection& connection = plan_.connections[planned];
  schedule_.sleep(connection.start_ns);
  Node& node = *places_[connection.client].node;
  if (connection.knocks_first) knock(node, connection);
  for (int time = 0; time < connection.times; ++time) {
    std::uint64_t deadline_ns = connection.deadline_ns;
    for (Patience patience(*this);; deadline_ns = std::min<std::uint64_t>(2 * deadline_ns, 10'000'000'000)) {
      if (patience.over() || !problem_.empty() || node.canceled()) return;
      if (places_[connection.server].listening[kind_of(connection)] && try_visit(planned, deadline_ns)) break;
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
  Node& node = *places_[connection.client].node;
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
  script(end.side == 0 ? "client's receiver" : "server's receiver", end.place, [end, busy, all_is_sent, this] {
    receive_all(end, *all_is_sent);
    --*busy;
  });
  if (end.planned.endings[end.side] == Ending::midway) {
    script("somebody else", end.place, [end, this] {
      schedule_.sleep(end.planned.midway_ns);
      const int result = close(end);
      if (result != 0) fail("close gave " + std::to_string(result));
    });
  }
  const auto senders = std::make_shared<int>(0);
  if (end.planned.records) {
    for (int sender = 1; sender < end.planned_out().senders; ++sender) {
      ++*senders;
      script("another sender", end.place, [end, sender, senders, this] {
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

void Run::send_stream(const End& end) {
  const PlannedWay& planned = end.planned_out();
  Flow& flow = end.out().flows[0];
  const std::uint64_t total = planned.bytes + (end.side == 0 ? kHeaderBytes : 0);
  Patience patience(*this);
  Random& random = schedule_.random();
  while (flow.sent < total && problem_.empty()) {
    const std::uint64_t bytes = std::min(total - flow.sent, 1 + random.below(planned.piece_bytes));
    const Manner manner = random.percent(80) ? planned.sending : static_cast<Manner>(random.below(4));
    const std::int64_t result = send_piece(end, manner, flow.sent, bytes, flow.sent + bytes == total);
    if (result > static_cast<std::int64_t>(bytes)) return fail("send gave more than it was asked");
    if (result > 0) {
      flow.sent += static_cast<std::uint64_t>(result);
      patience.use();
      if (random.one_in(8))
        schedule_.sleep(random.magnitude(1'000, 1'000'000'000));  // what the proxy was not told of it does not hear of
                                                                  // soon
    } else if ((result == -ETIMEDOUT && manner != Manner::whole) || result == -EAGAIN) {
      if (result == -ETIMEDOUT) check_not_over(end, "send");
      if (patience.over() && !must_be_told_of_loss(end)) return;
      patience.pause();
    } else {
      may_end(end, "send", result);
      return;
    }
  }
  end.out().all_sent = flow.sent == total;
}

std::int64_t Run::send_piece(const End& end, Manner manner, std::uint64_t offset, std::uint64_t bytes, bool last) {
  const Net& net = end.node.net();
  const std::uint64_t attempt = end.attempt.number;
  Flow& flow = end.out().flows[0];
  const std::uint64_t deadline_ns = end.planned.deadline_ns;
  if (manner == Manner::zero_copy) {
    Span span;
    timed(end.node, "reserve", deadline_ns,
          [&](Deadline deadline) { return (span = net.reserve(this_thread(), end.socket, bytes, deadline)).size; });
    if (span.size <= 0) return span.size;
    const std::uint64_t part = std::min<std::uint64_t>(bytes, static_cast<std::uint64_t>(span.size));
    flow.offered = offset + part;
    fill_stream(static_cast<std::byte*>(span.data), end.out(), attempt, end.side == 0, offset, part);
    schedule_.may_turn();
    const int result = net.commit(this_thread(), end.socket, part);
    return result == 0 ? static_cast<std::int64_t>(part) : result;
  }
  std::vector<std::byte> data(bytes);
  fill_stream(data.data(), end.out(), attempt, end.side == 0, offset, bytes);
  int flags = !last && plan_.holds_back && schedule_.random().one_in(4) ? kMore : 0;
  if (manner == Manner::polled) {
    PollEntry entry{end.socket, kPollOut, 0};
    const auto count = timed(end.node, "poll", deadline_ns,
                             [&](Deadline deadline) { return net.poll(this_thread(), &entry, 1, deadline); });
    if (count <= 0) return count == 0 ? -ETIMEDOUT : count;
    flags |= kDontWait;
  }
  if (manner == Manner::whole) flags |= kWaitAll;
  flow.offered = offset + bytes;
  const std::uint64_t duration_ns = manner == Manner::whole && !plan_.faulty() ? kLongNs : deadline_ns;
  return timed(end.node, "send", duration_ns, [&](Deadline deadline) {
    return net.send(this_thread(), end.socket, data.data(), bytes, flags, deadline);
  });
}

void Run::send_records(const End& end, int sender) {
  const PlannedWay& planned = end.planned_out();
  Flow& flow = end.out().flows[sender];
  std::uint64_t left = planned.bytes / static_cast<std::uint64_t>(planned.senders);
  Patience patience(*this);
  Random& random = schedule_.random();
  bool first = end.side == 0 && sender == 0;
  while ((left != 0 || first) && problem_.empty()) {
    if (end.side == 0 && sender != 0 && end.out().flows[0].received == 0 && end.out().flows[0].sent == 0) {  // the
                                                                                                             // first
                                                                                                             // one says
                                                                                                             // who we
                                                                                                             // are
      if (end.attempt.failed || patience.over() || end.node.canceled()) return;
      schedule_.sleep(10'000);
      continue;
    }
    const std::uint64_t bytes = kHeaderBytes + (left == 0 ? 0 : std::min(left, random.below(planned.piece_bytes)));
    const std::int64_t result = send_record(end, sender, bytes);
    if (result > 0) {
      ++flow.sent;
      left -= std::min(left, bytes);
      first = false;
      patience.use();
    } else if (result == -ETIMEDOUT || result == -EAGAIN || (result == -EBUSY && planned.senders > 1)) {
      if (result == -ETIMEDOUT) check_not_over(end, "send of a record");
      if (patience.over()) return;
      patience.pause();
    } else if (result != 0) {
      may_end(end, "send of a record", result);
      return;
    }
  }
  if (planned.senders == 1) end.out().all_sent = true;
}

/// 0: it was thought better of.
std::int64_t Run::send_record(const End& end, int sender, std::uint64_t bytes) {
  const Net& net = end.node.net();
  Flow& flow = end.out().flows[sender];
  const RecordName name{static_cast<std::uint32_t>(end.attempt.number), static_cast<std::uint32_t>(sender),
                        static_cast<std::uint32_t>(flow.sent), static_cast<std::uint32_t>(bytes)};
  const std::uint64_t deadline_ns = end.planned.deadline_ns;
  if (schedule_.random().one_in(3)) {
    Span span;
    timed(end.node, "reserve", deadline_ns,
          [&](Deadline deadline) { return (span = net.reserve(this_thread(), end.socket, bytes + 8, deadline)).size; });
    if (span.size <= 0) return span.size;
    if (schedule_.random().one_in(5)) {
      std::memset(span.data, 0xee, bytes);
      schedule_.may_turn();
      const int result = net.abort(this_thread(), end.socket);
      if (result != 0) fail("abort gave " + std::to_string(result));
      return 0;
    }
    flow.offered = flow.sent + 1;
    fill_record(static_cast<std::byte*>(span.data), end.out(), name);
    schedule_.may_turn();
    const int result = net.commit(this_thread(), end.socket, bytes);
    return result == 0 ? 1 : result;
  }
  std::vector<std::byte> data(bytes);
  fill_record(data.data(), end.out(), name);
  flow.offered = flow.sent + 1;
  return timed(end.node, "send", deadline_ns,
               [&](Deadline deadline) { return net.send(this_thread(), end.socket, data.data(), bytes, 0, deadline); });
}

void Run::receive_all(const End& end, const bool& all_is_sent) {
  const PlannedWay& planned = end.planned_in();
  for (std::uint64_t pause_ns = 5'000; planned.read_late && !all_is_sent;) {
    schedule_.sleep(pause_ns);
    pause_ns = std::min<std::uint64_t>(2 * pause_ns, 2'000'000);
  }
  const OwnSet set(end);
  std::vector<std::byte> buffer(end.planned.records ? plan_.ring_bytes
                                                    : std::max(planned.piece_bytes, std::uint64_t{20'000}));
  Patience patience(*this);
  Random& random = schedule_.random();
  while (problem_.empty()) {
    if (planned.pause_ns != 0) schedule_.sleep(random.below(planned.pause_ns));
    const Manner manner = random.percent(80) ? planned.receiving : static_cast<Manner>(random.below(4));
    const std::uint64_t bytes = end.planned.records ? buffer.size() : 1 + random.below(planned.piece_bytes);
    const std::int64_t result = receive_piece(end, set, manner, buffer.data(), bytes);
    if (result > 0) {
      patience.use();
    } else if (result == 0) {
      end.in().end_seen = true;
      return;
    } else if (result == -ETIMEDOUT || result == -EAGAIN) {
      const bool copies = plan_.processes[end.place].device_rings;  // which may take long
      if (result == -ETIMEDOUT && !copies) check_not_over(end, "recv");
      if (patience.over()) return;
      patience.pause();
    } else {
      may_end(end, "recv", result);
      return;
    }
  }
}

bool Run::is_readable(const End& end) const {
  PollEntry entry{end.socket, kPollIn, 0};
  return end.node.net().poll(this_thread(), &entry, 1, Deadline::now()) == 1 && (entry.revents & kPollNval) == 0;
}

/// Waits until receiving would not wait, by poll or on the receiver's set.
std::int64_t Run::wait_readable(const End& end, const OwnSet& set) {
  constexpr std::uint64_t kSoonNs = 50'000'000;
  if (!set.watches()) {
    PollEntry entry{end.socket, kPollIn, 0};
    return timed(end.node, "poll", end.planned.deadline_ns,
                 [&](Deadline deadline) { return end.node.net().poll(this_thread(), &entry, 1, deadline); });
  }
  if (set.edge() && is_readable(end)) return 1;  // what is left of an event is not an event again
  std::int64_t count = timed(end.node, "wait", end.planned.deadline_ns,
                             [&](Deadline deadline) { return set.wait(deadline); });
  if (count != 0 || plan_.faulty() || !is_readable(end)) return count;
  count = timed(end.node, "wait", kSoonNs, [&](Deadline deadline) { return set.wait(deadline); });
  if (count == 0 && is_readable(end)) fail("a poll set does not return a socket that has an event");
  return count;
}

std::int64_t Run::receive_piece(const End& end, const OwnSet& set, Manner manner, std::byte* buffer,
                                std::uint64_t bytes) {
  const Net& net = end.node.net();
  const std::uint64_t deadline_ns = end.planned.deadline_ns;
  if (manner == Manner::zero_copy) {
    Span span;
    timed(end.node, "peek", deadline_ns,
          [&](Deadline deadline) { return (span = net.peek(this_thread(), end.socket, bytes, deadline)).size; });
    if (span.size <= 0) return span.size;
    const auto there = static_cast<std::uint64_t>(span.size);
    const std::uint64_t part = end.planned.records ? there : 1 + schedule_.random().below(there);
    schedule_.may_turn();
    Flow* flow = check(end, static_cast<const std::byte*>(span.data), part);  // also where it is closed meanwhile
    if (flow == nullptr) return -ECANCELED;
    const int result = net.release(this_thread(), end.socket, part);
    if (result == 0) consume(end, *flow, part);
    return result == 0 ? static_cast<std::int64_t>(part) : result;
  }
  int flags = 0;
  if (manner == Manner::polled) {
    const std::int64_t count = wait_readable(end, set);
    if (count <= 0) return count == 0 ? -ETIMEDOUT : count;
    flags = kDontWait;
  }
  if (manner == Manner::whole && !end.planned.records) {
    flags |= kWaitAll;
    bytes = std::min(bytes, plan_.ring_bytes);
  }
  if (schedule_.random().one_in(16)) {
    const auto seen = timed(end.node, "recv (peek)", deadline_ns, [&](Deadline deadline) {
      return net.recv(this_thread(), end.socket, buffer, bytes, flags | kPeek, deadline);
    });
    if (seen > 0 && check(end, buffer, static_cast<std::uint64_t>(seen)) == nullptr) return -ECANCELED;
  }
  const auto count = timed(end.node, "recv", deadline_ns, [&](Deadline deadline) {
    return net.recv(this_thread(), end.socket, buffer, bytes, flags, deadline);
  });
  if (count > static_cast<std::int64_t>(bytes)) {
    fail("recv gave more than it was asked");
    return -ECANCELED;
  }
  if (count <= 0) return count;
  Flow* flow = check(end, buffer, static_cast<std::uint64_t>(count));
  if (flow == nullptr) return -ECANCELED;
  consume(end, *flow, static_cast<std::uint64_t>(count));
  return count;
}

/// Checks what has arrived: the flow that it belongs to, or nullptr where it is wrong.
Flow* Run::check(const End& end, const std::byte* data, std::uint64_t bytes) {
  static std::vector<std::byte> expected;
  expected.resize(std::max<std::size_t>(expected.size(), bytes));
  Way& way = end.in();
  Flow* flow = &way.flows[0];
  if (end.planned.records) {
    RecordName name{};
    std::memcpy(&name, data, std::min(bytes, kHeaderBytes));
    if (bytes < kHeaderBytes || name.attempt != end.attempt.number || name.sender >= kSendersMax ||
        name.bytes != bytes) {
      fail("a record that nobody sent");
      return nullptr;
    }
    flow = &way.flows[name.sender];
    if (name.sequence != flow->received) {
      fail("record " + std::to_string(name.sequence) + " of sender " + std::to_string(name.sender) + " where " +
           std::to_string(flow->received) + " was due");
      return nullptr;
    }
    fill_record(expected.data(), way, name);
  } else {
    fill_stream(expected.data(), way, end.attempt.number, end.side == 1, flow->received, bytes);
  }
  if (flow->received + (end.planned.records ? 1 : bytes) > flow->offered) {
    fail("more arrived than was sent");
    return nullptr;
  }
  if (std::memcmp(data, expected.data(), bytes) != 0) {
    fail("other bytes arrived than were sent, behind " + std::to_string(flow->received));
    return nullptr;
  }
  return flow;
}

void Run::consume(const End& end, Flow& flow, std::uint64_t bytes) {
  flow.received += end.planned.records ? 1 : bytes;
  bytes_ += bytes;
}

}  // namespace gpusock::sim
