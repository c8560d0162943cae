#include "tests/unit/membership/world.hpp"

#include <algorithm>
#include <utility>

namespace membership_test {
namespace {

constexpr std::uint64_t kHarm = 30 * World::kPatience;  // so long faults come

bool anyone(Ids, Ids) { return true; }
bool half(Ids some, Ids of) { return 2 * count(some & of) >= count(of); }
bool with_joiners(Ids some, Ids of) {
  return 2 * count(some) > count(of) || (2 * count(some) == count(of) && has(some, lowest(of)));
}

constexpr std::size_t kApplicantsMax = 12;  // in a run

/// Addresses name the process: ids must not mix them up.
Addresses addresses_of(int process) {
  Addresses at;
  at.meets.port = static_cast<std::uint16_t>(1 + process);
  at.listens.port = static_cast<std::uint16_t>(1001 + process);
  return at;
}
int process_at(const Addresses& at) { return at.meets.port - 1; }

constexpr int kFirstApplicant = 100;  // its process

std::string text(Ids ids) {
  std::string all;
  for (int id = lowest(ids); id < kIdsMax; id = next_after(ids, id))
    all += (all.empty() ? "" : ",") + std::to_string(id);
  return "{" + all + "}";
}

}  // namespace

World::World(std::uint64_t seed, Fault fault) : random_(seed), fault_(fault) {
  if (fault == Fault::no_majority) rules_.may_decide = anyone;
  if (fault == Fault::any_half) rules_.may_decide = half;
  if (fault == Fault::joiners_vote) rules_.may_decide = with_joiners;
  nodes_.resize(kIdsMax);
  first_nodes_ = nodes_there_ = static_cast<int>(2 + below(8));
  slowness_ = chance(2) ? 1 : 1 + below(20);
  const Outline first{1, only(nodes()) - 1};
  for (int id = 0; id < nodes(); ++id) {
    Node& one = node(id);
    one.state = State::trains;
    one.standing.ids = nodes();
    for (int other = 0; other < nodes(); ++other) one.standing.meets[other] = {addresses_of(other).meets, {}};
    process_of_[id] = id;
    one.view = first;
    one.standing.decided = first;
    one.standing.highest = first.number;
  }
  decided_[first.number] = first.members;
  complete_ = first;
}

std::uint64_t World::delay() { return 1 + below(kPatience / 1'000 * slowness_); }

void World::at(std::uint64_t time, std::function<void()> act) {
  events_.push({std::max(time, now_), ++orders_, std::move(act)});
}

bool World::parted(int a, int b) const {
  if (now_ < parted_until_ && has(part_, a) != has(part_, b)) return true;
  const auto cut = [&](int from, int to) { return cut_.contains(from) && has(cut_.at(from), to); };
  return cut(a, b) || cut(b, a);
}

void World::turn(std::uint64_t until) {
  while (objection_.empty() && !events_.empty() && events_.top().at <= until) {
    const Event event = events_.top();
    events_.pop();
    now_ = event.at;
    event.act();
  }
  now_ = std::max(now_, until);
}

// --- A rank ----------------------------------------------------------------------------------------------------------

void World::begin(int id) {
  Node& one = node(id);
  if (one.state != State::trains && one.state != State::failed) return;
  if (!runs(one)) return at(one.paused_until, [this, id] { begin(id); });
  one.state = State::agrees;
  one.since = now_;
  one.was_paused = false;
  if (fault_ == Fault::forgets_undecided) one.standing.undecided.clear();
  if (fault_ == Fault::gives_ids_again) one.standing.ids = id_after(one.standing.decided.members);
  if (harms_) one.unreached = chance(4) ? random_() : 0;  // true or not, agreements are safe
  one.agreement = std::make_unique<Agreement>(id, addresses_of(process_of_.at(id)).listens, one.standing, kPatience,
                                              Requests{one.applicants, one.unreached}, rules_);
  one.agreement->begin(now_);
  do_actions(id);
  take_backlog(id);
}

void World::take_backlog(int id) {
  for (const int connection : std::exchange(node(id).backlog, {})) {
    Connection& it = connections_[static_cast<std::size_t>(connection)];
    if (!it.open[1]) continue;
    input(id, [&](Agreement& agreement) {
      it.talk[1] = agreement.called(it.hello, now_);
      node(id).connections[it.talk[1]] = connection;
    });
  }
}

void World::input(int id, const std::function<void(Agreement&)>& give) {
  Node& one = node(id);
  if (one.state != State::agrees) return;
  give(*one.agreement);
  do_actions(id);
}

void World::do_actions(int id) {
  Node& one = node(id);
  for (Agreement::Action& action : one.agreement->take_actions()) {
    using What = Agreement::Action::What;
    if (action.what == What::open) {
      if (fault_ == Fault::hides_newer_views) action.message.view = {1, only(nodes()) - 1};
      if (fault_ == Fault::forgets_undecided) action.message.undecided.clear();
      if (fault_ == Fault::gives_ids_again) action.message.ids = id_after(action.message.view.members);
      connect(id, action);
      continue;
    }
    const auto connection = one.connections.find(action.talk);
    if (connection == one.connections.end()) continue;
    const int number = connection->second;
    const int side = connections_[static_cast<std::size_t>(number)].talk[0] == action.talk &&
                             connections_[static_cast<std::size_t>(number)].node[0] == id
                         ? 0
                         : 1;
    if (action.what == What::close) {
      one.connections.erase(connection);
      close(number, side);
      continue;
    }
    if (fault_ == Fault::hides_newer_views && action.message.kind == Kind::proposal) {
      const int to = connections_[static_cast<std::size_t>(number)].node[static_cast<std::size_t>(1 - side)];
      action.message.base = node(to).standing.decided;  // the caller does not notice
    }
    const bool matters = action.message.kind == Kind::ack || action.message.kind == Kind::commit;
    if (matters && harms_ && chance(6)) at(now_ + delay() / 2, [this] { do_harm(); });
    deliver(number, 1 - side, action.message);
    if (fault_ == Fault::enters_at_proposal && action.message.kind == Kind::ack) {
      one.standing.decided = action.message.view;
      one.standing.undecided.clear();
      enter(id, action.message.view);
      return end_agreement(id);
    }
  }
  if (one.agreement->result()) {
    const Result result = *one.agreement->result();
    if (now_ - one.since > Agreement::longest_ns(nodes(), kPatience) && !one.was_paused) {
      object("rank " + std::to_string(id) + " took too long");
    }
    one.state = result.outcome == Outcome::fenced ? State::fenced : State::failed;
    if (result.outcome == Outcome::entered) {
      check_addresses(result);
      let_in(result);
      for (const Addresses& joins : result.addresses) {
        if (std::erase(one.applicants, joins) == 0) continue;  // those that have asked others
        const int joiner = applicants_[static_cast<std::size_t>(process_at(joins) - kFirstApplicant)].id;
        at(now_ + delay(), [this, id, joiner, result, ids = one.standing.ids] {
          if (!parted(id, joiner)) admit(joiner, result.view, ids, result.addresses);
        });
      }
      enter(id, result.view);
    }
    return end_agreement(id);
  }
  wake(id);
}

void World::wake(int id) {
  Node& one = node(id);
  const std::uint64_t time = one.agreement->wake_at();
  if (one.wakes_at == time) return;
  one.wakes_at = time;
  at(time, [this, id, time] {
    if (node(id).wakes_at != time) return;
    node(id).wakes_at = 0;
    if (!runs(node(id))) {
      return at(node(id).paused_until, [this, id] { input(id, [&](Agreement& it) { it.pass(now_); }); });
    }
    input(id, [&](Agreement& agreement) { agreement.pass(now_); });
  });
}

void World::end_agreement(int id) {
  Node& one = node(id);
  one.agreement.reset();
  one.wakes_at = 0;
  for (const auto& [talk, connection] : std::exchange(one.connections, {})) {
    Connection& it = connections_[static_cast<std::size_t>(connection)];
    close(connection, it.node[0] == id && it.talk[0] == talk ? 0 : 1);
  }
}

/// Each id is one process for ever.
void World::check_addresses(const Result& result) {
  if (static_cast<int>(result.addresses.size()) != count(result.view.members))
    return object("a view without addresses");
  std::size_t rank = 0;
  for (int id = lowest(result.view.members); id < kIdsMax; id = next_after(result.view.members, id)) {
    const Addresses& at = result.addresses[rank++];
    const auto [known, is_new] = process_of_.try_emplace(id, process_at(at));
    if (known->second != process_at(at)) object("id " + std::to_string(id) + " was given twice");
    if (at != addresses_of(process_at(at))) object("a wrong address");
  }
}

// --- Ranks that join -------------------------------------------------------------------------------------------------

void World::apply(int to) {
  if (applicants_.size() == kApplicantsMax || node(to).state != State::trains || !runs(node(to))) return;
  node(to).applicants.push_back(addresses_of(kFirstApplicant + static_cast<int>(applicants_.size())));
  applicants_.emplace_back();
}

/// Notes which processes are ranks from here on. They hear of it later, or never.
void World::let_in(const Result& result) {
  std::size_t rank = 0;
  for (int id = lowest(result.view.members); id < kIdsMax; id = next_after(result.view.members, id)) {
    const int process = process_at(result.addresses[rank++]);
    if (process < kFirstApplicant || joined_.contains(id)) continue;
    joined_[id] = result.view.number;
    Applicant& it = applicants_[static_cast<std::size_t>(process - kFirstApplicant)];
    it.id = id;
    node(id).state = it.crashed ? State::crashed : State::joins;
    nodes_there_ = std::max(nodes_there_, id + 1);
    at(now_ + 8 * kPatience, [this, id] {  // it gives up
      if (node(id).state == State::joins) crash(id);
    });
  }
}

void World::admit(int id, const Outline& view, int ids, const std::vector<Addresses>& addresses) {
  Node& one = node(id);
  if (one.state != State::joins) return;
  one.standing = {view, {}, view.number, ids, {}};
  std::size_t rank = 0;
  for (int of = lowest(view.members); of < kIdsMax; of = next_after(view.members, of)) {
    one.standing.meets[of] = {addresses[rank++].meets, {}};
  }
  enter(id, view);
  at(now_ + below(kPatience), [this, id] { look(id); });
}

// --- What the oracle knows -------------------------------------------------------------------------------------------

void World::enter(int id, const Outline& view) {
  Node& one = node(id);
  const std::string who = "rank " + std::to_string(id) + " enters " + text(view.members);
  if (!has(view.members, id)) object(who + ", and is no member");
  if (view.number <= one.view.number) object(who + " with a number that is not greater");
  const auto [same, is_new] = decided_.try_emplace(view.number, view.members);
  if (!is_new && same->second != view.members) object("two views have the same number");
  one.view = view;
  one.state = State::trains;
  one.since = now_;
  check_chain();
  if (!is_complete(view)) return;
  for (const Node& other : nodes_) {
    if (other.view.members != 0 && other.view.number != view.number && is_complete(other.view))
      object(who + " while another view is complete");
  }
  // Who has missed what a complete view has done never comes back.
  Ids may = complete_.members;
  for (const auto& [joiner, number] : joined_) may |= number > complete_.number ? only(joiner) : 0;
  if (view.number <= complete_.number || !contains(may, view.members)) object(who + " after a newer one");
  complete_ = view;
}

bool World::is_complete(const Outline& view) const {
  for (int id = lowest(view.members); id < kIdsMax; id = next_after(view.members, id)) {
    const Node& one = nodes_[static_cast<std::size_t>(id)];
    if (one.state != State::trains || one.view.number != view.number) return false;
  }
  return true;
}

/// Each decided view needs a majority of the one before it.
void World::check_chain() {
  const Ids* before = nullptr;
  for (const auto& [number, members] : decided_) {
    if (before != nullptr && !is_majority(members, *before)) {
      object(text(members) + " follows " + text(*before));
    }
    before = &members;
  }
}

// --- What happens ----------------------------------------------------------------------------------------------------

void World::look(int id) {
  if (!suspects_) return;
  Node& one = node(id);
  at(now_ + kPatience / 8 + below(kPatience / 8), [this, id] { look(id); });
  if (one.state == State::failed && harms_ && chance(8)) begin(id);  // it tries again
  if (one.state != State::trains || !runs(one)) return;
  bool all_well = true;
  for (int other = lowest(one.view.members); other < kIdsMax; other = next_after(one.view.members, other)) {
    const Node& it = node(other);
    const bool well = it.state == State::trains && it.view.number == one.view.number && runs(it) && !parted(id, other);
    all_well = all_well && well;
  }
  if ((!all_well && now_ - one.since > kPatience / 2) || !one.applicants.empty()) begin(id);
}

void World::crash(int id) {
  Node& one = node(id);
  one.state = State::crashed;
  end_agreement(id);
  for (const int connection : std::exchange(one.backlog, {})) close(connection, 1);
  one.applicants.clear();
}

void World::do_harm() {
  const int id = static_cast<int>(below(static_cast<std::uint64_t>(nodes())));
  Node& one = node(id);
  switch (below(10)) {
    case 0:
      if (chance(2)) crash(id);
      return;
    case 1:
    case 2:
      one.paused_until = now_ + below(4 * kPatience);
      one.was_paused = true;
      return;
    case 3:
      part_ = random_();
      parted_until_ = now_ + below(4 * kPatience);
      return;
    case 4:
    case 5:
      for (int lost = 0; lost < 3 && !one.connections.empty(); ++lost) {
        auto which = one.connections.begin();
        std::advance(which, static_cast<std::ptrdiff_t>(below(one.connections.size())));
        lose(which->second);
      }
      return;
    case 6:
      for (std::uint64_t some = below(3); some != 0; --some) apply(id);
      return;
    case 7:
      if (applicants_.empty()) return;
      applicants_[below(applicants_.size())].crashed = true;  // if it has not joined yet
      return;
    default:
      return begin(id);  // it suspects another rank
  }
}

bool World::is_settled() const {
  return std::none_of(nodes_.begin(), nodes_.end(), [&](const Node& one) {
    return one.state == State::agrees || (one.state == State::trains && !is_complete(one.view));
  });
}

std::string World::run() {
  harms_ = true;
  for (int id = 0; id < nodes(); ++id) at(below(kPatience), [this, id] { look(id); });
  const std::uint64_t busy = 1 + below(30);  // bursts of harm, and quiet times
  while (now_ < kHarm && objection_.empty()) {
    do_harm();
    turn(now_ + (chance(3) ? below(kPatience * busy / 4) : below(kPatience / 50 * busy)));
  }
  harms_ = false;
  parted_until_ = 0;
  const std::uint64_t quiet = now_ + 400 * kPatience;
  while (!is_settled() && now_ < quiet && objection_.empty()) turn(now_ + kPatience);
  if (!is_settled()) object("ranks neither agree nor end");
  if (objection_.empty()) meet_again();
  return objection_;
}

/// All that can go on meet, and nothing more happens: those go on that may, all of them, and no others.
void World::meet_again() {
  suspects_ = false;
  const auto agrees = [](const Node& one) { return one.state == State::agrees; };
  do {
    turn(now_ + 5 * kPatience);  // what is on its way arrives
  } while (std::any_of(nodes_.begin(), nodes_.end(), agrees));
  slowness_ = 1;
  for (Node& one : nodes_) one.applicants.clear(), one.unreached = 0;
  const std::uint64_t lost = below(4);
  for (int id = 0; id < nodes(); ++id) {
    if (node(id).state != State::crashed && below(4) < lost) crash(id);
  }
  Ids there = 0;
  Outline newest;
  for (int id = 0; id < nodes(); ++id) {
    const State state = node(id).state;
    if (state != State::trains && state != State::failed) continue;
    there |= only(id);
    if (node(id).standing.decided.number > newest.number) newest = node(id).standing.decided;
  }
  const Ids members = there & newest.members;
  bool may = is_majority(members, newest.members);
  std::map<std::uint64_t, Ids> before;
  for (int id = lowest(members); id < kIdsMax; id = next_after(members, id)) {
    before[static_cast<std::uint64_t>(id)] = node(id).view.number;
    for (const Outline& undecided : node(id).standing.undecided) {
      if (undecided.number <= newest.number) continue;
      bool is_void = false;
      for (int other = lowest(members); other < kIdsMax; other = next_after(members, other)) {
        const auto& held = node(other).standing.undecided;
        is_void |= has(undecided.members, other) && std::find(held.begin(), held.end(), undecided) == held.end();
      }
      if (!is_void) may = may && is_majority(members, undecided.members);
    }
  }
  for (int id = 0; id < nodes(); ++id) {
    if (has(there, id)) at(now_ + below(kPatience / 4), [this, id] { begin(id); });
  }
  turn(now_ + Agreement::longest_ns(nodes(), kPatience) + kPatience);
  for (int id = 0; id < nodes() && objection_.empty(); ++id) {
    const Node& one = node(id);
    if (!has(there, id)) continue;
    const bool goes_on = one.state == State::trains;
    const std::string who = "at last rank " + std::to_string(id);
    if (goes_on != (may && has(members, id))) {
      object(who + (goes_on ? " goes on, and may not" : " does not go on") + "; there " + text(there) + ", newest " +
             text(newest.members));
    } else if (goes_on && one.view.members != members) {
      object(who + " goes on in " + text(one.view.members) + " instead of " + text(members));
    }
  }
}

std::string World::run_join(int joiners, bool crash_them) {
  suspects_ = false;
  const Ids before = only(nodes()) - 1;
  const int may = std::min(joiners, first_nodes_);
  for (int i = 0; i < joiners; ++i) apply(static_cast<int>(below(static_cast<std::uint64_t>(first_nodes_))));
  for (Applicant& it : applicants_) it.crashed = crash_them;
  const auto meet = [&](Ids those) {
    for (int id = lowest(those); id < kIdsMax; id = next_after(those, id)) {
      at(now_ + below(kPatience / 4), [this, id] { begin(id); });
    }
    turn(now_ + Agreement::longest_ns(nodes(), kPatience) + kPatience);
  };
  meet(before);
  if (joined() != may) object(std::to_string(joined()) + " have joined of " + std::to_string(joiners));
  const Ids all = only(nodes()) - 1;
  if (crash_them) {
    for (Node& one : nodes_) one.applicants.clear();
    meet(before);
  }
  for (int id = 0; id < (crash_them ? first_nodes_ : nodes()); ++id) {
    const std::string who = "rank " + std::to_string(id);
    if (node(id).state != State::trains) object(who + " does not train");
    if (node(id).view.members != (crash_them ? before : all))
      object(who + " goes on in " + text(node(id).view.members));
  }
  return objection_;
}

std::string World::run_unconnected(int first, Ids others, bool meet, Ids left_out) {
  suspects_ = false;
  const Ids all = only(nodes()) - 1, left = all & ~left_out;
  for (int id = 0; id < nodes(); ++id) {
    if (has(others, id)) node(std::max(first, id)).unreached |= only(std::min(first, id));  // the higher rank connects
    at(below(kPatience / 4), [this, id] { begin(id); });
  }
  if (!meet) cut_[first] = others;
  turn(Agreement::longest_ns(nodes(), kPatience) + kPatience);
  for (int id = 0; id < nodes(); ++id) {
    const Node& one = node(id);
    const std::string who = "rank " + std::to_string(id) + " of " + std::to_string(nodes());
    if (has(left, id) != (one.state == State::trains && one.view.number != 1)) object(who + " has another state");
    if (has(left, id) && one.view.members != left) object(who + " goes on in " + text(one.view.members));
  }
  return objection_;
}

/// The lowest rank comes when the others have given it up. They go on with it nevertheless, as it can be reached.
std::string World::run_late() {
  suspects_ = false;
  for (int id = 0; id < nodes(); ++id) {
    const std::uint64_t late = id == 0 ? kPatience * 5 / 4 + below(kPatience / 2) : 0;
    at(late + below(kPatience / 8), [this, id] { begin(id); });
  }
  turn(Agreement::longest_ns(nodes(), kPatience) + kPatience);
  for (int id = 0; id < nodes(); ++id) {
    if (node(id).view.members != only(nodes()) - 1 || node(id).view.number == 1) {
      object("rank " + std::to_string(id) + " goes on in " + text(node(id).view.members));
    }
  }
  return objection_;
}

std::string World::run_calm(Ids gone, bool paused) {
  suspects_ = false;
  const Ids all = only(nodes()) - 1;
  gone &= all;
  for (int id = 0; id < nodes(); ++id) {
    if (!has(gone, id)) {
      at(below(kPatience / 4), [this, id] { begin(id); });
    } else if (paused) {
      node(id).paused_until = ~std::uint64_t{0} >> 1;
    } else {
      crash(id);
    }
  }
  turn(Agreement::longest_ns(nodes(), kPatience) + kPatience);
  const bool may = is_majority(all & ~gone, all);
  for (int id = 0; id < nodes(); ++id) {
    const Node& one = node(id);
    if (has(gone, id)) continue;
    const std::string who = "rank " + std::to_string(id) + " without " + text(gone);
    if (one.state != (may ? State::trains : State::failed)) object(who + " has another state");
    if (may && one.view.members != (all & ~gone)) object(who + " goes on in " + text(one.view.members));
    if (!paused && one.state == State::trains && one.since > kPatience)
      object(who + " waits for ranks that have ended");
  }
  return objection_;
}

}  // namespace membership_test
