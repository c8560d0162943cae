#include "param_sync/membership/agreement.hpp"

#include <algorithm>
#include <utility>

namespace param_sync::membership {

Agreement::Agreement(int self, const gpusock::ResolvedEndpoint& listens, Standing& standing, std::uint64_t patience_ns,
                     Requests requests, const Rules& rules)
    : self_(self),
      listens_(listens),
      standing_(standing),
      patience_ns_(patience_ns),
      requests_(std::move(requests)),
      rules_(rules) {}

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
  hello.ids = standing_.ids;
  hello.addresses = {{standing_.meets.at(self_), listens_}};
  hello.unreached = requests_.unreached;
  hello.addresses.insert(hello.addresses.end(), requests_.applicants.begin(), requests_.applicants.end());
  return hello;
}

// A view that is known to be decided makes older proposals irrelevant: whoever decides next needs its majority.
void Agreement::learn(const Outline& decided) {
  if (decided.number <= standing_.decided.number) return;
  standing_.decided = decided;
  std::erase_if(standing_.undecided, [&](const Outline& one) { return one.number <= decided.number; });
}

/// Notes where members meet, before the view may be decided: so a rank knows that of all members of a view that it has
/// acknowledged.
void Agreement::note_addresses(const Outline& view, const std::vector<Addresses>& addresses) {
  std::size_t rank = 0;
  for (int id = lowest(view.members); id < kIdsMax; id = next_after(view.members, id)) {
    const gpusock::ResolvedEndpoint& at = addresses[rank++].meets;
    gpusock::Endpoint& known = standing_.meets[id];
    if (known != at) known = {at, {}};  // else it may have further addresses
  }
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
