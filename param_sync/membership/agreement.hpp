#pragma once
/// @file How the ranks that are left agree on the next view: a state machine without sockets and without a clock.
///
/// Lowest reachable id coordinates. Others call it and say what they know; it proposes a view, all members acknowledge
/// it, then it is decided. This is the dynamic voting of Yeger Lotem, Keidar and Dolev ("Dynamic voting for consistent
/// primary components", PODC 1997): a view needs a majority of the view before it, and of each proposal since then that
/// may have been decided by a rank that does not answer. docs/decisions/042-membership.md says why.

#include "param_sync/membership/messages.hpp"

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

namespace param_sync::membership {

/// What a rank knows of views. It outlives an Agreement, also one that fails.
struct Standing {
  Outline decided{};                 ///< the newest view that this rank knows to be decided; this rank is a member
  std::vector<Outline> undecided{};  ///< newer proposals that this rank has acknowledged and that may be decided
  std::uint64_t highest = 0;         ///< the greatest number that this rank has proposed or acknowledged
  int ids = 0;                       ///< ids below it were given, and are never given again
  std::map<int, gpusock::Endpoint> meets{};  ///< where ranks meet, by id; also those of undecided proposals
};

/// The rule on which safety rests. The simulation plants faults in it.
struct Rules {
  bool (*may_decide)(Ids some, Ids of) = is_majority;
};

enum class Outcome {
  entered,    ///< `view` is decided, and this rank is a member
  fenced,     ///< `view` is decided, and this rank is no member: it can never go on
  too_few,    ///< `came` may not decide, as they are not enough of `view`
  unreached,  ///< the groups of `came` cannot connect to this rank's: they go on without it
  late,       ///< no agreement in time
};

struct Result {
  Outcome outcome{};
  Outline view{};
  Ids came = 0;
  std::vector<Addresses> addresses{};  ///< entered: where the members can be reached, by rank
};

/// What a rank asks of the next view.
struct Requests {
  std::vector<Addresses> applicants{};  ///< nodes that have asked it to join
  Ids unreached = 0;                    ///< members to which its group could not connect
};

/// One rank's part in one agreement. Times are ns of one clock, which only grows. Connections have numbers: the
/// agreement gives one to each connection that it opens or that a caller has opened. After each input the driver does
/// what take_actions() says. It ends when result() has a value; then the driver does the last actions and closes all
/// connections.
class Agreement {
 public:
  using Talk = unsigned;  ///< the number of a connection

  struct Action {
    enum class What {
      open,  ///< connect to rank `to`, then send the message, which is a hello; say opened(), refused() or ended()
      send,
      close,
    };
    What what;
    Talk talk;
    int to = 0;
    Message message{};
  };

  /// `standing` outlives the agreement. `patience_ns`: how long a rank waits for another one's next message.
  Agreement(int self, const gpusock::ResolvedEndpoint& listens, Standing& standing, std::uint64_t patience_ns,
            Requests requests = {}, const Rules& rules = {});

  void begin(std::uint64_t now);
  /// A caller has connected and sent its hello. Returns the connection's number.
  Talk called(const Message& hello, std::uint64_t now);
  /// A connection is opened, and the hello is sent.
  void opened(Talk talk, std::uint64_t now);
  /// The peer's host says that no process listens there: the peer has ended.
  void refused(Talk talk, std::uint64_t now);
  /// A connection has ended, or could not be opened for another reason.
  void ended(Talk talk, std::uint64_t now);
  void heard(Talk talk, const Message& message, std::uint64_t now);
  /// Time has passed. To be called at wake_at(), or earlier.
  void pass(std::uint64_t now);
  std::uint64_t wake_at() const;

  std::vector<Action> take_actions();
  const std::optional<Result>& result() const { return result_; }

  /// The longest time from begin() to a result, if a view has `members`.
  static std::uint64_t longest_ns(int members, std::uint64_t patience_ns) {
    return 2 * patience_ns * (static_cast<std::uint64_t>(members) + 2);
  }

 private:
  enum class Phase { calls, gathers, proposes };
  enum class Stage { asked, welcomed, acknowledged };  ///< of a call

  struct Guest {
    Message hello;
    bool welcomed = false;
    bool acknowledged = false;
  };
  struct Probe {
    int to;
    bool open = true;            ///< it is being opened, or is open
    std::uint64_t again_at = 0;  ///< if it is not open
  };

  Talk open(int to);
  void send(Talk talk, const Message& message);
  void close(Talk talk);
  Message message(Kind kind) const;
  Message hello() const;

  void call(int id, std::uint64_t now);
  void advance(std::uint64_t now);
  void hear_candidate(const Message& message, std::uint64_t now);
  void take_proposal(const Message& proposal, std::uint64_t now);

  void gather(std::uint64_t now);
  void fence(Talk talk);
  void welcome_all(std::uint64_t now);
  bool welcome(Talk talk, std::uint64_t now);
  void yield_to(int id, std::uint64_t now);
  void probe_missing();
  void propose_if_all_came(std::uint64_t now);
  void propose(std::uint64_t now);
  Ids connected(Ids members) const;
  std::optional<Outline> lacks_majority(Ids members) const;
  std::vector<Outline> find_undecided(Ids members) const;
  bool holds(int id, const Outline& proposal) const;
  std::vector<Addresses> find_applicants(Ids members) const;
  void note_addresses(const Outline& view, const std::vector<Addresses>& addresses);
  void give_proposal_up(std::uint64_t now, std::uint64_t until);
  void decide_if_all_acknowledged();
  void dismiss_guests(std::uint32_t candidate);
  void close_probes();

  void learn(const Outline& decided);
  void finish(Outcome outcome, const Outline& view, Ids came = 0);
  Ids came() const;

  const int self_;
  const gpusock::ResolvedEndpoint listens_;
  Standing& standing_;
  const std::uint64_t patience_ns_;
  const Requests requests_;
  const Rules rules_;

  Phase phase_ = Phase::calls;
  std::uint64_t until_ = 0;  ///< when the phase, or the stage of a call, has taken too long
  std::uint64_t limit_ = 0;
  Ids gone_ = 0;
  Talk talks_ = 0;
  std::map<Talk, Guest> guests_;  ///< callers, and coordinators that look for this rank

  int candidate_ = -1;  ///< whom this rank calls
  Stage stage_ = Stage::asked;
  Talk call_ = 0;  ///< 0: to be opened again
  std::uint64_t call_again_at_ = 0;
  std::vector<Addresses> proposed_addresses_;

  std::map<Talk, Probe> probes_;
  Outline proposed_;
  Ids voters_ = 0;  ///< members of the proposal that acknowledge it: all but those that join

  std::vector<Action> actions_;
  std::optional<Result> result_;
};

}  // namespace param_sync::membership
