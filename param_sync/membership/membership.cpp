#include "param_sync/membership.hpp"

#include "param_sync/membership/meeting.hpp"
#include "param_sync/wire/hash.hpp"

#include <algorithm>
#include <string>
#include <utility>

namespace param_sync {

using membership::Agreement;
using membership::Ids;
using membership::kIdsMax;
using membership::Outcome;

namespace {

constexpr std::uint64_t kPatienceMinNs = 1'000'000;
constexpr std::uint64_t kPatienceMaxNs = 3'600'000'000'000;

std::string name(int id) { return "rank " + std::to_string(id); }

std::string list(Ids ids) {
  std::string text = membership::count(ids) == 1 ? "rank" : "ranks";
  for (int id = membership::lowest(ids); id < kIdsMax; id = membership::next_after(ids, id)) {
    text += (text.back() == 's' || text.back() == 'k' ? " " : ", ") + std::to_string(id);
  }
  return text;
}

using membership::is_address;

std::string in_ms(std::uint64_t ns) { return std::to_string(ns / 1'000'000) + " ms"; }

Ids ids_of(const View& view) {
  Ids ids = 0;
  for (const Member& member : view.members) ids |= membership::only(member.id);
  return ids;
}

/// Ranks that begin another first view are of another run.
std::uint64_t hash_of(const View& first) {
  std::uint64_t hash = kFnvBasis;
  for (const Member& member : first.members) {
    hash = fnv1a(&member.id, sizeof member.id, hash);
    hash = fnv1a(member.meets.address, sizeof member.meets.address, hash);
    hash = fnv1a(&member.meets.port, sizeof member.meets.port, hash);
  }
  return hash;
}

membership::Settings padded(std::span<const std::uint64_t> settings) {
  membership::Settings all{};
  if (settings.size() > all.size()) {
    throw gpusock::Error(EINVAL, "settings are at most " + std::to_string(all.size()) + " numbers");
  }
  std::copy(settings.begin(), settings.end(), all.begin());
  return all;
}

/// Throws what a refusal means.
[[noreturn]] void refuse(const membership::Message& answer) {
  using Why = membership::Refusal::Why;
  switch (static_cast<Why>(answer.words[0])) {
    case Why::settings:
      throw OtherSettings(static_cast<std::size_t>(answer.words[1]), answer.words[2]);
    case Why::full:
      throw gpusock::Error::with_cause(
          ENOSPC, "no more nodes can join now: many wait, or " + std::to_string(kIdsMax) + " ids were given");
    case Why::closed:
      break;
  }
  throw gpusock::Error::with_cause(EACCES, "the member that was asked lets no nodes join");
}

int checked(int id) {
  if (id >= 0 && id < kIdsMax) return id;
  throw gpusock::Error(EINVAL, "a rank's id is 0 to " + std::to_string(kIdsMax - 1) + ", not " + std::to_string(id));
}

}  // namespace

struct Membership::Impl {
  explicit Impl(int of) : id(of) {}

  void check_first(const View& first) const;
  [[noreturn]] void fail(const membership::Result& result, std::uint64_t patience_ns) const;

  void enter(const membership::Outline& decided, const std::vector<membership::Addresses>& addresses);
  void check_next(const gpusock::Endpoint& listens, std::uint64_t patience_ns, const std::string& who) const;

