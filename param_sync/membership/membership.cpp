#include "param_sync/membership.hpp"

#include "param_sync/membership/meeting.hpp"
#include "param_sync/wire/hash.hpp"

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

bool is_address(const gpusock::Endpoint& at) { return (at.family == 4 || at.family == 6) && at.port != 0; }

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

int checked(int id) {
  if (id >= 0 && id < kIdsMax) return id;
  throw gpusock::Error(EINVAL, "a rank's id is 0 to " + std::to_string(kIdsMax - 1) + ", not " + std::to_string(id));
}

}  // namespace

struct Membership::Impl {
  explicit Impl(int of) : id(checked(of)) {}

  void check_first(const View& first) const;
  [[noreturn]] void fail(const membership::Result& result, std::uint64_t patience_ns) const;

  const int id;
  membership::Meeting meeting;
  bool listens = false;
  View view;
  std::map<int, gpusock::Endpoint> meets;  ///< of the first view
  std::uint64_t run = 0;
  membership::Standing standing;
};

void Membership::Impl::check_first(const View& first) const {
  const auto fail = [&](const std::string& why) {
    throw gpusock::Error(EINVAL, "a first view of " + name(id) + " " + why);
  };
  if (!view.members.empty()) fail("has begun already");
  if (!listens) fail("needs listen() before it begins");
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
                                          list(result.view.members) + ": it came too late, and must end");
    case Outcome::too_few:
      throw Error::with_cause(
          EHOSTUNREACH, "only " + std::to_string(membership::count(result.came)) + " of " +
                            std::to_string(membership::count(result.view.members)) +
                            (result.view == standing.decided ? " ranks" : " ranks of a view that may be decided") +
                            " came to agree on the next view: too few to go on without " + list(missing));
    case Outcome::late:
    case Outcome::entered:
      throw Error::with_cause(ETIMEDOUT,
                              "no agreement on the next view in " +
                                  in_ms(Agreement::longest_ns(membership::count(result.view.members), patience_ns)) +
                                  ": connections failed again and again, or " + list(missing) + " did not answer");
  }
  std::abort();
}

Membership::Membership(int id) : impl_(std::make_unique<Impl>(id)) {}
Membership::~Membership() = default;

gpusock::Endpoint Membership::listen(const gpusock::Endpoint& at) {
  const gpusock::Endpoint local = impl_->meeting.listen(at);
  impl_->listens = true;
  return local;
}

void Membership::begin(View first) {
  impl_->check_first(first);
  first.number = 1;
  for (const Member& member : first.members) impl_->meets[member.id] = member.meets;
  impl_->run = hash_of(first);
  impl_->standing.decided = {first.number, ids_of(first)};
  impl_->standing.highest = first.number;
  impl_->view = std::move(first);
}

const View& Membership::view() const { return impl_->view; }

View Membership::next(const gpusock::Endpoint& listens, std::uint64_t patience_ns) {
  if (impl_->view.members.empty()) throw gpusock::Error(EINVAL, "next() needs a first view: call begin()");
  if (!is_address(listens)) throw gpusock::Error(EINVAL, "next() needs the address and port of this rank's new group");
  if (patience_ns < kPatienceMinNs || patience_ns > kPatienceMaxNs) {
    throw gpusock::Error(EINVAL, "next() needs a patience from 1 ms to 1 h");
  }
  Agreement agreement(impl_->id, listens, impl_->standing, patience_ns);
  const membership::Result result = impl_->meeting.agree(agreement, impl_->meets, impl_->run, patience_ns);
  if (result.outcome != Outcome::entered) impl_->fail(result, patience_ns);
  View view{result.view.number, {}};
  const Ids members = result.view.members;
  for (int id = membership::lowest(members); id < kIdsMax; id = membership::next_after(members, id)) {
    view.members.push_back({id, impl_->meets.at(id), {result.listens[view.members.size()], {}}});
  }
  impl_->view = view;
  return view;
}

void Membership::interrupt() noexcept { impl_->meeting.interrupt(); }

}  // namespace param_sync
