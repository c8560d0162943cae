#pragma once
/// @file How ranks agree who goes on after a loss, and who joins: param_sync's public API. Link gpusock::param_sync.

#include "gpusock/gpusock.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace param_sync {

/// One rank of a view.
struct Member {
  /// Its rank in the first view, or the number that it got when it joined; 0 to 63. It never changes, and no other rank
  /// gets it.
  int id = 0;
  gpusock::Endpoint meets;    ///< where its Membership listens; it never changes
  gpusock::Endpoint listens;  ///< where its group listens in this view
};

/// The ranks that train together. Each view has a number of its own; later views have greater numbers.
struct View {
  std::uint64_t number = 0;       ///< the first view has number 1
  std::vector<Member> members{};  ///< by ascending id; a rank in this view is an index
};

/// Thrown by Membership::join() (EINVAL): the members have other settings.
class OtherSettings : public gpusock::Error {
 public:
  /// Takes the values of its members.
  OtherSettings(std::size_t which, std::uint64_t of_members)
      : Error(EINVAL, "the members have another setting " + std::to_string(which)), index(which), theirs(of_members) {}

  std::size_t index;     ///< of the first setting that differs
  std::uint64_t theirs;  ///< its value on the member that was asked
};

/// One rank's part in agreements about who goes on.
///
/// Each rank listens, and the program tells all ranks where all meet and where all groups listen, as for
/// Group::connect(). Then all ranks begin the same first view. When an operation has failed, the program ends the
/// group and calls next(), which returns the next view, the same on all of its members. Then it makes their group:
///
///     param_sync::Membership membership(rank);
///     const auto meets = membership.listen(gpusock::Endpoint::parse("10.0.0.1:0"));
///     ... // tell all ranks all addresses
///     membership.begin(first);
///     ... // train; a rank is lost: end the group
///     const auto view = membership.next(listens, 10'000'000'000);
///     ... // make a group of view.members, let it listen at `listens`, and connect it
///
/// Other ranks may join. They ask a member, which looks for them now and then. It ends its group, as after a loss: then
/// all call next(), and the next view has the new rank, too.
///
///     membership.open(settings);                      // a member: who has these settings may join
///     if (membership.has_applicants()) ...            // now and then: end the group, and call next()
///
///     param_sync::Membership membership;              // the new rank
///     const auto here = membership.reach(member, 10'000'000'000);
///     membership.listen(here);
///     const auto view = membership.join(listens, settings, 10'000'000'000);
///
/// A view has at most as many new ranks as old ones, and others wait for the next view. So if all new ranks are lost,
/// the old ones go on.
///
/// Safety: views follow each other. A view has more than half of the members of the view before it, or half of them
/// with the lowest id; ranks that join do not count. So no two parts of a group go on beside each other, whatever
/// messages are late or lost. A rank that was left out of a view never comes back, once all members have entered that
/// view. next() returns on each member by itself: a member may still be lost, so connect the group, and call a barrier
/// before you change anything that lasts. If that fails, call next() again.
///
/// The ranks trust each other; other programs that connect are disconnected. Beyond loopback all ranks need the same
/// GPUSOCK_SECRET. One host thread at a time calls a Membership, but for interrupt().
class Membership {
 public:
  /// `id`: this rank's rank in the first view, 0 to 63. Throws gpusock::Error: (EINVAL) another id, and the errors of
  /// gpusock::Context.
  explicit Membership(int id);
  /// A rank that will join(), which gives it an id.
  Membership();
  /// Closes the listener. Ranks that still look for this one then know that it has ended.
  ~Membership();
  Membership(const Membership&) = delete;
  Membership& operator=(const Membership&) = delete;

  /// Listens where members meet, and returns the address, with the port that was picked for port 0. Any link that `at`
  /// names is ignored. Throws gpusock::Error: (EINVAL) it listens already, and what Net::listen() returns.
  gpusock::Endpoint listen(const gpusock::Endpoint& at);

  /// Enters the first view, the same on all ranks. Its number is 1, or 0 for the same. Throws gpusock::Error (EINVAL):
  /// a view has begun, listen() was not called, ids do not ascend, this rank is no member, or a member has no address
  /// where it meets.
  void begin(View first);

  /// The last view that this rank has entered. No members before begin().
  const View& view() const;
  /// This rank's id; -1 before join().
  int id() const;

  /// Agrees on the next view with the members of the last one that can be reached, and enters it. `listens`: where this
  /// rank's next group listens, or will listen. `patience_ns`: how long this rank waits for each message of another
  /// one, 1 ms to 1 h. All ranks use the same. It is longer than the time between the calls of the first rank and the
  /// last one after a loss. A member whose process has ended is left out at once, if its host says so; one that is
  /// stopped is left out after the patience. The call takes at most 2 * patience_ns * (members + 2).
  ///
  /// `unreached`: ids of members to which this rank's group could not connect (UnreachableRank), though they may be
  /// there. If two members that come cannot connect, one of them is left out, as long as the others may go on: the one
  /// that lacks more connections, or the one with the higher id.
  ///
  /// Throws gpusock::Error: (EINVAL) begin() was not called, or an argument is invalid; (ESTALE) the others have gone
  /// on without this rank, or do so now, and it can never go on; (EHOSTUNREACH) too few members came; (ETIMEDOUT)
  /// members came, and did not agree in time; (ECANCELED) after interrupt(); and what sockets return. After
  /// EHOSTUNREACH and ETIMEDOUT it may be called again.
  View next(const gpusock::Endpoint& listens, std::uint64_t patience_ns, std::span<const int> unreached = {});

  /// From here on ranks may join that give the same settings to join(): up to 16 numbers. Throws gpusock::Error
  /// (EINVAL): there are more.
  void open(std::span<const std::uint64_t> settings);

  /// Takes callers, and does not wait for any. Returns true if ranks have asked this one to let them join, and wait:
  /// the next view has them. Call it between agreements, such as after some steps. Throws gpusock::Error: (EINVAL) no
  /// view has begun, and what sockets return.
  bool has_applicants();

  /// Connects to a member, at the address where it meets the others: join() asks it. Returns this host's address on the
  /// way to it, with port 0, for listen(). Throws gpusock::Error: (EINVAL) this rank has an id, (ECANCELED) after
  /// interrupt(), and what Net::connect() returns.
  gpusock::Endpoint reach(const gpusock::Endpoint& member, std::uint64_t patience_ns);

  /// Asks the member that was reached to let this rank join, and enters the view that has it. `listens` and
  /// `patience_ns` are as for next(). It takes at most 134 * patience_ns, and patience_ns if the member does not
  /// answer.
  ///
  /// Throws gpusock::Error: (EINVAL) an argument is invalid, reach() or listen() was not called, or this rank has an
  /// id; OtherSettings; (EACCES) the member has not called open(); (ENOSPC) all ids are given, or too many wait;
  /// (ETIMEDOUT) no answer; (ECONNRESET) the member has ended, or goes on without the others; (EPROTO) it is no member;
  /// (ECANCELED) after interrupt(). After an error make another Membership to try again.
  View join(const gpusock::Endpoint& listens, std::span<const std::uint64_t> settings, std::uint64_t patience_ns);

  /// Ends next(), reach() and join(), now and from now on. Any thread may call it.
  void interrupt() noexcept;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace param_sync
