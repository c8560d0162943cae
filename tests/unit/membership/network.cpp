// Connections of a World: messages are late, in order, and lost with their connection.
#include "tests/unit/membership/world.hpp"

#include <algorithm>
#include <utility>

namespace membership_test {

void World::connect(int from, const Agreement::Action& action) {
  const int number = static_cast<int>(connections_.size());
  Connection& it = connections_.emplace_back();
  it.node = {from, action.to};
  it.talk = {action.talk, 0};
  it.open = {true, false};
  it.hello = action.message;
  node(from).connections[action.talk] = number;
  at(now_ + delay(), [this, number, until = now_ + kPatience] { reach(number, until); });
}

/// The connection's beginning is at the called rank's host.
void World::reach(int connection, std::uint64_t until) {
  Connection& it = connections_[static_cast<std::size_t>(connection)];
  const auto [from, to] = it.node;
  if (!it.open[0] || it.broken) return;
  const auto talk = it.talk[0];
  const auto fail = [&](std::uint64_t time, bool refused) {
    at(time, [this, connection, talk, refused] {
      Connection& failed = connections_[static_cast<std::size_t>(connection)];
      if (!failed.open[0]) return;
      failed.open[0] = false;
      to_side(connection, 0, [this, connection, id = failed.node[0], talk, refused] {
        input(id, [&](Agreement& agreement) {
          if (!forget(id, talk, connection)) return;
          refused ? agreement.refused(talk, now_) : agreement.ended(talk, now_);
        });
      });
    });
  };
  const std::uint64_t again = std::max(parted(from, to) ? parted_until_ : 0, node(to).paused_until);
  if (node(to).state == State::crashed && !parted(from, to)) return fail(now_ + delay(), true);
  if (again > now_) {
    if (again >= until) return fail(until, false);
    return at(again + 1, [this, connection, until] { reach(connection, until); });
  }
  it.open[1] = true;
  to_side(connection, 0,
          [this, id = from, talk] { input(id, [&](Agreement& agreement) { agreement.opened(talk, now_); }); });
  node(to).backlog.push_back(connection);
  if (node(to).state == State::agrees) take_backlog(to);
}

/// Does something at one side when it arrives there: in order, and not while the rank is paused or cannot be reached.
void World::to_side(int connection, int side, std::function<void()> act) {
  Connection& it = connections_[static_cast<std::size_t>(connection)];
  auto& last = it.last_arrival[static_cast<std::size_t>(side)];
  last = std::max(last + 1, now_ + delay());
  struct Arrival {
    World* world;
    int connection, side;
    std::function<void()> act;
    void operator()() const {
      const Connection& on = world->connections_[static_cast<std::size_t>(connection)];
      const Node& to = world->node(on.node[static_cast<std::size_t>(side)]);
      const bool parted = world->parted(on.node[0], on.node[1]);
      const std::uint64_t later = std::max(parted ? world->parted_until_ : 0, to.paused_until);
      if (later > world->now_) return world->at(later, *this);
      act();
    }
  };
  at(last, Arrival{this, connection, side, std::move(act)});
}

/// True if the rank has still had this connection in this agreement.
bool World::forget(int id, Agreement::Talk talk, int connection) {
  const auto found = node(id).connections.find(talk);
  if (found == node(id).connections.end() || found->second != connection) return false;
  node(id).connections.erase(found);
  return true;
}

void World::deliver(int connection, int side, const Message& message) {
  Connection& it = connections_[static_cast<std::size_t>(connection)];
  if (it.broken || !it.open[static_cast<std::size_t>(side)]) return;
  to_side(connection, side, [this, connection, side, message] {
    const Connection& on = connections_[static_cast<std::size_t>(connection)];
    const auto talk = on.talk[static_cast<std::size_t>(side)];
    if (on.broken || !on.open[static_cast<std::size_t>(side)] || talk == 0) return;
    input(on.node[static_cast<std::size_t>(side)], [&](Agreement& agreement) { agreement.heard(talk, message, now_); });
  });
}

/// One side closes; the other one hears that.
void World::close(int connection, int side) {
  Connection& it = connections_[static_cast<std::size_t>(connection)];
  const auto mine = static_cast<std::size_t>(side), theirs = 1 - mine;
  if (!std::exchange(it.open[mine], false)) return;
  if (it.open[theirs]) {
    to_side(connection, 1 - side, [this, connection, theirs] {
      Connection& on = connections_[static_cast<std::size_t>(connection)];
      if (!std::exchange(on.open[theirs], false) || on.talk[theirs] == 0) return;
      const auto talk = on.talk[theirs];
      const int id = on.node[theirs];
      input(id, [&](Agreement& agreement) {
        if (forget(id, talk, connection)) agreement.ended(talk, now_);
      });
    });
  }
}

/// A connection breaks: what is on its way is lost, and each side hears of it at another time.
void World::lose(int connection) {
  Connection& it = connections_[static_cast<std::size_t>(connection)];
  if (std::exchange(it.broken, true)) return;
  for (const int side : {0, 1}) {
    to_side(connection, side, [this, connection, side] {
      Connection& on = connections_[static_cast<std::size_t>(connection)];
      const auto mine = static_cast<std::size_t>(side);
      const bool was_open = std::exchange(on.open[mine], false);
      if (side == 1 && !was_open) return;
      const auto talk = on.talk[mine];
      const int id = on.node[mine];
      if (talk == 0) return;
      input(id, [&](Agreement& agreement) {
        if (forget(id, talk, connection)) agreement.ended(talk, now_);
      });
    });
  }
}

}  // namespace membership_test
