#include "runs/node_run.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <utility>

namespace param_sync {
namespace {

/// For nodes that go on after a loss. The others see by themselves which node is lost, so this one does not wait.
LossObserver without_waiting() {
  return {.tell = {}, .await_others = [] {}};
}

/// Leaves a node's own failures in its settings.
Config& own_part(Config& config) {
  std::erase_if(config.fail_at, [&](const FailAt& at) { return at.rank != config.rank; });
  return config;
}

}  // namespace

NodeRun::NodeRun(const Config& config, const Dataset& data, LossObserver observer,
                 std::function<void(const std::string&, bool)> tell)
    : first_(config),
      config_(config),
      data_(data),
      tell_(std::move(tell)),
      observer_(survives() ? without_waiting() : std::move(observer)),
      node_(std::make_unique<Node>(own_part(config_), data_, observer_)) {
  if (survives()) membership_.emplace(config.rank);
}

gpusock::Endpoint NodeRun::listen(const gpusock::Endpoint& at) {
  listens_at_ = node_->listen(at);
  return listens_at_;
}

void NodeRun::connect(const std::vector<gpusock::Endpoint>& peers) {
  node_->connect(peers);
  if (!survives()) return;
  const gpusock::Endpoint meets = membership_->listen(listens_at_.with_port(0));
  const std::vector<gpusock::Endpoint> all = node_->exchange(meets);
  View first;
  for (int rank = 0; rank < config_.nodes; ++rank) {
    first.members.push_back({rank, all[static_cast<std::size_t>(rank)], {}});
  }
  membership_->begin(first);
}

Trained NodeRun::train(const ProgressSink& progress) {
  for (;;) {
    std::string why;
    try {
      Trained trained{config_, node_->train(progress), node_->weights()};
      trained.report.lost = lost_;
      return trained;
    } catch (const NodeFailure& failure) {
      if (!survives()) throw;
      why = with_first_ranks(failure.what());
    }
    go_on(why);
  }
}

/// Makes the node of the next view, with the nodes that are left.
void NodeRun::go_on(const std::string& why) {
  constexpr int kAttemptsMax = 3;  // with the same nodes
  const View begun = membership_->view();
  held_.newest = node_->held();
  held_.newest.view = begun.number;
  replace(nullptr);
  // A failure of the first step that no loss explains would come again.
  const bool has_steps = std::ranges::any_of(held_.newest.ranges,
                                             [](const HeldRange& range) { return range.clock != 0; });
  std::string failure = why;
  for (int attempts = has_steps ? 0 : kAttemptsMax;; ++attempts) {
    const std::size_t nodes_before = membership_->view().members.size();
    bootstrap::Rendezvous host(listens_at_.with_port(0));
    agree(failure, host.where());
    if (membership_->view().members.size() != nodes_before) attempts = 0;
    if (attempts >= kAttemptsMax) throw NodeFailure(failure);
    if (begin_view(host, failure)) break;
  }
  const std::uint64_t from = node_->goes_on_from_view();
  if (held_.newest.view == from) held_.older = std::move(held_.newest);
  if (held_.older.view != from) held_.older = {};
  held_.newest = {};
  note_lost(begun);
}

/// Enters the next view. `why` is what has ended the one before.
void NodeRun::agree(const std::string& why, const gpusock::Endpoint& where) {
  ++agreements_;
  for (const FailAt& at : config_.fail_at) {
    if (at.phase == FailPhase::view && at.step == agreements_) std::raise(SIGKILL);
  }
  try {
    // A node may come late by as long as it takes another one to give up connecting.
    membership_->next(where, static_cast<std::uint64_t>(2 * first_.timeout_s * 1e9));
  } catch (const gpusock::Error& error) {
    if (stopped_) throw Interrupted();
    throw NodeFailure(fmt::format("{}; rank {} cannot go on: {}", why, first_.rank, error.what()));
  }
  const std::vector<Member>& members = membership_->view().members;
  config_.nodes = static_cast<int>(members.size());
  config_.rank = static_cast<int>(std::ranges::find(members, first_.rank, &Member::id) - members.begin());
  config_.connect_s = first_.timeout_s;
}

/// Returns false if another node was lost meanwhile; then `failure` says so. `host`: where the first node of the view
/// tells the others where all listen, if this is the first one.
bool NodeRun::begin_view(bootstrap::Rendezvous& host, std::string& failure) {
  replace(std::make_unique<Node>(config_, data_, observer_, &held_));
  try {
    node_->connect(listen_again(host));
    return true;
  } catch (const NodeFailure& error) {
    failure = with_first_ranks(error.what());
  } catch (const gpusock::Error& error) {
    if (stopped_) throw Interrupted();
    failure = fmt::format("rank {}: {}", first_.rank, error.what());
  }
  replace(nullptr);
  return false;
}

/// Listens with the view's node, and returns where all nodes of the view listen, by rank. Throws gpusock::Error or
/// NodeFailure.
std::vector<gpusock::Endpoint> NodeRun::listen_again(bootstrap::Rendezvous& host) {
  const auto timeout_ns = static_cast<std::uint64_t>(config_.connect_timeout_s() * 1e9);
  std::optional<bootstrap::Rendezvous> guest;
  if (config_.rank == 0) {
    host.host(config_.nodes, timeout_ns);
  } else {
    const std::string where = membership_->view().members.front().listens.host_port();
    guest.emplace(where, config_.rank, config_.nodes, timeout_ns);
  }
  bootstrap::Rendezvous& meeting = guest ? *guest : host;
  const auto note = [&](bootstrap::Rendezvous* now) {
    const std::lock_guard lock(replacing_);
    meeting_ = now;
    if (stopped_ && now != nullptr) now->interrupt();
  };
  note(&meeting);
  std::vector<gpusock::Endpoint> peers;
  try {
    gpusock::Endpoint at = meeting.where_to_listen();
    at.link = config_.link;
    peers = meeting.exchange_addresses(node_->listen(at));
  } catch (const std::exception&) {
    note(nullptr);
    throw;
  }
  note(nullptr);
  for (gpusock::Endpoint& peer : peers) peer.link = config_.link;
  return peers;
}

/// Notes who was lost since `begun`, and says so.
void NodeRun::note_lost(const View& begun) {
  const std::vector<Member>& left = membership_->view().members;
  std::vector<int> gone;
  for (const Member& member : begun.members) {
    if (std::ranges::find(left, member.id, &Member::id) == left.end()) gone.push_back(member.id);
  }
  for (const int rank : gone) lost_.push_back({rank, node_->steps_before(), config_.nodes});
  if (!tell_ || gone.empty()) return;
  tell_(fmt::format("rank{} {} {} lost after step {}: {} node(s) go on\n", gone.size() == 1 ? "" : "s",
                    fmt::join(gone, ", "), gone.size() == 1 ? "was" : "were", node_->steps_before(), config_.nodes),
        config_.rank == 0);
}

/// Says which ranks a message means, if its ranks are not those with which the run has begun.
std::string NodeRun::with_first_ranks(const std::string& message) const {
  const std::vector<Member>& members = membership_->view().members;
  if (members.size() == static_cast<std::size_t>(first_.nodes)) return message;
  std::vector<int> ids;
  for (const Member& member : members) ids.push_back(member.id);
  return fmt::format("{} (these ranks are those of the {} nodes that were left: at the beginning they were {})",
                     message, ids.size(), fmt::join(ids, ", "));
}

void NodeRun::replace(std::unique_ptr<Node> by) {
  std::unique_ptr<Node> before;  // ends without the lock
  {
    const std::lock_guard lock(replacing_);
    before = std::exchange(node_, std::move(by));
    if (stopped_ && node_) node_->request_stop();
  }
  if (stopped_) throw Interrupted();
}

void NodeRun::request_stop() noexcept {
  const std::lock_guard lock(replacing_);
  stopped_ = true;
  if (node_) node_->request_stop();
  if (membership_) membership_->interrupt();
  if (meeting_ != nullptr) meeting_->interrupt();
}

}  // namespace param_sync
