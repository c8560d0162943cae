#include "param_sync/membership/meeting.hpp"

#include "gpusock/greetings.cuh"

#include <algorithm>
#include <utility>

namespace param_sync::membership {
namespace {

using gpusock::clock_ns;
using gpusock::Deadline;
using gpusock::Endpoint;
using gpusock::Socket;
using gpusock::this_thread;

constexpr int kBacklog = 2 * kIdsMax;
constexpr std::uint64_t kLookNs = 1'000'000;  // a part of a greeting wakes no poll

gpusock::Options options() {
  gpusock::Options options = gpusock::Options::from_env();
  options.p2p = false;  // not worth it for a few messages
  options.host_rings.clear();
  options.ring = gpusock::RingPlacement::host;  // no kernel uses it
  options.ring_bytes = 32 << 10;                // some messages: those that a slow peer has not read must fit
  options.sockets_max = 8 * kIdsMax;
  options.connections_max = 4 * kIdsMax;  // callers, calls, and other programs that connect
  options.observe.clear();
  return options;
}

}  // namespace

Meeting::Meeting() : context_(options()), net_(context_.net()) {}

Meeting::~Meeting() {
  context_.cancel();  // ends the connects, which are then joined
}

void Meeting::interrupt() noexcept {
  interrupted_ = true;
  context_.cancel();
}

Endpoint Meeting::listen(const Endpoint& at) {
  const Endpoint to = at.with_link(gpusock::LinkKind::automatic);
  if (listener_ >= 0) throw gpusock::Error(EINVAL, "this rank listens already for the members of its view");
  const Socket listener = net_.listen(this_thread(), to, kBacklog);
  if (listener < 0) {
    throw gpusock::Error(static_cast<int>(-listener), "cannot listen for the members of a view at " + to.to_string());
  }
  listener_ = listener;
  Endpoint local;
  net_.getsockname(listener_, local);
  return local;
}

Result Meeting::agree(Agreement& agreement, const std::map<int, Endpoint>& meets, std::uint64_t run,
                      std::uint64_t patience_ns) {
  peers_ = {meets, run, 0, patience_ns};
  for (const auto& [id, at] : meets) peers_.everyone |= only(id);
  close_all();
  gpusock::Greetings<Packet> greetings(net_, listener_, patience_ns);
  agreement.begin(clock_ns());
  act(agreement);
  while (!agreement.result()) {
    Packet packet;
    Socket caller = -1;
    while (!agreement.result() && (caller = greetings.next(packet, Deadline::now())) >= 0) {
      take_caller(agreement, caller, packet);
    }
    if (interrupted_) throw gpusock::Error(ECANCELED, "agreeing on the next view");
    if (!agreement.result() && caller != -EAGAIN) {
      throw gpusock::Error(static_cast<int>(-caller), "waiting for the members of a view");
    }
    take_opened(agreement);
    receive(agreement);
    if (clock_ns() >= agreement.wake_at()) {
      agreement.pass(clock_ns());
      act(agreement);
    }
    if (!agreement.result()) wait(agreement.wake_at());
  }
  close_all();
  return *agreement.result();
}

void Meeting::act(Agreement& agreement) {
  while (true) {
    std::vector<Agreement::Talk> failed;
    const std::vector<Agreement::Action> actions = agreement.take_actions();
    for (const Agreement::Action& action : actions) {
      if (action.what == Agreement::Action::What::open) {
        open(action);
        continue;
      }
      const auto line = lines_.find(action.talk);
      if (line == lines_.end()) continue;
      const Socket socket = line->second.socket;
      if (action.what == Agreement::Action::What::close) {
        if (socket >= 0) net_.close(this_thread(), socket);
        lines_.erase(line);
      } else if (!send(socket, action.message)) {
        failed.push_back(action.talk);
      }
    }
    if (actions.empty()) return;
    for (const Agreement::Talk talk : failed) {
      if (lines_.contains(talk)) end(agreement, talk);
    }
  }
}

/// Connecting waits, and other members must not wait for that: so a thread does it.
void Meeting::open(const Agreement::Action& action) {
  const Opening opening = ++openings_;
  lines_[action.talk] = {-1, opening, action.to, action.message};
  const Endpoint to = peers_.meets.at(action.to).with_link(gpusock::LinkKind::automatic);
  const auto connect = [this, opening, to, patience_ns = peers_.patience_ns] {
    const Socket socket = net_.connect(this_thread(), to, Deadline::after_ns(patience_ns));
    const std::scoped_lock lock(mutex_);
    opened_.push_back({opening, socket});
  };
  try {
    connects_[opening] = std::jthread(connect);
  } catch (const std::system_error&) {  // no thread now: the agreement tries again
    connects_.erase(opening);
    const std::scoped_lock lock(mutex_);
    opened_.push_back({opening, -EAGAIN});
  }
}

void Meeting::take_opened(Agreement& agreement) {
  std::vector<Opened> opened;
  {
    const std::scoped_lock lock(mutex_);
    opened = std::exchange(opened_, {});
  }
  for (const Opened& one : opened) {
    connects_.erase(one.opening);
    const auto line = std::find_if(lines_.begin(), lines_.end(),
                                   [&](const auto& it) { return it.second.opening == one.opening; });
    if (line == lines_.end()) {  // the agreement has closed it meanwhile, or has ended
      if (one.socket >= 0) net_.close(this_thread(), one.socket);
      continue;
    }
    const Agreement::Talk talk = line->first;
    if (one.socket == -ECONNREFUSED) {
      lines_.erase(line);
      agreement.refused(talk, clock_ns());
      act(agreement);
      continue;
    }
    line->second.socket = one.socket;
    if (one.socket < 0 || !send(one.socket, line->second.hello)) {
      end(agreement, talk);
    } else {
      agreement.opened(talk, clock_ns());
    }
    act(agreement);
  }
}

/// Other programs, ranks of other runs, and callers that have given up meanwhile are disconnected.
void Meeting::take_caller(Agreement& agreement, Socket socket, const Packet& packet) {
  const auto hello = unpack(packet, peers_.run, peers_.everyone);
  char more;
  const std::int64_t left = net_.recv(this_thread(), socket, &more, 1, gpusock::kPeek, Deadline::now());
  if (!hello || hello->kind != Kind::hello || left != -EAGAIN) {
    net_.close(this_thread(), socket);
    return;
  }
  const Agreement::Talk talk = agreement.called(*hello, clock_ns());
  lines_[talk] = {socket, 0, hello->from, {}};
  act(agreement);
}

void Meeting::receive(Agreement& agreement) {
  std::vector<Agreement::Talk> talks;
  for (const auto& [talk, line] : lines_) {
    if (line.socket >= 0) talks.push_back(talk);
  }
  for (const Agreement::Talk talk : talks) {
    for (auto line = lines_.find(talk); line != lines_.end(); line = lines_.find(talk)) {
      Packet packet;
      const std::int64_t got = net_.recv(this_thread(), line->second.socket, &packet, sizeof packet, gpusock::kWaitAll,
                                         Deadline::now());
      if (got == -EAGAIN) break;
      const bool whole = got == static_cast<std::int64_t>(sizeof packet);
      const auto message = whole ? unpack(packet, peers_.run, peers_.everyone) : std::nullopt;
      if (message && message->from == line->second.to) {
        agreement.heard(talk, *message, clock_ns());
      } else {
        end(agreement, talk);
      }
      act(agreement);
    }
  }
}

void Meeting::end(Agreement& agreement, Agreement::Talk talk) {
  const auto line = lines_.find(talk);
  if (line->second.socket >= 0) net_.close(this_thread(), line->second.socket);
  lines_.erase(line);
  agreement.ended(talk, clock_ns());
}

bool Meeting::send(Socket socket, const Message& message) const {
  if (socket < 0) return false;
  const Packet packet = pack(message, peers_.run);
  return net_.send(this_thread(), socket, &packet, sizeof packet, gpusock::kWaitAll, Deadline::now()) ==
         static_cast<std::int64_t>(sizeof packet);
}

void Meeting::close_all() {
  for (const auto& [talk, line] : lines_) {
    if (line.socket >= 0) net_.close(this_thread(), line.socket);
  }
  lines_.clear();
}

/// Waits until a connection has something, for a moment at most: connects and callers' greetings wake no poll.
void Meeting::wait(std::uint64_t until_ns) const {
  std::vector<gpusock::PollEntry> entries{{listener_, gpusock::kPollIn, 0}};
  for (const auto& [talk, line] : lines_) {
    if (line.socket >= 0) entries.push_back({line.socket, gpusock::kPollIn, 0});
  }
  const std::uint64_t now = clock_ns();
  const std::uint64_t longest = until_ns <= now ? 0 : std::min(until_ns - now, kLookNs);
  net_.poll(this_thread(), entries.data(), static_cast<int>(entries.size()), Deadline::after_ns(longest));
}

}  // namespace param_sync::membership
