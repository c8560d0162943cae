// Random trainings of nodes with replicas that are lost, stopped, suspected, cut off from each other, slow, told to
// leave, and joined by others, in each phase of a step and of a change of view. Nodes use the rules that real ones
// use: the clocks of ranges, who waits for replicas, which versions are left, and which view all go on from. An oracle
// computes each step again by itself. Faults that are planted must be found.
#include "apps/param_sync/plan/held_views.hpp"
#include "param_sync/store/clock/clock.hpp"
#include "param_sync/store/held_versions.hpp"
#include "param_sync/store/range_clocks.hpp"
#include "param_sync/store/replicas.hpp"
#include "tests/support/sanitized.hpp"
#include "tests/support/seeds.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

namespace survival_simulation {
namespace {

using param_sync::ChosenView;
using param_sync::HeldOutline;
using param_sync::store::HeldVersions;
using param_sync::store::RangeClocks;
using param_sync::store::Replicas;

/// What goes wrong.
enum class Fault {
  none,
  reads_before_replicas,    ///< an owner answers readers before keepers have the version
  says_it_has_before,       ///< a keeper says that it has a version before that has come
  keeps_one_version,        ///< owners do not keep the version before
  goes_on_from_the_newest,  ///< nodes take the newest view's weights, whoever has them
  forgets_what_was_before   ///< a node that begins a view keeps nothing of the one before
};

/// The weights of a range, in one word: equal words are equal weights.
using Weights = std::uint64_t;
using Model = std::vector<Weights>;  // by range
constexpr std::size_t kRanges = 3;

std::uint64_t mixed(std::uint64_t a, std::uint64_t b) {
  std::uint64_t x = a * 0x9e3779b97f4a7c15u ^ (b + 0x632be59bd9b4e019u);
  x ^= x >> 29;
  x *= 0xbf58476d1ce4e5b9u;
  return x ^ x >> 32;
}
/// What a node pushes for a range after a step.
std::uint64_t gradient(int rank, std::size_t range, const Model& model) {
  std::uint64_t word = mixed(static_cast<std::uint64_t>(rank), range);
  for (const Weights weights : model) word = mixed(word, weights);
  return word;
}
/// The weights after the sum of all pushes, in the order of ranks.
Weights applied(Weights weights, const std::vector<std::uint64_t>& pushed) {
  for (const std::uint64_t push : pushed) weights = mixed(weights, push);
  return weights;
}
/// The oracle's step.
Model next_model(const Model& model, int nodes) {
  Model next;
  for (std::size_t range = 0; range < model.size(); ++range) {
    std::vector<std::uint64_t> pushed;
    for (int rank = 0; rank < nodes; ++rank) pushed.push_back(gradient(rank, range, model));
    next.push_back(applied(model[range], pushed));
  }
  return next;
}

/// A version of a range that a node has.
struct Held {
  std::size_t range = 0;
  std::uint64_t clock = 0;
  Weights weights = 0;
};
/// What a node has of a view.
struct HeldTraining {
  std::uint64_t view = 0;
  int nodes = 0;
  std::uint64_t first_step = 0;
  param_sync::ViewOrigin origin;
  std::vector<Held> ranges;
};

enum class Kind { push, pull, pull_replica, replicated, values };

struct Message {
  Kind kind;
  std::size_t range;
  std::uint64_t clock;
  std::uint64_t word = 0;
};

/// What a node does in a view.
enum class Doing {
  tells,     ///< it has told the others what it holds, and waits for what they hold
  gathers,   ///< likewise, for the weights
  computes,  ///< a step
  pulls,     ///< it waits for the weights that it has asked for
  failed,    ///< the view has ended for it: it wants to agree
  gone       ///< for ever
};

/// A range at its owner.
struct Owned {
  Weights weights = 0;
  std::optional<Held> before;
  std::vector<std::uint64_t> pushed;  ///< by rank
  std::vector<std::uint64_t> received, contained, replicated;
  std::vector<Message> waiting;  ///< pulls; `word` is the rank
};

struct Kept {
  std::optional<Held> versions[2];
};

struct Node {
  int id = 0;
  Doing doing = Doing::failed;
  std::uint64_t slowness = 1;
  bool stopped = false;
  std::uint64_t view = 0;          ///< that it is in
  std::vector<HeldTraining> held;  ///< of views that have ended
  std::vector<HeldTraining> told;  ///< what it has told the others of these
  // In the view:
  int rank = 0;
  bool has_begun = false;
  std::uint64_t goes_on_from = 0, first_step = 0, clock = 0;
  Model model;
  std::map<std::size_t, Owned> owned;
  std::map<std::size_t, Kept> kept;
  std::size_t pushes = 0;  ///< ranges that it has pushed in this step
  std::map<std::size_t, Weights> pulled;
  std::uint64_t ended_steps = 0;  ///< counted over all views: the last step whose pulls have all returned
};

struct View {
  std::uint64_t number = 0;
  std::vector<int> members;  // ids, ascending
  std::set<int> begun;       // ids
  // What the oracle knows, once some node has begun it:
  std::optional<std::uint64_t> first_step;
  std::vector<Model> models;  // by clock
};

int owner_of(std::size_t range, int nodes) { return static_cast<int>(range) % nodes; }

/// All nodes, what is on its way between them, and the oracle.
class World {
 public:
  World(std::uint64_t seed, Fault fault) : random_(seed), fault_(fault) {
    const int nodes = 2 + below(5);
    replicas_ = 2 + below(std::min(2, nodes - 1));
    View& first = views_[1];
    first.number = 1;
    for (int id = 0; id < nodes; ++id) {
      first.members.push_back(id);
      nodes_.push_back(std::make_unique<Node>());
      nodes_.back()->id = id;
      nodes_.back()->slowness = 1 + static_cast<std::uint64_t>(below(below(3) == 0 ? 10 : 2));
    }
    Model model;
    for (std::size_t range = 0; range < kRanges; ++range) model.push_back(mixed(seed, range));
    decided_ = 1;
    for (const int id : first.members) enter(*nodes_[static_cast<std::size_t>(id)], first);
    for (const int id : first.members) begin(*nodes_[static_cast<std::size_t>(id)], 0, 0, model);
    harm_ = 40 + static_cast<std::uint64_t>(below(400));
  }

