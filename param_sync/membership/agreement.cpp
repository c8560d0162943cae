#include "param_sync/membership/agreement.hpp"

#include <algorithm>
#include <utility>

namespace param_sync::membership {

Agreement::Agreement(int self, const gpusock::ResolvedEndpoint& listens, Standing& standing, std::uint64_t patience_ns,
                     const Rules& rules)
    : self_(self), listens_(listens), standing_(standing), patience_ns_(patience_ns), rules_(rules) {}

void Agreement::begin(std::uint64_t now) {
  limit_ = now + longest_ns(count(standing_.decided.members), patience_ns_);
  advance(now);
}

std::vector<Agreement::Action> Agreement::take_actions() { return std::exchange(actions_, {}); }

std::uint64_t Agreement::wake_at() const {
  std::uint64_t at = std::min(until_, limit_);
  if (phase_ == Phase::calls && call_ == 0) at = std::min(at, call_again_at_);
  for (const auto& [talk, probe] : probes_) {
    if (phase_ == Phase::gathers && !probe.open) at = std::min(at, probe.again_at);
  }
  return at;
}

Agreement::Talk Agreement::open(int to) {
  const Talk talk = ++talks_;
  actions_.push_back({Action::What::open, talk, to, hello()});
  return talk;
}

void Agreement::send(Talk talk, const Message& message) { actions_.push_back({Action::What::send, talk, 0, message}); }

void Agreement::close(Talk talk) {
  if (talk != 0) actions_.push_back({Action::What::close, talk});
}

Message Agreement::message(Kind kind) const {
  Message message;
  message.kind = kind;
  message.from = self_;
  return message;
}

Message Agreement::hello() const {
  Message hello = message(Kind::hello);
  hello.view = standing_.decided;
  hello.highest = standing_.highest;
  hello.undecided = standing_.undecided;
  hello.listens = {listens_};
  return hello;
}

// A view that is known to be decided makes older proposals irrelevant: whoever decides next needs its majority.
void Agreement::learn(const Outline& decided) {
  if (decided.number <= standing_.decided.number) return;
  standing_.decided = decided;
  std::erase_if(standing_.undecided, [&](const Outline& one) { return one.number <= decided.number; });
}

void Agreement::finish(Outcome outcome, const Outline& view, Ids came) {
  if (result_) return;
  if (outcome == Outcome::entered) {
    learn(view);
    for (const auto& [talk, guest] : guests_) {  // the guests that are left out need not wait until they are late
      if (!has(view.members, guest.hello.from)) fence(talk);
    }
  } else {
    dismiss_guests(kNobody);
    if (phase_ == Phase::proposes) std::erase(standing_.undecided, proposed_);  // only this rank could have decided it
  }
  result_ = Result{outcome, view, came, {}};
}

Ids Agreement::came() const {
  Ids ids = only(self_);
  for (const auto& [talk, guest] : guests_) {
    if (guest.hello.from > self_) ids |= only(guest.hello.from);
  }
  return ids;
}

// --- Calling a candidate ---------------------------------------------------------------------------------------------

void Agreement::call(int id, std::uint64_t now) {
  phase_ = Phase::calls;
  candidate_ = id;
  stage_ = Stage::asked;
  until_ = now + patience_ns_;
  call_ = open(id);
}

/// Goes on to the next member that may be there. This rank itself is the last candidate.
void Agreement::advance(std::uint64_t now) {
  close(std::exchange(call_, 0));
  for (auto guest = guests_.begin(); guest != guests_.end();) {  // a coordinator that does not answer has not called
    const bool silent = guest->second.hello.from == candidate_;
    if (silent) close(guest->first);
    guest = silent ? guests_.erase(guest) : std::next(guest);
  }
  int next = next_after(standing_.decided.members, candidate_);
  while (has(gone_, next)) next = next_after(standing_.decided.members, next);
  if (next < self_) return call(next, now);
  candidate_ = self_;
  gather(now);
}

void Agreement::hear_candidate(const Message& message, std::uint64_t now) {
  switch (message.kind) {
    case Kind::welcome:
      if (stage_ == Stage::asked) stage_ = Stage::welcomed;
      until_ = now + 2 * patience_ns_;
      return;
    case Kind::proposal:
      return take_proposal(message, now);
    case Kind::commit:
      if (stage_ != Stage::acknowledged || message.view != proposed_) return;
      finish(Outcome::entered, proposed_);
      result_->listens = proposed_listens_;
      return;
    case Kind::redirect: {
      const int to = static_cast<int>(message.candidate);
      if (message.candidate == kNobody) gone_ |= only(candidate_);  // it has failed: nobody need wait for it
      if (!has(standing_.decided.members, to) || to >= candidate_) return advance(now);
      close(std::exchange(call_, 0));
      return call(to, now);
    }
    case Kind::hello:
    case Kind::ack:
    case Kind::fenced:
      return;
  }
}

void Agreement::take_proposal(const Message& proposal, std::uint64_t now) {
  const Outline view = proposal.view;
  const bool fits = has(view.members, self_) && view.number > standing_.highest && has(proposal.base.members, self_) &&
                    proposal.base.number >= standing_.decided.number && proposal.base.number < view.number;
  if (!fits) return advance(now);
  learn(proposal.base);
  // Only this coordinator could have decided its earlier proposals, and it has not.
  std::erase_if(standing_.undecided, [&](const Outline& one) { return proposer(one.number) == proposal.from; });
  standing_.undecided.push_back(view);
  standing_.highest = view.number;
  proposed_ = view;
  proposed_listens_ = proposal.listens;
  stage_ = Stage::acknowledged;
  until_ = now + 2 * patience_ns_;
  Message ack = message(Kind::ack);
  ack.view = view;
  send(call_, ack);
}

// --- Coordinating ----------------------------------------------------------------------------------------------------

void Agreement::gather(std::uint64_t now) {
  phase_ = Phase::gathers;
  until_ = now + patience_ns_;
  welcome_all(now);
  if (result_ || phase_ != Phase::gathers) return;
  probe_missing();
  propose_if_all_came(now);
}

/// Tells a rank that the others have gone on without it.
void Agreement::fence(Talk talk) {
  Message fenced = message(Kind::fenced);
  fenced.view = standing_.decided;
  send(talk, fenced);
  close(talk);
}

void Agreement::welcome_all(std::uint64_t now) {
  std::vector<Talk> talks;
  for (const auto& [talk, guest] : guests_) {
    if (!guest.welcomed) talks.push_back(talk);
  }
  for (const Talk talk : talks) {
    if (!welcome(talk, now)) return;
  }
}

/// Returns false if this rank no longer gathers.
bool Agreement::welcome(Talk talk, std::uint64_t now) {
  Guest& guest = guests_.at(talk);
  const Message& hello = guest.hello;
  if (hello.view.number > standing_.decided.number) learn(hello.view);
  if (!has(standing_.decided.members, hello.from)) {  // it has called before this rank has learned of a newer view
    fence(talk);
    guests_.erase(talk);
    return true;
  }
  if (hello.from < self_) {
    yield_to(hello.from, now);
    return false;
  }
  guest.welcomed = true;
  send(talk, message(Kind::welcome));
  return true;
}

/// A lower rank coordinates, too: the callers are sent there.
void Agreement::yield_to(int id, std::uint64_t now) {
  dismiss_guests(static_cast<std::uint32_t>(id));
  close_probes();
  gone_ &= ~only(id);
  call(id, now);
}

void Agreement::dismiss_guests(std::uint32_t candidate) {
  for (const auto& [talk, guest] : guests_) {
    if (guest.hello.from > self_) {
      Message redirect = message(Kind::redirect);
      redirect.candidate = candidate;
      send(talk, redirect);
    }
    close(talk);
  }
  guests_.clear();
}

void Agreement::close_probes() {
  for (const auto& [talk, probe] : probes_) close(talk);
  probes_.clear();
}

/// A member that has not called is looked for: its host may say that it has ended, and a higher rank that coordinates
/// hears that this rank is there.
void Agreement::probe_missing() {
  const Ids missing = standing_.decided.members & ~came() & ~gone_;
  for (int id = lowest(missing); id < kIdsMax; id = next_after(missing, id)) {
    const bool probed = std::any_of(probes_.begin(), probes_.end(),
                                    [&](const auto& one) { return one.second.to == id; });
    if (!probed) probes_[open(id)] = {id};
  }
}

void Agreement::propose_if_all_came(std::uint64_t now) {
  if (phase_ != Phase::gathers || result_) return;
  if (now >= until_ || contains(came(), standing_.decided.members & ~gone_)) propose(now);
}

/// True if a rank says that it has acknowledged the proposal.
bool Agreement::holds(int id, const Outline& proposal) const {
  const std::vector<Outline>* held = &standing_.undecided;
  for (const auto& [talk, guest] : guests_) {
    if (guest.hello.from == id && id != self_) held = &guest.hello.undecided;
  }
  return std::find(held->begin(), held->end(), proposal) != held->end();
}

/// The newer proposals that some of `members` have acknowledged and that may be decided. One whose member does not hold
/// it is void, if this member acknowledges what is proposed now: since its hello it has acknowledged nothing else, and
/// from then on it acknowledges only greater numbers.
std::vector<Outline> Agreement::find_undecided(Ids members) const {
  std::vector<Outline> all = standing_.undecided;
  for (const auto& [talk, guest] : guests_) {
    if (has(members, guest.hello.from))
      all.insert(all.end(), guest.hello.undecided.begin(), guest.hello.undecided.end());
  }
  std::erase_if(all, [&](const Outline& one) {
    if (one.number <= standing_.decided.number) return true;
    const Ids asked = one.members & members;
    for (int id = lowest(asked); id < kIdsMax; id = next_after(asked, id)) {
      if (!holds(id, one)) return true;
    }
    return false;
  });
  return all;
}

void Agreement::propose(std::uint64_t now) {
  const Ids members = came() & standing_.decided.members;
  Message proposal = message(Kind::proposal);
  proposal.base = standing_.decided;
  std::vector<Outline> needed = find_undecided(members);
  needed.insert(needed.begin(), standing_.decided);
  for (const Outline& view : needed) {
    if (rules_.may_decide(members, view.members)) continue;
    return finish(Outcome::too_few, view, members & view.members);
  }

  std::uint64_t highest = std::max(standing_.highest, standing_.decided.number);
  std::map<int, gpusock::ResolvedEndpoint> listens{{self_, listens_}};
  for (auto& [talk, guest] : guests_) {
    highest = std::max({highest, guest.hello.highest, guest.hello.view.number});
    if (has(members, guest.hello.from)) listens[guest.hello.from] = guest.hello.listens.front();
  }
  proposed_ = {number_after(highest, self_), members};
  proposed_listens_.clear();
  for (const auto& [id, at] : listens) proposed_listens_.push_back(at);
  standing_.highest = proposed_.number;
  standing_.undecided.push_back(proposed_);

  phase_ = Phase::proposes;
  until_ = now + patience_ns_;
  proposal.view = proposed_;
  proposal.listens = proposed_listens_;
  for (auto& [talk, guest] : guests_) {
    guest.acknowledged = false;
    if (has(members, guest.hello.from)) send(talk, proposal);
  }
  decide_if_all_acknowledged();
}

void Agreement::decide_if_all_acknowledged() {
  Ids acknowledged = only(self_);
  for (const auto& [talk, guest] : guests_) {
    if (guest.acknowledged) acknowledged |= only(guest.hello.from);
  }
  if (!contains(acknowledged, proposed_.members)) return;
  Message commit = message(Kind::commit);
  commit.view = proposed_;
  for (const auto& [talk, guest] : guests_) {
    if (guest.acknowledged) send(talk, commit);
  }
  finish(Outcome::entered, proposed_);
  result_->listens = proposed_listens_;
}

/// Only this rank could have decided the proposal, so it is void. Until `until` it waits for a member that has left: it
/// may call again, if only its connection was lost. Ranks that have come meanwhile take part in the next proposal.
void Agreement::give_proposal_up(std::uint64_t now, std::uint64_t until) {
  std::erase(standing_.undecided, proposed_);
  phase_ = Phase::gathers;
  until_ = until;
  for (auto& [talk, guest] : guests_) guest.welcomed = false;  // so that they wait longer
  welcome_all(now);
  if (phase_ != Phase::gathers) return;
  probe_missing();
  propose_if_all_came(now);
}

// --- Inputs ----------------------------------------------------------------------------------------------------------

Agreement::Talk Agreement::called(const Message& hello, std::uint64_t now) {
  const Talk talk = ++talks_;
  if (result_) return talk;
  if (hello.view.number > standing_.decided.number && !has(hello.view.members, self_)) {
    finish(Outcome::fenced, hello.view);
    return talk;
  }
  if (hello.view.number < standing_.decided.number && !has(standing_.decided.members, hello.from)) {
    fence(talk);
    return talk;
  }
  bool replaces_member = false;
  for (auto guest = guests_.begin(); guest != guests_.end();) {
    const bool replaced = guest->second.hello.from == hello.from;
    if (replaced) {
      close(guest->first);
      replaces_member |= phase_ == Phase::proposes && has(proposed_.members, hello.from);
    }
    guest = replaced ? guests_.erase(guest) : std::next(guest);
  }
  guests_[talk] = {hello};
  if (replaces_member) {
    give_proposal_up(now, now + patience_ns_);
  } else if (phase_ == Phase::gathers) {
    if (welcome(talk, now)) {
      probe_missing();  // the guest may know a newer view
      propose_if_all_came(now);
    }
  } else if (phase_ == Phase::calls && stage_ == Stage::asked && hello.from < self_ && hello.from != candidate_) {
    close(std::exchange(call_, 0));  // a lower rank coordinates, and the candidate has not answered
    call(hello.from, now);
  }
  return talk;
}

void Agreement::opened(Talk, std::uint64_t) {}

void Agreement::refused(Talk talk, std::uint64_t now) {
  if (result_) return;
  if (phase_ == Phase::calls && talk == call_) {
    gone_ |= only(candidate_);
    call_ = 0;
    return advance(now);
  }
  const auto probe = probes_.find(talk);
  if (probe == probes_.end()) return;
  gone_ |= only(probe->second.to);
  probes_.erase(probe);
  propose_if_all_came(now);
}

void Agreement::ended(Talk talk, std::uint64_t now) {
  if (result_) return;
  const std::uint64_t again_at = now + patience_ns_ / 16;
  if (phase_ == Phase::calls && talk == call_) {
    call_ = 0;
    call_again_at_ = again_at;
    if (stage_ != Stage::asked) stage_ = Stage::asked, until_ = now + patience_ns_;
    return;
  }
  if (const auto probe = probes_.find(talk); probe != probes_.end()) {
    probe->second.open = false;
    probe->second.again_at = again_at;
    return;
  }
  const auto guest = guests_.find(talk);
  if (guest == guests_.end()) return;
  const bool leaves = phase_ == Phase::proposes && guest->second.hello.from > self_ &&
                      has(proposed_.members, guest->second.hello.from);
  guests_.erase(guest);
  if (leaves) return give_proposal_up(now, now + patience_ns_);
  if (phase_ == Phase::gathers) probe_missing();
}

void Agreement::heard(Talk talk, const Message& message, std::uint64_t now) {
  if (result_) return;
  const bool calls = phase_ == Phase::calls && talk == call_;
  if (message.kind == Kind::fenced && (calls || probes_.contains(talk))) {
    if (message.view.number <= standing_.decided.number || has(message.view.members, self_)) return;
    return finish(Outcome::fenced, message.view);
  }
  if (calls) return hear_candidate(message, now);
  const auto guest = guests_.find(talk);
  if (phase_ != Phase::proposes || guest == guests_.end()) return;
  if (message.kind != Kind::ack || message.view != proposed_ || !has(proposed_.members, guest->second.hello.from)) {
    return;
  }
  guest->second.acknowledged = true;
  decide_if_all_acknowledged();
}

void Agreement::pass(std::uint64_t now) {
  if (result_) return;
  if (now >= limit_) {
    return finish(Outcome::late, standing_.decided, came());
  }
  switch (phase_) {
    case Phase::calls:
      if (now >= until_) return advance(now);
      if (call_ == 0 && now >= call_again_at_) call_ = open(candidate_);
      return;
    case Phase::gathers:
      for (auto probe = probes_.begin(); probe != probes_.end();) {
        const bool again = !probe->second.open && now >= probe->second.again_at;
        probe = again ? probes_.erase(probe) : std::next(probe);
      }
      probe_missing();
      return propose_if_all_came(now);
    case Phase::proposes:
      if (now < until_) return;
      for (auto guest = guests_.begin(); guest != guests_.end();) {
        const bool silent = has(proposed_.members, guest->second.hello.from) && !guest->second.acknowledged &&
                            guest->second.welcomed;
        if (silent) close(guest->first);
        guest = silent ? guests_.erase(guest) : std::next(guest);
      }
      return give_proposal_up(now, now);
  }
}

}  // namespace param_sync::membership
