#include "param_sync/bootstrap/rendezvous.hpp"

#include "param_sync/bootstrap/rank_address.hpp"
#include "param_sync/bootstrap/rendezvous_messages.hpp"

#include "gpusock/greetings.cuh"

#include <algorithm>
#include <cstring>
#include <thread>

namespace param_sync::bootstrap {
namespace {

using gpusock::Deadline;
using gpusock::Endpoint;
using gpusock::kWaitAll;

constexpr std::uint64_t kGreetingNs = 5'000'000'000;  // longest time from a guest's connection to its greeting
constexpr std::uint64_t kFarewellNs = 1'000'000'000;  // longest wait for the end of a dead rank's connection
constexpr auto kRetry = std::chrono::milliseconds(10);

gpusock::Options options() {
  gpusock::Options options = gpusock::Options::from_env();
  options.p2p = false;  // not worth it for a few messages
  options.sockets_max = 4 * kRanksMax;
  options.connections_max = 2 * kRanksMax;  // guests, and other programs that connect
  options.observe.clear();
  return options;
}

/// Returns the address of `to` with the port and link of `endpoint`.
Endpoint moved(const Endpoint& endpoint, const Endpoint& to) {
  Endpoint result = to;
  result.port = endpoint.port;
  result.link = endpoint.link;
  return result;
}

Endpoint everywhere(const Endpoint& like) {
  Endpoint any;
  any.family = like.family;
  return any;
}

}  // namespace

Rendezvous::Rendezvous(std::string at, int rank, int size, std::uint64_t timeout_ns)
    : at_(std::move(at)), context_(options()), net_(context_.net()), deadline_(Deadline::after_ns(timeout_ns)) {
  rank_ = rank;
  size_ = size;
}

Rendezvous::Rendezvous(const Endpoint& at) : context_(options()), net_(context_.net()), deadline_(Deadline::now()) {
  socket_ = net_.listen(gpusock::this_thread(), at.with_link(gpusock::LinkKind::automatic), kRanksMax);
  at_ = at.host_port();
  if (socket_ < 0) fail_to_open("cannot wait for other ranks at " + at_, true, at);
  net_.getsockname(socket_, local_);
  at_ = local_.host_port();
}

void Rendezvous::host(int size, std::uint64_t timeout_ns) {
  size_ = size;
  deadline_ = Deadline::after_ns(timeout_ns);
}

void Rendezvous::interrupt() noexcept {
  interrupted_ = true;
  context_.cancel();
}

void Rendezvous::fail(std::int64_t error, const std::string& what) const {
  throw gpusock::Error(interrupted_ ? ECANCELED : static_cast<int>(-error), what);
}

void Rendezvous::fail_to_open(const std::string& what, bool listening, const Endpoint& at) const {
  throw MeetingFailure(interrupted_ ? ECANCELED : -socket_, what, listening, at);
}

/// Returns the address where ranks meet. Its name may be unknown until rank 0 runs (Kubernetes), so this tries until
/// the deadline.
Endpoint Rendezvous::look_up() const {
  while (true) {
    try {
      Endpoint at = parse_address(at_);
      at.link = gpusock::LinkKind::automatic;
      need_port(at, at_);
      if (at.is_loopback() || !context_.options().secret.empty()) return at;
      throw gpusock::Error(
          EACCES, "ranks that meet at " + at_ + " need a secret: set GPUSOCK_SECRET to the same text for all of them");
    } catch (const gpusock::Error& error) {
      if (interrupted_) throw gpusock::Error(ECANCELED, "looking up " + at_);
      if (error.code().value() != ENOENT || deadline_.passed()) throw;
    }
    std::this_thread::sleep_for(kRetry);
  }
}

Endpoint Rendezvous::where_to_listen() {
  if (socket_ < 0) rank_ == 0 ? open() : reach();
  // With a secret a rank listens on all its addresses: the name of rank 0's host may mean loopback on that host, and
  // only there.
  return context_.options().secret.empty() ? moved({}, local_) : everywhere(local_);
}

void Rendezvous::open() {
  local_ = look_up();
  const Endpoint at = context_.options().secret.empty() ? local_ : moved(local_, everywhere(local_));
  socket_ = net_.listen(gpusock::this_thread(), at, kRanksMax, deadline_);
  if (socket_ < 0) {
    fail_to_open(
        "rank 0 cannot wait for the other ranks at " + at_ + " (GPUSOCK_RENDEZVOUS=HOST:PORT names another address)",
        true, at);
  }
  // If the name has several addresses, this is the one that this host has.
  if (context_.options().secret.empty()) net_.getsockname(socket_, local_);
}

void Rendezvous::reach() {
  const Endpoint at = look_up();
  while (true) {
    socket_ = net_.connect(gpusock::this_thread(), at, deadline_);
    if (socket_ >= 0) break;
    const bool not_yet = socket_ == -ECONNREFUSED || socket_ == -ECONNRESET || socket_ == -EHOSTUNREACH ||
                         socket_ == -ENETUNREACH;
    if (!not_yet || interrupted_ || deadline_.passed()) {
      fail_to_open("rank " + std::to_string(rank_) + " cannot reach rank 0 at " + at_, false, at);
    }
    std::this_thread::sleep_for(kRetry);
  }
  net_.getsockname(socket_, local_);
}

std::vector<Endpoint> Rendezvous::exchange_addresses(const Endpoint& mine) {
  return rank_ == 0 ? introduce_guests(mine) : be_introduced(mine);
}

/// True if the guest's connection ends before `by`. A guest that lives sends nothing after its greeting.
bool Rendezvous::has_left(gpusock::Socket guest, Deadline by) const {
  char byte;
  const std::int64_t got = net_.recv(gpusock::this_thread(), guest, &byte, sizeof byte, 0, by);
  return got <= 0 && got != -EAGAIN && got != -ETIMEDOUT;
}

/// True if the guest is a rank of this run that was missing. Ignores other programs. An invalid greeting of a rank ends
/// the run. A rank that has died and was started again takes its rank back.
bool Rendezvous::take_guest(gpusock::Socket socket, const Greeting& greeting, std::vector<Guest>& guests) {
  const auto thread = gpusock::this_thread();
  if (greeting.magic != kRendezvousMagic) {
    net_.close(thread, socket);
    return false;
  }
  const gpusock::Socket before = can_be(greeting, size_) ? guests[greeting.rank].socket : -1;
  const bool replaces = before >= 0 && has_left(before, Deadline::after_ns(kFarewellNs));
  const bool twice = before >= 0 && !replaces;
  if (twice && has_left(socket, Deadline::now())) {  // a dead rank's greeting was read after that of its successor
    net_.close(thread, socket);
    return false;
  }
  if (twice || !can_be(greeting, size_)) {
    const Answer refusal;
    net_.send(thread, socket, &refusal, sizeof refusal, kWaitAll, deadline_);
    net_.close(thread, socket);
    fail(-EPROTO, "a rank came that says it is rank " + std::to_string(greeting.rank) + " of " +
                      std::to_string(greeting.size) + ", but this run has " + std::to_string(size_) + " ranks" +
                      (twice ? ", that rank already among them" : ""));
  }
  if (replaces) net_.close(thread, before);
  guests[greeting.rank] = {socket, {greeting.listens, {}}};
  Endpoint towards;
  if (local_.is_loopback() && net_.getsockname(socket, towards) == 0) local_ = towards;
  return !replaces;
}

void Rendezvous::receive_guests(std::vector<Guest>& guests) {
  gpusock::Greetings<Greeting> greetings(net_, socket_, kGreetingNs);
  for (int missing = size_ - 1; missing > 0;) {
    Greeting greeting;
    const gpusock::Socket socket = greetings.next(greeting, deadline_);
    if (socket < 0) {
      std::string ranks;
      for (int rank = 1; rank < size_; ++rank) {
        if (guests[static_cast<std::size_t>(rank)].socket < 0)
          ranks += (ranks.empty() ? "" : ", ") + std::to_string(rank);
      }
      fail(socket, "not all ranks came to " + at_ + ": no word from rank " + ranks +
                       ". Were they started, by srun or the like?");
    }
    if (take_guest(socket, greeting, guests)) --missing;
  }
}

std::vector<Endpoint> Rendezvous::introduce_guests(const Endpoint& mine) {
  std::vector<Guest> guests(static_cast<std::size_t>(size_));
  receive_guests(guests);
  guests[0].listens = moved(mine, local_);
  Answer answer;
  answer.fits = 1;
  std::vector<Endpoint> all;
  for (const Guest& guest : guests) {
    // A guest on this host may give a loopback address, by which other hosts cannot reach it.
    Endpoint at = guest.listens.is_loopback() && !local_.is_loopback() ? moved(guest.listens, local_) : guest.listens;
    answer.listens[all.size()] = at;
    all.push_back(at);
  }
  for (std::size_t rank = 1; rank < guests.size(); ++rank) {
    const gpusock::Socket guest = guests[rank].socket;
    const auto sent = net_.send(gpusock::this_thread(), guest, &answer, sizeof answer, kWaitAll, deadline_);
    if (sent < 0) fail(sent, "lost rank " + std::to_string(rank) + " while all met at " + at_);
    net_.close(gpusock::this_thread(), guest);
  }
  net_.close(gpusock::this_thread(), socket_);
  return all;
}

std::vector<Endpoint> Rendezvous::be_introduced(const Endpoint& mine) {
  const auto thread = gpusock::this_thread();
  Greeting greeting;
  greeting.rank = static_cast<std::uint32_t>(rank_);
  greeting.size = static_cast<std::uint32_t>(size_);
  greeting.listens = moved(mine, local_);
  Answer answer;
  std::int64_t error = net_.send(thread, socket_, &greeting, sizeof greeting, kWaitAll, deadline_);
  if (error >= 0) error = net_.recv(thread, socket_, &answer, sizeof answer, kWaitAll, deadline_);
  if (error >= 0 && error < static_cast<std::int64_t>(sizeof answer)) error = -ECONNRESET;
  if (error < 0) fail(error, "rank 0 at " + at_ + " did not say where the other ranks are");
  if (answer.magic != kRendezvousMagic || answer.fits != 1) {
    fail(-EPROTO, "rank 0 at " + at_ + " refused rank " + std::to_string(rank_) + " of " + std::to_string(size_) +
                      ": another process has that rank, or the run another size");
  }
  net_.close(thread, socket_);
  auto all = addresses_in(answer, size_);
  if (all.empty()) fail(-EPROTO, "rank 0 at " + at_ + " gave an address that is none");
  return all;
}

}  // namespace param_sync::bootstrap