  /// Runs for some turns. Returns what the oracle objects to, or "".
  std::string run(int turns) {
    for (int turn = 0; turn < turns && objection_.empty(); ++turn) {
      const bool delivers = below(3) != 0 && deliver();
      if (!delivers) act(any_node());
      if (random_() % harm_ == 0) harm();
      if (below(12) == 0) agree();
    }
    calm();
    return objection_;
  }

  std::uint64_t steps() const { return steps_; }
  std::uint64_t losses() const { return losses_; }
  std::uint64_t recoveries() const { return recoveries_; }
  std::uint64_t joins() const { return joins_; }
  std::uint64_t refusals() const { return refusals_; }

 private:
  using Channel = std::pair<int, int>;  // from one id to another

  int below(int count) { return static_cast<int>(random_() % static_cast<std::uint64_t>(count)); }
  Node& at(int id) { return *nodes_[static_cast<std::size_t>(id)]; }
  Node& any_node() { return *nodes_[random_() % nodes_.size()]; }
  View& view_of(const Node& node) { return views_[node.view]; }
  int nodes_of(const Node& node) { return static_cast<int>(view_of(node).members.size()); }
  int id_of(const Node& node, int rank) { return view_of(node).members[static_cast<std::size_t>(rank)]; }
  int rank_of(const View& view, int id) const {
    return static_cast<int>(std::ranges::find(view.members, id) - view.members.begin());
  }
  Replicas replicas_of(int nodes) const { return {nodes, std::min(replicas_, nodes)}; }
  bool can_reach(int a, int b) const { return cut_.empty() || cut_.contains(a) == cut_.contains(b); }
  void object(const std::string& what) {
    if (objection_.empty()) objection_ = what;
  }