  int id;  ///< -1: it has none yet
  membership::Meeting meeting;
  gpusock::Endpoint meets;  ///< where this rank meets the others, if it listens
  View view;
  std::uint64_t run = 0;
  membership::Standing standing;
};

void Membership::Impl::check_first(const View& first) const {
  const auto fail = [&](const std::string& why) {
    throw gpusock::Error(EINVAL, "a first view of " + name(id) + " " + why);
  };
  if (id < 0) throw gpusock::Error(EINVAL, "a rank without an id begins with join()");
  if (!view.members.empty()) fail("has begun already");
  if (!is_address(meets)) fail("needs listen() before it begins");
  if (first.number > 1) fail("has number 1, not " + std::to_string(first.number));
  int before = -1;
  bool is_member = false;
  for (const Member& member : first.members) {
    if (member.id <= before || member.id >= kIdsMax) fail("needs ids from 0 to 63 in ascending order");
    if (!is_address(member.meets)) fail("needs the address and port where " + name(member.id) + " meets the others");
    before = member.id;
    is_member = is_member || member.id == id;
  }
  if (!is_member) fail("has other members only");
}

void Membership::Impl::fail(const membership::Result& result, std::uint64_t patience_ns) const {
  using gpusock::Error;
  const Ids missing = result.view.members & ~result.came;
  switch (result.outcome) {
    case Outcome::fenced:
      throw Error::with_cause(ESTALE, "the others have gone on without " + name(id) + ", as " +
                                          list(result.view.members) +
                                          ": it came too late, or it and one of them could not connect. It must end");
    case Outcome::too_few:
      throw Error::with_cause(
          EHOSTUNREACH, "only " + std::to_string(membership::count(result.came)) + " of " +
                            std::to_string(membership::count(result.view.members)) +
                            (result.view == standing.decided ? " ranks" : " ranks of a view that may be decided") +
                            " came to agree on the next view: too few to go on without " + list(missing));
    case Outcome::unreached:
      throw Error::with_cause(ESTALE, "the groups of " + list(result.came) + " cannot connect to " + name(id) +
                                          "'s: they go on without it, and it must end");
    case Outcome::late:
    case Outcome::entered:
      throw Error::with_cause(ETIMEDOUT,
                              "no agreement on the next view in " +
                                  in_ms(Agreement::longest_ns(membership::count(result.view.members), patience_ns)) +
                                  ": connections failed again and again, or " + list(missing) + " did not answer");
  }
  std::abort();
}

/// Makes the view of an outline.
void Membership::Impl::enter(const membership::Outline& decided, const std::vector<membership::Addresses>& addresses) {
  view = {decided.number, {}};
  for (int of = membership::lowest(decided.members); of < kIdsMax; of = membership::next_after(decided.members, of)) {
    view.members.push_back({of, standing.meets.at(of), {addresses[view.members.size()].listens, {}}});
  }
}

void Membership::Impl::check_next(const gpusock::Endpoint& at, std::uint64_t patience_ns,
                                  const std::string& who) const {
  if (!is_address(at)) throw gpusock::Error(EINVAL, who + " needs the address and port of this rank's new group");
  if (patience_ns < kPatienceMinNs || patience_ns > kPatienceMaxNs) {
    throw gpusock::Error(EINVAL, who + " needs a patience from 1 ms to 1 h");
  }
}

Membership::Membership() : impl_(std::make_unique<Impl>(-1)) {}
Membership::Membership(int id) : impl_(std::make_unique<Impl>(checked(id))) {}
Membership::~Membership() = default;

gpusock::Endpoint Membership::listen(const gpusock::Endpoint& at) {
  impl_->meets = impl_->meeting.listen(at);
  return impl_->meets;
}

void Membership::begin(View first) {
  impl_->check_first(first);
  first.number = 1;
  impl_->run = hash_of(first);
  impl_->standing.decided = {first.number, ids_of(first)};
  impl_->standing.highest = first.number;
  impl_->standing.ids = membership::id_after(impl_->standing.decided.members);
  for (const Member& member : first.members) impl_->standing.meets[member.id] = member.meets;
  impl_->view = std::move(first);
}

const View& Membership::view() const { return impl_->view; }
int Membership::id() const { return impl_->id; }

View Membership::next(const gpusock::Endpoint& listens, std::uint64_t patience_ns, std::span<const int> unreached) {
  Impl& it = *impl_;
  if (it.view.members.empty()) throw gpusock::Error(EINVAL, "next() needs a first view: call begin()");
  it.check_next(listens, patience_ns, "next()");
  Ids without = 0;
  for (const int member : unreached) without |= membership::only(checked(member));
  it.meeting.look(it.id, it.standing, it.run);  // who has asked to join may have ended
  Agreement agreement(it.id, listens, it.standing, patience_ns, {it.meeting.applicants(), without});
  const membership::Result result = it.meeting.agree(agreement, it.standing, it.run, patience_ns);
  if (result.outcome != Outcome::entered) it.fail(result, patience_ns);
  it.enter(result.view, result.addresses);
  membership::Message admission;
  admission.kind = membership::Kind::admitted;
  admission.from = it.id;
  admission.view = result.view;
  admission.ids = it.standing.ids;
  admission.addresses = result.addresses;
  admission.words[0] = it.run;
  it.meeting.admit(admission);
  return it.view;
}

void Membership::open(std::span<const std::uint64_t> settings) { impl_->meeting.open_to(padded(settings)); }

bool Membership::has_applicants() {
  if (impl_->view.members.empty()) throw gpusock::Error(EINVAL, "has_applicants() needs a view: call begin()");
  impl_->meeting.look(impl_->id, impl_->standing, impl_->run);
  return !impl_->meeting.applicants().empty();
}

gpusock::Endpoint Membership::reach(const gpusock::Endpoint& member, std::uint64_t patience_ns) {
  if (impl_->id >= 0) throw gpusock::Error(EINVAL, name(impl_->id) + " has an id, and cannot join");
  return impl_->meeting.reach(member, patience_ns);
}

View Membership::join(const gpusock::Endpoint& listens, std::span<const std::uint64_t> settings,
                      std::uint64_t patience_ns) {
  Impl& it = *impl_;
  if (it.id >= 0) throw gpusock::Error(EINVAL, name(it.id) + " has an id, and cannot join");
  if (!is_address(it.meets) || !it.meeting.has_reached()) {
    throw gpusock::Error(EINVAL, "join() needs reach() and listen() before");
  }
  it.check_next(listens, patience_ns, "join()");
  const membership::Message answer = it.meeting.ask({it.meets, listens}, padded(settings), patience_ns);
  if (answer.kind == membership::Kind::refused) refuse(answer);
  if (answer.kind != membership::Kind::admitted) {
    throw gpusock::Error::with_cause(EPROTO, "the member that was asked sent what no member sends");
  }
  it.id = static_cast<int>(answer.candidate);
  it.run = answer.words[0];
  it.standing = {answer.view, {}, answer.view.number, answer.ids, {}};
  std::size_t rank = 0;
  const Ids members = answer.view.members;
  for (int of = membership::lowest(members); of < kIdsMax; of = membership::next_after(members, of)) {
    it.standing.meets[of] = {answer.addresses[rank++].meets, {}};
  }
  it.enter(answer.view, answer.addresses);
  return it.view;
}

void Membership::interrupt() noexcept { impl_->meeting.interrupt(); }

}  // namespace param_sync
