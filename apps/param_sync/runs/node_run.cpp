#include "runs/node_run.hpp"

#include "plan/held_views.hpp"
#include "training/run_settings.hpp"
#include "training/store_checkpoints.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <iterator>
#include <utility>

namespace param_sync {
namespace {

constexpr int kAttemptsMax = 3;       // with the same nodes
constexpr int kAttemptsOfNewMax = 2;  // of a node that joins: fewer, so that the others go on without it

/// For nodes that go on after a loss. The others see by themselves which node is lost, so this one does not wait.
LossObserver without_waiting() {
  return {.tell = {}, .await_others = [] {}};
}

/// Leaves a node's own failures in its settings.
Config& own_part(Config& config, int rank) {
  std::erase_if(config.fail_at, [&](const FailAt& at) { return at.rank != rank; });
  return config;
}

/// This node ends its view, so that others can join the next one.
struct ViewEnds {};

std::vector<int> ids_of(const View& view) {
  std::vector<int> ids;
  for (const Member& member : view.members) ids.push_back(member.id);
  return ids;
}

/// Those of `ids` that are not among `others`.
std::vector<int> without(const std::vector<int>& ids, const std::vector<int>& others) {
  std::vector<int> left;
  std::ranges::set_difference(ids, others, std::back_inserter(left));
  return left;
}

std::string ranks(const std::vector<int>& ids) {
  return fmt::format("rank{} {}", ids.size() == 1 ? "" : "s", fmt::join(ids, ", "));
}

NodeFailure cannot_join(const std::string& why) {
  return NodeFailure(
      fmt::format("cannot join: {}. Each node must reach this one, and it each of them, by the same --link (and "
                  "GPUSOCK_LINK). The others go on without it",
                  why));
}

/// What to tell a node whose settings are not those of the run.
std::string describe_refusal(const OtherSettings& error, const RunSettings& own) {
  const auto field = static_cast<RunSetting>(error.index);
  const bool shows = field == RunSetting::batch || field == RunSetting::seed;
  return fmt::format("cannot join: the nodes that train have another {}{}. Start this one with the same arguments",
                     field == RunSetting::transfer ? "--link" : field_name(field),  // a store has no other transfer
                     shows ? fmt::format(": {} there, {} here", error.theirs, own[error.index]) : "");
}

}  // namespace

NodeRun::NodeRun(const Config& config, const Dataset& data, LossObserver observer,
                 std::function<void(const std::string&, bool)> tell)
    : first_(config),
      config_(config),
      data_(data),
      tell_(std::move(tell)),
      observer_(survives() ? without_waiting() : std::move(observer)) {
  if (!config.join.empty()) return;
  own_part(config_, config_.rank);
  const bool resumes = !config_.sync.empty() && !config_.resume.empty();
  if (resumes) {
    if (auto checkpoint = find_checkpoint(config_, data_)) held_.push_back(std::move(*checkpoint));
  }
  node_ = std::make_unique<Node>(config_, data_, observer_, resumes ? &held_ : nullptr);
  if (survives()) membership_.emplace(config.rank);
}

/// This node's number, which never changes: its rank when the run began, or the number that it got when it joined.
int NodeRun::id() const { return membership_ && membership_->id() >= 0 ? membership_->id() : first_.rank; }

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
  membership_->open(settings_to_join(config_, data_));
  tell_where_to_join();
}

void NodeRun::join(const std::vector<gpusock::Endpoint>& members) {
  std::string failures;
  for (const gpusock::Endpoint& member : members) {
    try {
      {
        const std::lock_guard lock(replacing_);  // another thread may interrupt it
        membership_.emplace();
        if (stopped_) throw Interrupted();
      }
      const auto patience_ns = patience();
      if (tell_) tell_("asks " + member.host_port() + " to let it join\n", false);
      listens_at_ = membership_->reach(member, patience_ns);
      membership_->listen(listens_at_);
      bootstrap::Rendezvous host(listens_at_);
      membership_->join(host.where(), settings_to_join(config_, data_), patience_ns);
      return begin_as_member(host);
    } catch (const OtherSettings& error) {
      throw NodeFailure(describe_refusal(error, settings_to_join(config_, data_)));
    } catch (const gpusock::Error& error) {
      if (stopped_) throw Interrupted();
      failures += fmt::format("{}{}: {}", failures.empty() ? "" : "; ", member.host_port(), error.what());
    }
  }
  throw NodeFailure("cannot join: " + failures);
}