  // A step, as workers' kernels and servers make it.

  void send(const Node& from, int to_rank, const Message& message) {
    channels_[{from.id, id_of(from, to_rank)}].push_back({from.view, message});
  }

  void act(Node& node) {
    if (node.stopped || random_() % node.slowness != 0) return;
    if (node.doing == Doing::computes) return push_next(node);
    if (node.doing == Doing::tells || node.doing == Doing::gathers) return go_on(node);
    if (node.doing == Doing::pulls && node.pulled.size() == kRanges) end_step(node);
  }

  void push_next(Node& node) {
    const int nodes = nodes_of(node);
    if (node.pushes < kRanges) {
      const std::size_t range = node.pushes++;
      return send(node, owner_of(range, nodes),
                  {Kind::push, range, node.clock, gradient(node.rank, range, node.model)});
    }
    ++node.clock;
    node.doing = Doing::pulls;
    for (std::size_t range = 0; range < kRanges; ++range) {
      const int owner = owner_of(range, nodes);
      const bool keeps = replicas_of(nodes).keeps(owner, node.rank);
      if (keeps) node.kept[range].versions[node.clock % 2].reset();
      if (keeps && fault_ == Fault::says_it_has_before) send(node, owner, {Kind::replicated, range, node.clock});
      send(node, owner, {keeps ? Kind::pull_replica : Kind::pull, range, node.clock});
    }
  }

  void end_step(Node& node) {
    View& view = view_of(node);
    Model model;
    for (const auto& [range, weights] : node.pulled) model.push_back(weights);
    node.pulled.clear();
    node.pushes = 0;
    if (model != expected(view, node.clock)) object("a node has read other weights than a serial run has");
    node.model = model;
    node.doing = Doing::computes;
    node.ended_steps = node.first_step + node.clock;
    steps_ = std::max(steps_, node.ended_steps);
  }

  /// What the oracle computes for a version of a view.
  const Model& expected(View& view, std::uint64_t clock) {
    while (view.models.size() <= clock) {
      view.models.push_back(next_model(view.models.back(), static_cast<int>(view.members.size())));
    }
    return view.models[clock];
  }

  /// One message arrives. Returns false if none is on its way.
  bool deliver() {
    if (channels_.empty()) return false;
    auto channel = std::next(channels_.begin(), below(static_cast<int>(channels_.size())));
    const auto [from, to] = channel->first;
    if (!can_reach(from, to) || at(to).stopped) return false;
    const auto [view, message] = channel->second.front();
    Node& node = at(to);
    const bool is_over = node.view != view || node.doing == Doing::failed || node.doing == Doing::gone;
    if (!is_over && !node.has_begun) return false;  // it stays in the ring until the node's server starts
    channel->second.pop_front();
    if (channel->second.empty()) channels_.erase(channel);
    if (is_over) return true;  // connections belong to a view: what is left of an older one is never read
    const int rank = rank_of(views_[view], from);
    if (message.kind == Kind::values) {
      take_values(node, message, rank);
    } else {
      serve(node, message, rank);
    }
    return true;
  }

  void take_values(Node& node, const Message& message, int owner) {
    if (replicas_of(nodes_of(node)).keeps(owner, node.rank)) {
      node.kept[message.range].versions[message.clock % 2] = Held{message.range, message.clock, message.word};
      send(node, owner, {Kind::replicated, message.range, message.clock});
    }
    node.pulled[message.range] = message.word;
  }

  RangeClocks clocks(Node& node, Owned& owned) {
    const param_sync::AnyClock bsp = param_sync::Bsp();
    return {param_sync::store::Clock(bsp), owned.received.data(), owned.contained.data(), nodes_of(node)};
  }

