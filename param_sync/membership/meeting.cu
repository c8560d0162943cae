#include "param_sync/membership/meeting.hpp"

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
constexpr std::uint64_t kLookNs = 1'000'000;           // a part of a greeting wakes no poll
constexpr std::uint64_t kLookMaxNs = 10'000'000;       // if there was nothing for long
constexpr std::uint64_t kGreetingNs = 10'000'000'000;  // longest time from a caller's connection to its greeting
constexpr std::size_t kApplicantsMax = kIdsMax / 2;    // of a rank; others are refused

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
  greetings_.emplace(net_, listener_, kGreetingNs);
  Endpoint local;
  net_.getsockname(listener_, local);
  return local;
}

/// Sorts the callers whose greeting has come. Other programs and ranks of other runs are disconnected.
void Meeting::take_callers(std::uint64_t run, int ids) {
  Packet packet;
  Socket caller = -1;
  while ((caller = greetings_->next(packet, Deadline::now())) >= 0) {
    if (auto request = unpack(packet, 0); request && request->kind == Kind::join) {
      take_applicant(caller, *request, ids);
    } else if (auto hello = unpack(packet, run); hello && hello->kind == Kind::hello) {
      callers_.push_back({caller, std::move(*hello)});
    } else {
      net_.close(this_thread(), caller);
    }
  }
  if (caller != -EAGAIN && !interrupted_) {
    throw gpusock::Error(static_cast<int>(-caller), "waiting for the members of a view");
  }
}

void Meeting::take_applicant(Socket socket, const Message& request, int ids) {
  Message answer;
  answer.kind = Kind::refused;
  const auto refuse = [&](Refusal::Why why, std::uint64_t setting = 0, std::uint64_t theirs = 0) {
    answer.words = {static_cast<std::uint64_t>(why), setting, theirs};
    send(socket, answer, 0);
    net_.close(this_thread(), socket);
  };
  if (!settings_) return refuse(Refusal::Why::closed);
  const auto [mine, theirs] = std::mismatch(settings_->begin(), settings_->end(), request.words.begin());
  if (mine != settings_->end()) {
    return refuse(Refusal::Why::settings, static_cast<std::uint64_t>(mine - settings_->begin()), *mine);
  }
  if (ids == kIdsMax || applicants_.size() == kApplicantsMax) return refuse(Refusal::Why::full);
  answer.kind = Kind::noted;
  if (!send(socket, answer, 0)) return net_.close(this_thread(), socket), void();
  applicants_.push_back({socket, request.addresses.front()});
}

/// True if the peer is there and has sent nothing more.
bool Meeting::waits(Socket socket) const {
  char more;
  return net_.recv(this_thread(), socket, &more, 1, gpusock::kPeek, Deadline::now()) == -EAGAIN;
}

void Meeting::look(int self, const Standing& standing, std::uint64_t run) {
  take_callers(run, standing.ids);
  std::erase_if(applicants_, [&](const Applicant& one) {
    if (waits(one.socket)) return false;
    net_.close(this_thread(), one.socket);
    return true;
  });
  std::erase_if(callers_, [&](const Caller& one) {
    const bool is_old = one.hello.view.number < standing.decided.number &&
                        !has(standing.decided.members, one.hello.from);
    if (is_old) {  // it need not wait until its patience ends
      Message fenced;
      fenced.kind = Kind::fenced;
      fenced.from = self;
      fenced.view = standing.decided;
      send(one.socket, fenced, run);
    }
    if (!is_old && waits(one.socket)) return false;
    net_.close(this_thread(), one.socket);
    return true;
  });
}

std::vector<Addresses> Meeting::applicants() const {
  std::vector<Addresses> all;
  for (const Applicant& one : applicants_) all.push_back(one.at);
  return all;
}

void Meeting::admit(const Message& admission) {
  std::erase_if(applicants_, [&](const Applicant& one) {
    const auto at = std::find(admission.addresses.begin(), admission.addresses.end(), one.at);
    if (at == admission.addresses.end()) return false;
    Message own = admission;
    int id = lowest(own.view.members);
    for (auto rank = at - admission.addresses.begin(); rank != 0; --rank) id = next_after(own.view.members, id);
    own.candidate = static_cast<std::uint32_t>(id);
    send(one.socket, own, 0);
    net_.close(this_thread(), one.socket);
    return true;
  });
}

Endpoint Meeting::reach(const Endpoint& member, std::uint64_t patience_ns) {
  if (member_ >= 0) net_.close(this_thread(), std::exchange(member_, -1));
  const Socket socket = net_.connect(this_thread(), member.with_link(gpusock::LinkKind::automatic),
                                     Deadline::after_ns(patience_ns));
  if (socket < 0) {
    throw gpusock::Error(interrupted_ ? ECANCELED : static_cast<int>(-socket),
                         "cannot reach a member at " + member.host_port() +
                             ": it does not run, it has ended, or members meet elsewhere");
  }
  member_ = socket;
  Endpoint local;
  net_.getsockname(member_, local);
  return local.with_port(0);
}