/// Begins the view that has let this node in, or the next one.
void NodeRun::begin_as_member(bootstrap::Rendezvous& host) {
  own_part(config_, id());
  take_place();
  membership_->open(settings_to_join(config_, data_));
  end_if_trial();
  View before = membership_->view();
  std::erase_if(before.members, [&](const Member& member) { return member.id == id(); });
  std::string failure;
  is_new_ = true;
  if (!begin_view(host, failure)) begin_next_view(failure, 1);
  is_new_ = false;
  note_changes(before);
}

Trained NodeRun::train(const ProgressSink& progress) {
  for (;;) {
    std::string why;
    try {
      const auto between_steps = [&](const Progress& now) {
        if (progress) progress(now);
        end_view_if_asked(now);
      };
      Trained trained{config_, node_->train(survives() ? between_steps : progress), node_->weights()};
      trained.report.lost = changed_.lost;
      trained.report.joined = changed_.joined;
      trained.report.nodes_after = changed_.nodes_after;
      return trained;
    } catch (const NodeFailure& failure) {
      if (!survives()) throw;
      why = with_first_ranks(failure.what());
    } catch (const ViewEnds&) {
      why = fmt::format("rank {} has ended a view, so that other nodes can join", id());
    } catch (const Interrupted&) {
      if (survives() && tell_) tell_(fmt::format("rank {} was told to end, and leaves the others\n", id()), false);
      throw;
    }
    go_on(why);
  }
}

/// The others then see what they see after a loss: calls of kernels fail, and they agree on the next view.
void NodeRun::end_view_if_asked(const Progress& now) {
  // Before that, nodes that see the end would take it for a failure of the first step, which would come again.
  if (now.steps < now.first_step + 2) return;
  if (now.steps >= now.steps_all) return;  // the others have taken leave
  try {
    if (!membership_->has_applicants()) return;
  } catch (const gpusock::Error&) {
    return;  // nobody can join now, and the training need not end for that
  }
  throw ViewEnds();
}

/// Makes the node of the next view, with the nodes that are left and those that join.
void NodeRun::go_on(const std::string& why) {
  const View begun = membership_->view();
  HeldTraining ended = node_->held();
  ended.view = begun.number + kCheckpointView;
  replace(nullptr);
  // A failure of the first step that no loss explains would come again.
  const bool has_steps = outline_of(ended).clock != 0;
  keep(held_, std::move(ended));
  begin_next_view(why, has_steps ? 0 : kAttemptsMax);
  note_changes(begun);
}

/// Agrees until all members of a view have begun it. `attempts`: how many have failed already.
void NodeRun::begin_next_view(const std::string& why, int attempts) {
  std::string failure = why;
  for (;; ++attempts) {
    if (is_new_ && attempts >= kAttemptsOfNewMax) throw cannot_join(failure);
    const std::vector<int> before = ids_of(membership_->view());
    bootstrap::Rendezvous host(listens_at_.with_port(0));
    agree(failure, host.where());
    if (ids_of(membership_->view()) != before) attempts = 0;
    if (attempts >= kAttemptsMax) throw NodeFailure(failure);
    if (begin_view(host, failure)) return;
  }
}

void NodeRun::end_if_trial() {
  ++agreements_;
  for (const FailAt& at : config_.fail_at) {
    if (at.phase == FailPhase::view && at.step == agreements_) std::raise(SIGKILL);
  }
}