  void serve(Node& node, const Message& message, int from) {
    Owned& owned = node.owned.at(message.range);
    const auto index = static_cast<std::size_t>(from);
    if (message.kind == Kind::push) {
      if (!clocks(node, owned).may_have(from, message.clock)) object("a push has another number than it must have");
      if (!clocks(node, owned).may_push(from)) object("a push comes before the one before it is applied");
      owned.pushed[index] = message.word;
      if (clocks(node, owned).end_push(from)) apply(node, owned, message.range);
    } else if (message.kind == Kind::replicated) {
      owned.replicated[index] = message.clock;
    } else {
      owned.waiting.push_back({message.kind, message.range, message.clock, index});
    }
    answer_all(node, owned);
  }

  void apply(Node& node, Owned& owned, std::size_t range) {
    const std::uint64_t clock = owned.contained[0];
    owned.before = Held{range, clock, owned.weights};
    if (fault_ == Fault::keeps_one_version) owned.before.reset();
    owned.weights = applied(owned.weights, owned.pushed);
    clocks(node, owned).apply_all();
    if (owned.weights != expected(view_of(node), clock + 1)[range]) object("a sum is wrong");
  }

  void answer_all(Node& node, Owned& owned) {
    const Replicas replicas = replicas_of(nodes_of(node));
    std::erase_if(owned.waiting, [&](const Message& pull) {
      const auto reader = static_cast<int>(pull.word);
      if (!clocks(node, owned).may_read(reader, pull.clock)) return false;
      for (int rank = 0; rank < nodes_of(node) && fault_ != Fault::reads_before_replicas; ++rank) {
        const std::uint64_t kept = owned.replicated[static_cast<std::size_t>(rank)];
        if (replicas.waits_for(node.rank, reader, rank, pull.clock, kept)) return false;
      }
      send(node, reader, {Kind::values, pull.range, pull.clock, owned.weights});
      return true;
    });
  }

  // Views.

  /// What a node has of the view that has ended for it (Store::held()).
  HeldTraining held(const Node& node) {
    HeldTraining all{node.view, nodes_of(node), node.first_step, {}, {}};
    for (const auto& [range, owned] : node.owned) {
      all.ranges.push_back({range, owned.contained[0], owned.weights});
      if (owned.before) all.ranges.push_back(*owned.before);
    }
    for (const auto& [range, kept] : node.kept) {
      for (const auto& version : kept.versions) {
        if (version) all.ranges.push_back(*version);
      }
    }
    return all;
  }

  /// The view ends for a node: a call has failed, or its deadline has passed. All its connections end.
  void fail(Node& node) {
    if (node.doing == Doing::gone || node.doing == Doing::failed) return;
    if (node.has_begun) {
      if (fault_ == Fault::forgets_what_was_before) node.held.clear();
      param_sync::keep(node.held, held(node));
    }
    node.has_begun = false;
    node.doing = Doing::failed;
  }

  /// Nodes whose view has ended for another member see that sooner or later.
  bool sees_a_failure(const Node& node) {
    return std::ranges::any_of(views_[node.view].members, [&](int id) {
      const Node& other = at(id);
      const bool ended = other.doing == Doing::gone || other.doing == Doing::failed || other.view != node.view;
      return ended && can_reach(node.id, id);
    });
  }

  /// Those that have failed and reach each other agree on the next view: by the rule of membership, which has a
  /// simulation of its own.
  void agree() {
    for (const auto& node : nodes_) {
      const bool is_in = node->doing != Doing::gone && node->doing != Doing::failed && !node->stopped;
      if (is_in && sees_a_failure(*node) && below(3) != 0) fail(*node);
    }
    const View& decided = views_[decided_];
    const bool side = below(2) == 0;
    std::vector<int> come, all_there;
    for (const int id : decided.members) {
      const Node& node = at(id);
      if (node.doing == Doing::gone || node.stopped || cut_.contains(id) != (side && !cut_.empty())) continue;
      all_there.push_back(id);
      if (node.doing == Doing::failed) come.push_back(id);
    }
    if (come.empty()) return;
    // Whoever is late by more than the patience is left out; that is rare.
    if (come.size() != all_there.size() && below(8) != 0) return;
    const bool has_lowest = come.front() == decided.members.front();
    const std::size_t twice = 2 * come.size();
    const bool is_majority = twice > decided.members.size() || (twice == decided.members.size() && has_lowest);
    if (!is_majority) {
      // Too few: they end, if the others are out of reach for good.
      if (below(20) == 0) {
        for (const int id : come) lose(at(id));
      }
      return;
    }
    if (below(4) == 0 && nodes_.size() < 12) come.push_back(let_in());
    View& view = views_[++last_number_];
    view.number = last_number_;
    view.members = come;
    decided_ = last_number_;
    for (const int id : view.members) enter(at(id), view);
  }