Message Meeting::receive_answer(std::uint64_t patience_ns, const std::string& late) const {
  Packet packet;
  const std::int64_t got = net_.recv(this_thread(), member_, &packet, sizeof packet, gpusock::kWaitAll,
                                     Deadline::after_ns(patience_ns));
  if (interrupted_) throw gpusock::Error(ECANCELED, "asking to join");
  if (got == -ETIMEDOUT) throw gpusock::Error::with_cause(ETIMEDOUT, late);
  if (got != static_cast<std::int64_t>(sizeof packet)) {
    throw gpusock::Error::with_cause(ECONNRESET, "the member that was asked has ended before it let this node in");
  }
  auto answer = unpack(packet, 0);
  if (!answer) throw gpusock::Error::with_cause(EPROTO, "what was asked to let this node in is no member of a view");
  return *answer;
}

Message Meeting::ask(const Addresses& own, const Settings& settings, std::uint64_t patience_ns) {
  Message request;
  request.kind = Kind::join;
  request.addresses = {own};
  request.words = settings;
  if (!send(member_, request, 0)) throw gpusock::Error(EPIPE, "cannot ask a member to let this node in");
  const std::string patience = std::to_string(patience_ns / 1'000'000) + " ms";
  const Message answer = receive_answer(
      patience_ns, "the member that was asked has not answered in " + patience + ": do members meet at this address?");
  if (answer.kind != Kind::noted) return answer;
  const std::uint64_t longest = Agreement::longest_ns(kIdsMax, patience_ns);
  return receive_answer(
      longest, "the members have not agreed to let this node in for " + std::to_string(longest / 1'000'000) + " ms");
}

Result Meeting::agree(Agreement& agreement, const Standing& standing, std::uint64_t run, std::uint64_t patience_ns) {
  peers_ = {&standing, run, patience_ns};
  close_all();
  agreement.begin(clock_ns());
  act(agreement);
  std::uint64_t news_ns = clock_ns();
  while (!agreement.result()) {
    take_callers(run, standing.ids);
    if (interrupted_) throw gpusock::Error(ECANCELED, "agreeing on the next view");
    bool news = !callers_.empty();
    for (const Caller& caller : std::exchange(callers_, {})) take_caller(agreement, caller);
    news |= take_opened(agreement);
    news |= receive(agreement);
    if (clock_ns() >= agreement.wake_at()) {
      agreement.pass(clock_ns());
      act(agreement);
      news = true;
    }
    if (news) news_ns = clock_ns();
    if (!agreement.result()) wait(news_ns, agreement.wake_at());
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
      } else if (!send(socket, action.message, peers_.run)) {
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
  const Endpoint to = peers_.standing->meets.at(action.to).with_link(gpusock::LinkKind::automatic);
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

/// True if there was anything.
bool Meeting::take_opened(Agreement& agreement) {
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
    if (one.socket < 0 || !send(one.socket, line->second.hello, peers_.run)) {
      end(agreement, talk);
    } else {
      agreement.opened(talk, clock_ns());
    }
    act(agreement);
  }
  return !opened.empty();
}

/// Callers that have given up meanwhile are disconnected.
void Meeting::take_caller(Agreement& agreement, const Caller& caller) {
  if (agreement.result() || !waits(caller.socket)) {
    net_.close(this_thread(), caller.socket);
    return;
  }
  const Agreement::Talk talk = agreement.called(caller.hello, clock_ns());
  lines_[talk] = {caller.socket, 0, caller.hello.from, {}};
  act(agreement);
}

/// True if there was anything.
bool Meeting::receive(Agreement& agreement) {
  bool news = false;
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
      news = true;
      const bool whole = got == static_cast<std::int64_t>(sizeof packet);
      const auto message = whole ? unpack(packet, peers_.run) : std::nullopt;
      if (message && message->from == line->second.to) {
        agreement.heard(talk, *message, clock_ns());
      } else {
        end(agreement, talk);
      }
      act(agreement);
    }
  }
  return news;
}

void Meeting::end(Agreement& agreement, Agreement::Talk talk) {
  const auto line = lines_.find(talk);
  if (line->second.socket >= 0) net_.close(this_thread(), line->second.socket);
  lines_.erase(line);
  agreement.ended(talk, clock_ns());
}

bool Meeting::send(Socket socket, const Message& message, std::uint64_t run) const {
  if (socket < 0) return false;
  const Packet packet = pack(message, run);
  return net_.send(this_thread(), socket, &packet, sizeof packet, gpusock::kWaitAll, Deadline::now()) ==
         static_cast<std::int64_t>(sizeof packet);
}

void Meeting::close_all() {
  for (const auto& [talk, line] : lines_) {
    if (line.socket >= 0) net_.close(this_thread(), line.socket);
  }
  lines_.clear();
}

/// Waits until a connection has something, for a moment at most: connects and callers' greetings wake no poll. Each
/// poll begins with a look again and again. So the moments become longer if there was no news for long, as while all
/// wait for a member that is silent.
void Meeting::wait(std::uint64_t news_ns, std::uint64_t until_ns) const {
  std::vector<gpusock::PollEntry> entries{{listener_, gpusock::kPollIn, 0}};
  for (const auto& [talk, line] : lines_) {
    if (line.socket >= 0) entries.push_back({line.socket, gpusock::kPollIn, 0});
  }
  const std::uint64_t now = clock_ns();
  const std::uint64_t look_ns = std::clamp((now - news_ns) / 10, kLookNs, kLookMaxNs);
  const std::uint64_t longest = until_ns <= now ? 0 : std::min(until_ns - now, look_ns);
  net_.poll(this_thread(), entries.data(), static_cast<int>(entries.size()), Deadline::after_ns(longest));
}

}  // namespace param_sync::membership