/// A node may come late by as long as it takes another one to give up connecting.
std::uint64_t NodeRun::patience() const { return static_cast<std::uint64_t>(2 * first_.timeout_s * 1e9); }

/// Enters the next view. `why` is what has ended the one before.
void NodeRun::agree(const std::string& why, const gpusock::Endpoint& where) {
  end_if_trial();
  try {
    membership_->next(where, patience(), unreached_);
  } catch (const gpusock::Error& error) {
    if (stopped_) throw Interrupted();
    if (is_new_) throw cannot_join(why);
    throw NodeFailure(fmt::format("{}; rank {} cannot go on: {}", why, id(), error.what()));
  }
  take_place();
}

/// Takes the rank that this node has in the view.
void NodeRun::take_place() {
  const std::vector<Member>& members = membership_->view().members;
  config_.nodes = static_cast<int>(members.size());
  config_.rank = static_cast<int>(std::ranges::find(members, id(), &Member::id) - members.begin());
  config_.connect_s = first_.timeout_s;
}

/// Returns false if another node was lost meanwhile; then `failure` says so. `host`: where the first node of the view
/// tells the others where all listen, if this is the first one.
bool NodeRun::begin_view(bootstrap::Rendezvous& host, std::string& failure) {
  unreached_.clear();
  replace(std::make_unique<Node>(config_, data_, observer_, &held_));
  try {
    node_->connect(listen_again(host));
    return true;
  } catch (const UnreachableNode& error) {
    unreached_.push_back(membership_->view().members[static_cast<std::size_t>(error.rank)].id);
    failure = with_first_ranks(error.what());
  } catch (const NodeFailure& error) {
    failure = with_first_ranks(error.what());
  } catch (const gpusock::Error& error) {
    if (stopped_) throw Interrupted();
    failure = fmt::format("rank {}: {}", id(), error.what());
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

/// Notes who was lost since `begun`, and who has joined, and says so.
void NodeRun::note_changes(const View& begun) {
  const std::vector<int> before = ids_of(begun), now = ids_of(membership_->view());
  const std::vector<int> gone = without(before, now), came = without(now, before);
  const ViewOrigin origin = node_->origin();
  const std::uint64_t step = origin.step;
  for (const int rank : gone) changed_.lost.push_back({rank, step, config_.nodes});
  for (const int rank : came) changed_.joined.push_back({rank, step, config_.nodes});
  if (gone.empty() && came.empty()) return;
  // A view that has made no step is none of the run's: the nodes go on with the weights of the one before it.
  if (!changed_.nodes_after.empty() && origin.view == changed_from_view_) changed_.nodes_after.pop_back();
  changed_from_view_ = origin.view;
  changed_.nodes_after.push_back({step, config_.nodes});
  const auto tell = [&](const std::vector<int>& those, const std::string& what) {
    if (those.empty() || !tell_) return;
    tell_(fmt::format("{} {} after step {}: {} node(s) go on\n", ranks(those), what, step, config_.nodes),
          config_.rank == 0);
  };
  tell(gone, gone.size() == 1 ? "was lost" : "were lost");
  tell(came, "joined");
  tell_where_to_join();
}

/// The first node says so.
void NodeRun::tell_where_to_join() const {
  if (!tell_ || config_.rank != 0) return;
  std::vector<std::string> addresses;
  for (const Member& member : membership_->view().members) addresses.push_back(member.meets.host_port());
  tell_(fmt::format("nodes may join at {}\n", fmt::join(addresses, ",")), true);
}

/// Says which ranks a message means, if its ranks are not those with which the run has begun.
std::string NodeRun::with_first_ranks(const std::string& message) const {
  const std::vector<int> ids = ids_of(membership_->view());
  if (!ids.empty() && ids.back() + 1 == static_cast<int>(ids.size())) return message;
  return fmt::format("{} (these ranks are those of the {} nodes that were there: their numbers in the run are {})",
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