  int let_in() {
    nodes_.push_back(std::make_unique<Node>());
    Node& node = *nodes_.back();
    node.id = static_cast<int>(nodes_.size()) - 1;
    node.slowness = 1 + static_cast<std::uint64_t>(below(2));
    ++joins_;
    return node.id;
  }

  void enter(Node& node, const View& view) {
    node.view = view.number;
    node.rank = rank_of(view, node.id);
    node.has_begun = false;
    node.doing = Doing::tells;
    node.owned.clear();
    node.kept.clear();
    node.pulled.clear();
    node.told = node.held;
  }

  /// True if all members of a node's view have come so far. They answer each other, so each node sees that for itself,
  /// and some may end the operation when others fail.
  bool all_have(const Node& node, Doing done) {
    return std::ranges::all_of(view_of(node).members, [&](int id) {
      const Node& other = at(id);
      if (other.view != node.view || !can_reach(node.id, id)) return false;
      return other.doing >= done && other.doing != Doing::failed && other.doing != Doing::gone;
    });
  }

  /// What the nodes of a view tell each other, and how they put their weights together (StoreNode::go_on(), recover()).
  void go_on(Node& node) {
    if (!all_have(node, Doing::tells)) return;
    if (node.doing == Doing::tells) {
      node.doing = Doing::gathers;
      return;
    }
    if (!all_have(node, Doing::gathers)) return;
    std::vector<HeldOutline> outlines;
    const View& view = view_of(node);
    for (const int id : view.members) {
      outlines.push_back(param_sync::outline_of(at(id).told));
    }
    std::vector<ChosenView> chosen = param_sync::choose_views(outlines);
    if (fault_ == Fault::goes_on_from_the_newest && !chosen.empty()) chosen = {newest_of(outlines)};
    for (const ChosenView& from : chosen) {
      if (recover(node, from)) return;
    }
    ++refusals_;
    if (!may_lack()) object("ranges are missing, and less nodes were lost than have replicas");
    for (const int id : view.members) lose(at(id));
  }

  static ChosenView newest_of(const std::vector<HeldOutline>& nodes) {
    param_sync::HeldView newest;
    for (const HeldOutline& node : nodes) {
      for (const param_sync::HeldView& of : node.views) newest = of.view > newest.view ? of : newest;
    }
    return {newest.view, static_cast<int>(newest.nodes), newest.first_step, newest.origin};
  }

  HeldTraining held_of(int id, std::uint64_t view) {
    const std::vector<HeldTraining>& told = at(id).told;
    const auto of = std::ranges::find(told, view, &HeldTraining::view);
    return of == told.end() ? HeldTraining{} : *of;
  }

  bool recover(Node& node, const ChosenView& from) {
    const std::vector<int>& members = view_of(node).members;
    std::vector<HeldVersions> versions;
    for (const int id : members) {
      const HeldTraining& held = held_of(id, from.view);
      for (std::size_t range = 0; range < kRanges; ++range) {
        std::optional<std::uint64_t> newest;
        const auto has = [&](std::uint64_t clock) {
          return std::ranges::any_of(held.ranges,
                                     [&](const Held& of) { return of.range == range && of.clock == clock; });
        };
        for (const Held& of : held.ranges) {
          if (held.view == from.view && of.range == range) newest = std::max(newest.value_or(0), of.clock);
        }
        versions.push_back(newest ? HeldVersions::of(*newest, *newest != 0 && has(*newest - 1)) : HeldVersions{});
      }
    }
    const std::uint64_t clock = param_sync::store::newest_of_all(versions, kRanges);
    Model model;
    for (std::size_t range = 0; range < kRanges; ++range) {
      const std::size_t first = param_sync::store::first_with(versions, kRanges, range, clock);
      if (first == members.size()) return false;
      const HeldTraining& held = held_of(members[first], from.view);
      const auto of = std::ranges::find_if(
          held.ranges, [&](const Held& some) { return some.range == range && some.clock == clock; });
      model.push_back(of->weights);
    }
    begin(node, from.view, from.first_step + clock, model);
    return true;
  }

