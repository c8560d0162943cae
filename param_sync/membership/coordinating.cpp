// A rank that coordinates: it takes callers, looks for members that it misses, and proposes.
#include "param_sync/membership/agreement.hpp"

#include <algorithm>
#include <array>
#include <map>

namespace param_sync::membership {

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

/// The nodes that have asked `members` to join: each once, and not more than may.
std::vector<Addresses> Agreement::find_applicants(Ids members) const {
  std::vector<Addresses> all = requests_.applicants;
  for (const auto& [talk, guest] : guests_) {
    if (!has(members, guest.hello.from)) continue;
    for (auto at = guest.hello.addresses.begin() + 1; at != guest.hello.addresses.end(); ++at) {
      if (std::find(all.begin(), all.end(), *at) == all.end()) all.push_back(*at);
    }
  }
  all.resize(std::min(all.size(), static_cast<std::size_t>(joiners_max(members, standing_.ids))));
  return all;
}

/// Those of `members` whose groups can connect to each other, as far as they say: one after the other the member is
/// left out that lacks most connections; of several the one with the highest id.
Ids Agreement::connected(Ids members) const {
  std::array<Ids, kIdsMax> lacks{};
  const auto note = [&](int id, Ids unreached) {
    lacks[static_cast<std::size_t>(id)] |= unreached & ~only(id);
    for (int other = lowest(unreached); other < kIdsMax; other = next_after(unreached, other)) {
      if (other != id) lacks[static_cast<std::size_t>(other)] |= only(id);
    }
  };
  note(self_, requests_.unreached & members);
  for (const auto& [talk, guest] : guests_) {
    if (has(members, guest.hello.from)) note(guest.hello.from, guest.hello.unreached & members);
  }
  for (;;) {
    int worst = -1, most = 1;
    for (int id = lowest(members); id < kIdsMax; id = next_after(members, id)) {
      const int lacking = count(lacks[static_cast<std::size_t>(id)] & members);
      if (lacking < most) continue;
      worst = id;
      most = lacking;
    }
    if (worst < 0) return members;
    members &= ~only(worst);
  }
}

/// The decided view, or one that may be decided, without whose majority `members` may not go on.
std::optional<Outline> Agreement::lacks_majority(Ids members) const {
  const Ids joining = new_ids(standing_.ids, static_cast<int>(find_applicants(members).size()));
  std::vector<Outline> needed = find_undecided(members);
  needed.insert(needed.begin(), standing_.decided);
  const auto lacks = [&](const Outline& view) { return !rules_.may_decide(members | joining, view.members); };
  const auto found = std::find_if(needed.begin(), needed.end(), lacks);
  return found == needed.end() ? std::nullopt : std::optional(*found);
}

void Agreement::propose(std::uint64_t now) {
  Message proposal = message(Kind::proposal);
  proposal.base = standing_.decided;
  std::uint64_t highest = std::max(standing_.highest, standing_.decided.number);
  std::map<int, Addresses> addresses{{self_, {standing_.meets.at(self_), listens_}}};
  for (auto& [talk, guest] : guests_) {
    highest = std::max({highest, guest.hello.highest, guest.hello.view.number});
    standing_.ids = std::max(standing_.ids, guest.hello.ids);
  }
  const Ids all = came() & standing_.decided.members;
  Ids members = connected(all);
  if (members != all && lacks_majority(members)) members = all;  // they may try once more
  if (!has(members, self_)) return finish(Outcome::unreached, standing_.decided, members);
  if (const auto view = lacks_majority(members)) return finish(Outcome::too_few, *view, members & view->members);
  for (const auto& [talk, guest] : guests_) {
    if (has(members, guest.hello.from)) addresses[guest.hello.from] = guest.hello.addresses.front();
  }
  const std::vector<Addresses> applicants = find_applicants(members);
  const Ids joining = new_ids(standing_.ids, static_cast<int>(applicants.size()));
  for (const Addresses& at : applicants) addresses[standing_.ids++] = at;
  voters_ = members;
  proposed_ = {number_after(highest, self_), members | joining};
  proposed_addresses_.clear();
  for (const auto& [id, at] : addresses) proposed_addresses_.push_back(at);
  note_addresses(proposed_, proposed_addresses_);
  standing_.highest = proposed_.number;
  standing_.undecided.push_back(proposed_);

  phase_ = Phase::proposes;
  until_ = now + patience_ns_;
  proposal.view = proposed_;
  proposal.ids = standing_.ids;
  proposal.addresses = proposed_addresses_;
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
  if (!contains(acknowledged, voters_)) return;
  Message commit = message(Kind::commit);
  commit.view = proposed_;
  for (const auto& [talk, guest] : guests_) {
    if (guest.acknowledged) send(talk, commit);
  }
  finish(Outcome::entered, proposed_);
  result_->addresses = proposed_addresses_;
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

}  // namespace param_sync::membership
