// A rank that does not coordinate: it calls one member after the other.
#include "param_sync/membership/agreement.hpp"

#include <algorithm>
#include <utility>

namespace param_sync::membership {

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
      result_->addresses = proposed_addresses_;
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
    case Kind::join:
    case Kind::noted:
    case Kind::refused:
    case Kind::admitted:
      return;
  }
}

void Agreement::take_proposal(const Message& proposal, std::uint64_t now) {
  const Outline view = proposal.view;
  const Ids joined = view.members & ~proposal.base.members;
  const bool fits = has(view.members, self_) && view.number > standing_.highest && has(proposal.base.members, self_) &&
                    proposal.base.number >= standing_.decided.number && proposal.base.number < view.number &&
                    (joined == 0 || lowest(joined) >= standing_.ids);
  if (!fits) return advance(now);
  learn(proposal.base);
  // Only this coordinator could have decided its earlier proposals, and it has not.
  std::erase_if(standing_.undecided, [&](const Outline& one) { return proposer(one.number) == proposal.from; });
  standing_.undecided.push_back(view);
  standing_.highest = view.number;
  proposed_ = view;
  proposed_addresses_ = proposal.addresses;
  standing_.ids = std::max(standing_.ids, proposal.ids);
  note_addresses(view, proposal.addresses);
  stage_ = Stage::acknowledged;
  until_ = now + 2 * patience_ns_;
  Message ack = message(Kind::ack);
  ack.view = view;
  send(call_, ack);
}

}  // namespace param_sync::membership