  /// A node begins a view with these weights. The oracle says whether they are right.
  void begin(Node& node, std::uint64_t from, std::uint64_t first_step, const Model& model) {
    View& view = view_of(node);
    const int nodes = nodes_of(node);
    if (from != 0) {
      ++recoveries_;
      View& before = views_[from];
      if (model != expected(before, first_step - *before.first_step))
        object("nodes go on with other weights than they had");
      for (const int id : view.members) {
        if (at(id).ended_steps > first_step) object("a step is lost that a node has ended");
      }
      if (view.first_step && *view.first_step != first_step) object("nodes of a view begin with different steps");
    }
    if (!view.first_step) view.models = {model};
    view.first_step = first_step;
    if (view.models.front() != model) object("nodes of a view begin with different weights");
    node.first_step = first_step;
    node.clock = 0;
    node.pushes = 0;
    node.model = model;
    for (std::size_t range = 0; range < kRanges; ++range) {
      const int owner = owner_of(range, nodes);
      if (owner == node.rank) {
        const auto all = static_cast<std::size_t>(nodes);
        Owned& owned = node.owned[range];
        owned = {model[range],
                 std::nullopt,
                 std::vector<std::uint64_t>(all),
                 std::vector<std::uint64_t>(all),
                 std::vector<std::uint64_t>(all),
                 std::vector<std::uint64_t>(all),
                 {}};
      }
      if (replicas_of(nodes).keeps(owner, node.rank)) node.kept[range].versions[0] = Held{range, 0, model[range]};
    }
    node.has_begun = true;
    view.begun.insert(node.id);
    if (view.begun.size() == view.members.size()) complete_ = std::max(complete_, view.number);
    node.doing = Doing::computes;
  }

  /// True if so many nodes are lost since all members of a view had begun it that weights may be, too.
  bool may_lack() {
    const std::vector<int>& left = views_[decided_].members;
    const auto is_lost = [&](int id) {
      return at(id).doing == Doing::gone || std::ranges::find(left, id) == left.end();
    };
    const View& complete = views_[complete_];
    return std::ranges::count_if(complete.members, is_lost) >=
           replicas_of(static_cast<int>(complete.members.size())).count;
  }

  // Harm.

  void lose(Node& node) {
    if (node.doing == Doing::gone) return;
    node.doing = Doing::gone;
    node.has_begun = false;
    ++losses_;
    // What it has sent may arrive, or not: a part of it, in order.
    for (auto& [channel, messages] : channels_) {
      if (channel.first != node.id) continue;
      messages.resize(static_cast<std::size_t>(below(static_cast<int>(messages.size()) + 1)),
                      std::pair{std::uint64_t{0}, Message{Kind::push, 0, 0}});
    }
    std::erase_if(channels_, [](const auto& channel) { return channel.second.empty(); });
  }

  void harm() {
    Node& node = any_node();
    switch (below(6)) {
      case 0:  // killed, or told to leave
        if (there() > 1) lose(node);
        return;
      case 1:  // stopped
        node.stopped = !node.stopped;
        return;
      case 2:  // suspected, though it is only slow
        if (!node.stopped) fail(node);
        return;
      case 3:  // a partition begins, or ends
        if (cut_.empty()) {
          for (const auto& some : nodes_) {
            if (below(2) == 0) cut_.insert(some->id);
          }
        } else {
          cut_.clear();
        }
        return;
      case 4:  // others join: all end the view
        if (!node.stopped && nodes_.size() < 12) fail(node);
        return;
      default:  // slow
        node.slowness = 1 + static_cast<std::uint64_t>(below(10));
    }
  }

