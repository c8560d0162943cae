#pragma once
/// @file Ranks that agree on views, in virtual time: crashes, pauses, partitions, delays and lost connections follow
/// from a seed. An oracle judges each view that a rank enters.

#include "param_sync/membership/agreement.hpp"

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <queue>
#include <random>
#include <string>
#include <vector>

namespace membership_test {

using namespace param_sync::membership;

/// What is done wrong.
enum class Fault {
  none,
  no_majority,         ///< any ranks may decide
  any_half,            ///< half of the members may decide, also without the lowest id
  hides_newer_views,   ///< a coordinator does not learn of views that its callers know to be decided
  forgets_undecided,   ///< a rank forgets what it has acknowledged once it has left a coordinator
  enters_at_proposal,  ///< a rank enters a view that is only proposed
  joiners_vote,        ///< ranks that join count as if they had been there
  gives_ids_again,     ///< ids of ranks that are lost are given to others
};

class World {
 public:
  static constexpr std::uint64_t kPatience = 1'000'000;

  World(std::uint64_t seed, Fault fault);

  /// Faults come for a while, then all that live and can go on meet once more. Returns what the oracle objects to, or
  /// "".
  std::string run();

  /// Ranks `gone` have crashed, the others know that at about the same time, and nothing else happens.
  std::string run_calm(Ids gone, bool paused);

  /// The lowest rank calls late, and nothing else happens.
  std::string run_late();

  /// The group of rank `first` cannot connect to those of `others`, all agree, and nothing else happens. `meet`: they
  /// can still reach each other to agree. Those that come go on without `left_out`.
  std::string run_unconnected(int first, Ids others, bool meet, Ids left_out);

  /// So many ranks ask to join, and nothing else happens; or all of them crash when they have been let in.
  std::string run_join(int joiners, bool crash);

  int nodes() const { return nodes_there_; }  ///< with those that have joined, and those that are lost
  int joined() const { return nodes_there_ - first_nodes_; }
  int views() const { return static_cast<int>(decided_.size()); }  ///< that were entered, the first one among them

 private:
  /// joins: the others have let it in, and it does not know.
  enum class State { absent, joins, trains, agrees, failed, fenced, crashed };

  /// A process that asks to join.
  struct Applicant {
    bool crashed = false;
    int id = -1;  ///< after a view has it
  };

  struct Node {
    State state = State::absent;
    Standing standing;
    std::unique_ptr<Agreement> agreement;
    Outline view;  ///< the last one that it has entered
    std::uint64_t since = 0;
    std::uint64_t paused_until = 0;
    bool was_paused = false;  ///< during this agreement
    std::map<Agreement::Talk, int> connections;
    std::vector<int> backlog;
    std::uint64_t wakes_at = 0;
    std::vector<Addresses> applicants;  ///< that have asked it
    Ids unreached = 0;                  ///< to these its group cannot connect
  };

  /// Side 0 has opened it.
  struct Connection {
    std::array<int, 2> node{};
    std::array<Agreement::Talk, 2> talk{};
    std::array<bool, 2> open{true, true};
    std::array<std::uint64_t, 2> last_arrival{};  ///< towards each side; messages stay in order
    bool broken = false;
    Message hello;
  };

  struct Event {
    std::uint64_t at;
    std::uint64_t order;
    std::function<void()> act;
    bool operator<(const Event& other) const { return at != other.at ? at > other.at : order > other.order; }
  };

  std::uint64_t below(std::uint64_t limit) { return random_() % limit; }
  bool chance(std::uint64_t of) { return below(of) == 0; }
  std::uint64_t delay();
  void at(std::uint64_t time, std::function<void()> act);
  Node& node(int id) { return nodes_[static_cast<std::size_t>(id)]; }
  bool parted(int a, int b) const;
  bool runs(const Node& node) const { return node.paused_until <= now_; }

  void turn(std::uint64_t until);
  void begin(int id);
  void input(int id, const std::function<void(Agreement&)>& give);
  void do_actions(int id);
  void wake(int id);
  void end_agreement(int id);

  void connect(int from, const Agreement::Action& action);
  void reach(int connection, std::uint64_t until);
  void to_side(int connection, int side, std::function<void()> act);
  void deliver(int connection, int side, const Message& message);
  void close(int connection, int side);
  void lose(int connection);
  void take_backlog(int id);
  bool forget(int id, Agreement::Talk talk, int connection);

  void apply(int to);  ///< a process asks a rank to let it join
  void let_in(const Result& result);
  void admit(int id, const Outline& view, int ids, const std::vector<Addresses>& addresses);
  void look(int id);  ///< a rank that trains looks whether the others do
  bool is_complete(const Outline& view) const;
  void enter(int id, const Outline& view);
  void crash(int id);
  void do_harm();
  bool is_settled() const;
  void meet_again();
  void check_chain();
  void check_addresses(const Result& result);
  void object(const std::string& what) {
    if (objection_.empty()) objection_ = what;
  }

  std::mt19937_64 random_;
  const Fault fault_;
  Rules rules_;
  int first_nodes_ = 0;
  int nodes_there_ = 0;      ///< ids below it are, or were, in a view
  std::vector<Node> nodes_;  ///< by id
  std::vector<Applicant> applicants_;
  std::map<int, int> process_of_;        ///< by id, as its addresses tell it
  std::map<int, std::uint64_t> joined_;  ///< by id: the number of its first view
  std::deque<Connection> connections_;
  std::priority_queue<Event> events_;
  std::uint64_t orders_ = 0;
  std::uint64_t now_ = 0;
  std::uint64_t slowness_ = 1;
  std::map<int, Ids> cut_;  ///< by rank: these cannot reach it, ever
  Ids part_ = 0;            ///< these cannot reach the others
  std::uint64_t parted_until_ = 0;
  bool harms_ = false;
  bool suspects_ = true;  ///< ranks look whether the others train
  std::map<std::uint64_t, Ids> decided_;
  Outline complete_;  ///< the last view that all of its members have entered
  std::string objection_;
};

}  // namespace membership_test