  int there() const {
    return static_cast<int>(std::ranges::count_if(nodes_, [](const auto& node) { return node->doing != Doing::gone; }));
  }

  /// All harm ends. Those that may go on do so.
  void calm() {
    if (!objection_.empty()) return;
    cut_.clear();
    for (const auto& node : nodes_) {
      node->stopped = false;
      node->slowness = 1;
    }
    const std::uint64_t before = steps_;
    constexpr int kEnough = 6'000;
    for (int turn = 0; turn < kEnough && objection_.empty() && steps_ < before + 2; ++turn) {
      if (!deliver()) act(any_node());
      act(any_node());
      if (turn % 8 == 0) agree();
      // Members of older views are refused, and end.
      for (const auto& node : nodes_) {
        const bool is_member = std::ranges::find(views_[decided_].members, node->id) != views_[decided_].members.end();
        if (!is_member) lose(*node);
      }
    }
    std::size_t left = 0;
    for (const int id : views_[decided_].members) left += at(id).doing != Doing::gone ? 1 : 0;
    if (2 * left > views_[decided_].members.size() && steps_ < before + 2) object("nodes that may go on do not");
  }

  std::mt19937_64 random_;
  Fault fault_;
  int replicas_ = 2;
  std::vector<std::unique_ptr<Node>> nodes_;  // by id
  std::map<std::uint64_t, View> views_;
  std::uint64_t decided_ = 0, last_number_ = 1;
  std::uint64_t complete_ = 0;  // the last view that all members have begun
  std::map<Channel, std::deque<std::pair<std::uint64_t, Message>>> channels_;
  std::set<int> cut_;  // these reach only each other, and the others too
  std::uint64_t harm_ = 100;
  std::uint64_t steps_ = 0, losses_ = 0, recoveries_ = 0, joins_ = 0, refusals_ = 0;
  std::string objection_;
};

constexpr int kTurns = 1'500;

struct Counts {
  std::uint64_t steps = 0, losses = 0, recoveries = 0, joins = 0, refusals = 0;
};

TEST(SurvivalSimulation, NoStepIsLostAndNoSumIsWrong) {
  const auto [first, last] = gpusock::seeds_or({1, gpusock::kSanitized ? 200 : 3'000});
  Counts all;
  for (std::uint64_t seed = first; seed <= last; ++seed) {
    World world(seed, Fault::none);
    ASSERT_EQ(world.run(kTurns), "") << "GPUSOCK_TEST_SEEDS=" << seed << " runs it again";
    all.steps += world.steps();
    all.losses += world.losses();
    all.recoveries += world.recoveries();
    all.joins += world.joins();
    all.refusals += world.refusals();
  }
  const std::uint64_t count = last - first + 1;
  RecordProperty("steps", std::to_string(all.steps));
  RecordProperty("losses", std::to_string(all.losses));
  RecordProperty("recoveries", std::to_string(all.recoveries));
  RecordProperty("joins", std::to_string(all.joins));
  RecordProperty("refusals", std::to_string(all.refusals));
  if (count < 100) return;
  EXPECT_GT(all.steps, 5 * count);
  EXPECT_GT(all.losses, count);
  EXPECT_GT(all.recoveries, 3 * count);
  EXPECT_GT(all.joins, count / 3);
}

TEST(SurvivalSimulation, FindsFaultsThatArePlanted) {
  constexpr std::uint64_t kSeedsOfFault = 2'000;
  for (const Fault fault : {Fault::reads_before_replicas, Fault::says_it_has_before, Fault::keeps_one_version,
                            Fault::goes_on_from_the_newest, Fault::forgets_what_was_before}) {
    std::uint64_t seed = 1;
    while (seed <= kSeedsOfFault && World(seed, fault).run(kTurns).empty()) ++seed;
    EXPECT_LE(seed, kSeedsOfFault) << "fault " << static_cast<int>(fault);
  }
}

}  // namespace
}  // namespace survival_simulation
