#include "runs/runs.hpp"

#include "plan/plan.hpp"
#include "report/failure.hpp"
#include "report/lane_stall.hpp"
#include "report/loss.hpp"
#include "report/progress.hpp"
#include "report/stall.hpp"
#include "runs/node_process.hpp"

#include "gpusock/gpusock.hpp"
#include "program/arguments.hpp"
#include "program/run.hpp"
#include "program/stop_signals.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <poll.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <utility>

namespace param_sync {
namespace {

/// The largest value of Options::host_rings_connections.
constexpr int kHostRingsMax = 4096;

constexpr auto kEndAfterFailure = std::chrono::seconds(5);   // nodes that still run then are killed
constexpr auto kSeenAfterFailure = std::chrono::seconds(1);  // longest wait until all nodes have seen the loss

constexpr auto kNoticedByOthers = std::chrono::seconds(1);  // time after --timeout for others to notice a stopped node

using gpusock::program::kFailure;
using gpusock::program::kMisuse;
using SteadyClock = std::chrono::steady_clock;

class Cluster {
 public:
  Cluster(const Config& config, const std::string& program) : config_(config), line_(config.nodes, config.batch) {
    sigset_t signals;
    sigemptyset(&signals);
    for (int signal : {SIGINT, SIGTERM, SIGCHLD}) sigaddset(&signals, signal);
    pthread_sigmask(SIG_BLOCK, &signals, nullptr);
    signal_fd_ = signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
    if (signal_fd_ < 0) throw gpusock::Error(errno, "cannot watch for signals");
    nodes_.reserve(static_cast<std::size_t>(config.nodes));
    for (int rank = 0; rank < config.nodes; ++rank) nodes_.push_back(start_node(config, program, rank));
  }
  ~Cluster() { ::close(signal_fd_); }
  Cluster(const Cluster&) = delete;
  Cluster& operator=(const Cluster&) = delete;

  /// Serves the nodes until all have ended. Returns true if all ended well.
  bool run() {
    while (!all_exited()) {
      wait_for_news();
      take_signals();
      for (std::size_t rank = 0; rank < nodes_.size(); ++rank) take_messages(rank);
      note_ends();
      give_up_waiting_for_starts();
      const bool only_stopped = only_stopped_are_left();
      if (!survives_losses() || only_stopped) give_up_stopped_nodes();
      if (failed_) release();
      if (failed_ && (SteadyClock::now() >= give_up_at_ || only_stopped)) kill_all(SIGKILL);
    }
    if (reports().empty()) failed_ = true;
    if (losses_.stalled() && !interrupted_) tell_stall();
    return !failed_ && !interrupted_;
  }

  bool interrupted() const { return interrupted_; }

  /// Returns what the nodes have reported, after all have ended well. They also report the shape of their
  /// samples, on which the model depends, since the data may be gone.
  RunReport report() const {
    const std::vector<const NodeProcess*> ended = reports();
    Config config = config_;
    const std::vector<NodesAfter>& changes = ended.front()->report->nodes_after;
    if (!changes.empty()) config.nodes = changes.back().nodes;  // some may have joined, and are not this cluster's
    RunReport run{config, make_layout(layers_of(config, ended.front()->sample), config.nodes), device_name(), {}};
    for (const NodeProcess* node : ended) run.nodes.push_back(*node->report);
    return run;
  }

 private:
  /// True if the nodes go on without those that are lost. Before they have begun, a loss ends the run.
  bool survives_losses() const { return config_.replicas > 1 && started() && !failed_; }

  /// The nodes that have ended the training together.
  std::vector<const NodeProcess*> reports() const {
    std::vector<const NodeProcess*> ended;
    std::size_t changes = 0;
    for (const NodeProcess& node : nodes_) {
      if (node.report) changes = std::max(changes, node.report->nodes_after.size());
    }
    for (const NodeProcess& node : nodes_) {
      if (node.report && node.report->nodes_after.size() == changes) ended.push_back(&node);
    }
    return ended;
  }

  /// True if nodes that have ended the training have lost this one.
  bool was_lost(std::size_t rank) const {
    const std::vector<const NodeProcess*> ended = reports();
    return std::any_of(ended.begin(), ended.end(), [&](const NodeProcess* node) {
      const std::vector<LostNode>& lost = node->report->lost;
      return std::any_of(lost.begin(), lost.end(),
                         [&](const LostNode& one) { return one.rank == static_cast<int>(rank); });
    });
  }

  /// The first node that runs: the others' rank 0, if some were lost.
  std::size_t first_running() const {
    const auto first = std::find_if(nodes_.begin(), nodes_.end(),
                                    [](const NodeProcess& node) { return !node.exited && !node.stopped_at; });
    return static_cast<std::size_t>(first - nodes_.begin());
  }

  bool all_exited() const {
    return std::all_of(nodes_.begin(), nodes_.end(), [](const NodeProcess& node) { return node.exited; });
  }

  void wait_for_news() {
    std::vector<pollfd> polled{{signal_fd_, POLLIN, 0}};
    for (const NodeProcess& node : nodes_) polled.push_back({node.control_ended ? -1 : node.control.fd(), POLLIN, 0});
    poll(polled.data(), polled.size(), failed_ ? 100 : 1000);
  }

  void take_signals() {
    signalfd_siginfo info;
    while (read(signal_fd_, &info, sizeof info) == static_cast<ssize_t>(sizeof info)) {
      if (info.ssi_signo == SIGCHLD) continue;
      interrupted_ = true;
      fail();
      kill_all(SIGTERM);
    }
  }

  void take_messages(std::size_t rank) {
    NodeProcess& node = nodes_[rank];
    while (!node.control_ended) {
      const auto message = node.control.try_receive(node.control_ended);
      if (!message) break;
      if (message->contains("listening")) node.listening = message->at("listening");
      if (message->contains("publishing")) {
        tell_where_published(gpusock::Endpoint::parse(message->at("publishing").get<std::string>()));
      }
      if (message->contains("note")) gpusock::program::print_now(message->at("note").get<std::string>());
      if (message->contains("lost")) lose(node, loss_from(message->at("lost")));
      if (message->contains("failure") && !interrupted_ && !(losses_.stalled() && node.reported_progress)) {
        fmt::print(stderr, "param_sync: {}\n", message->at("failure").get<std::string>());
      }
      if (message->contains("report")) {
        node.report = node_report_from(message->at("report"));
        node.report->trace = trace_spans_from(message->at("trace"));
        node.report->history = message->at("history").get<std::string>();
        node.sample = sample_shape_from(message->at("sample"));
      }
      if (message->contains("progress")) show(static_cast<int>(rank), message->at("progress"));
      if (message->contains("listening")) introduce();
    }
  }

  void show(int rank, const nlohmann::json& now) {
    line_.note_waiting(rank, now.at("waited_s"), now.at("train_s"));
    if (static_cast<std::size_t>(rank) != first_running()) return;
    line_.show({now.at("steps"), now.at("steps_all"), now.at("steps_per_epoch"), now.at("first_step"),
                static_cast<float>(number_from(now.at("loss"))), now.at("train_s"), now.at("pushed_per_step"),
                now.at("dense_per_step"), now.at("pulled_per_step"), now.at("waited_s"), now.at("accuracy")});
  }

  void lose(NodeProcess& node, const Loss& loss) {
    if (!failed_ && loss.cause == Loss::Cause::lost) tell_stopped();
    node.lost_a_node = true;
    node.reported_progress = loss.step_progress.has_value();
    fail(loss);
    if (losses_.stalled())
      give_up_at_ = SteadyClock::now() + kEndAfterFailure;  // the others report, too; a silent node is suspected
  }

  /// Names the nodes that are stopped: others may have given up because of them, and do not know that.
  void tell_stopped() const {
    for (std::size_t rank = 0; rank < nodes_.size(); ++rank) {
      if (!nodes_[rank].stopped_at || nodes_[rank].exited) continue;
      fmt::print(stderr, "param_sync: rank {} was stopped by a signal, and is not continued yet\n", rank);
    }
  }

  /// Prints the cause of a stall. One node's message says only which node it waited for, and all of them wait. What
  /// they all wait for shows the cause.
  void tell_stall() const {
    const std::vector<StepProgress>& told = losses_.step_progress();
    const ExchangePlan plan = make_exchange_plan(config_,
                                                 make_layout(layers_of(config_, told.front().sample), config_.nodes));
    const Stall stall = find_lane_stall(plan, told, config_.nodes);
    fmt::print(stderr, "param_sync: {}\n", describe(stall, config_.timeout_s));
  }

  /// Lets nodes that have lost another one end after all have seen that: then their closing sockets mislead no node.
  void release() {
    const bool all_saw = std::all_of(nodes_.begin(), nodes_.end(), [](const NodeProcess& node) {
      return node.exited || node.lost_a_node || node.stopped_at;
    });
    if (!all_saw && SteadyClock::now() < give_up_at_ - kEndAfterFailure + kSeenAfterFailure) return;
    for (NodeProcess& node : nodes_) {
      if (!node.exited && std::exchange(node.lost_a_node, false)) tell(node, {{"seen", true}});
    }
  }

  /// After all nodes listen, tells each of them the addresses of all.
  void introduce() {
    nlohmann::json peers = nlohmann::json::array();
    for (const NodeProcess& node : nodes_) {
      if (node.listening.empty()) return;
      peers.push_back(node.listening);
    }
    for (NodeProcess& node : nodes_) tell(node, {{"peers", peers}});
  }

  static void tell(NodeProcess& node, const nlohmann::json& message) {
    try {
      node.control.send(message);
    } catch (const gpusock::Error&) {  // the node has ended: note_ends() reports that
    }
  }

  /// Notes which nodes have ended. The operating system keeps what is left of them until ~NodeProcess: on a busy
  /// machine it may take seconds to free that, and the others wait to be told that all have seen the loss.
  void note_ends() {
    for (std::size_t rank = 0; rank < nodes_.size(); ++rank) {
      NodeProcess& node = nodes_[rank];
      if (node.exited) continue;
      note_stops(node);
      siginfo_t end{};
      if (waitid(P_PID, static_cast<id_t>(node.pid), &end, WEXITED | WNOHANG | WNOWAIT) != 0 || end.si_pid != node.pid)
        continue;
      take_messages(rank);
      take_signals();  // a terminal signals all processes, this one no later
      node.exited = true;
      if (end.si_code == CLD_EXITED && end.si_status == 0 && node.report) continue;
      if (!killing_ && !node.given_up) tell_end(rank, end);
      if (survives_losses()) continue;
      fail();
      if (!started()) kill_all(SIGTERM);  // the others wait for it, and cannot see that it has ended
    }
  }

  /// Notes whether a signal has stopped the node, or continued it.
  static void note_stops(NodeProcess& node) {
    siginfo_t change{};
    if (waitid(P_PID, static_cast<id_t>(node.pid), &change, WSTOPPED | WCONTINUED | WNOHANG) != 0) return;
    if (change.si_pid != node.pid) return;
    if (change.si_code == CLD_CONTINUED) {
      node.stopped_at.reset();
    } else {
      node.stopped_at = SteadyClock::now();
    }
  }

  /// Prints how a node ended. A node that exits with 1 or 2 has printed the reason itself.
  static void tell_end(std::size_t rank, const siginfo_t& end) {
    if (end.si_code != CLD_EXITED) {
      fmt::print(stderr, "param_sync: rank {} was killed by signal {} ({})\n", rank, end.si_status,
                 strsignal(end.si_status));
    } else if (end.si_status != kFailure && end.si_status != kMisuse) {
      fmt::print(stderr, "param_sync: rank {} ended early, with exit status {}\n", rank, end.si_status);
    }
  }

  /// The others cannot notice a node that hangs before it listens: they wait for its address.
  void give_up_waiting_for_starts() {
    const double limit_s = std::max(config_.timeout_s, kStartSecondsMin);
    if (failed_ || started() || SteadyClock::now() - began_at_ < std::chrono::duration<double>(limit_s)) return;
    std::vector<int> missing;
    for (std::size_t rank = 0; rank < nodes_.size(); ++rank) {
      if (nodes_[rank].listening.empty()) missing.push_back(static_cast<int>(rank));
    }
    fmt::print(stderr, "param_sync: {}\n", describe_missing(missing, config_.nodes, limit_s));
    fail();
    kill_all(SIGTERM);
  }

  /// True if all others have ended. Only SIGKILL ends the stopped nodes.
  bool only_stopped_are_left() const {
    return std::all_of(nodes_.begin(), nodes_.end(),
                       [](const NodeProcess& node) { return node.exited || node.stopped_at; });
  }

  /// A stopped node does not get kStartSecondsMin, as a slow one does. In training the others notice first.
  void give_up_stopped_nodes() {
    for (std::size_t rank = 0; rank < nodes_.size() && !failed_; ++rank) {
      const NodeProcess& node = nodes_[rank];
      if (node.exited || !node.stopped_at) continue;
      const std::chrono::duration<double> stopped = SteadyClock::now() - *node.stopped_at;
      if (was_lost(rank)) {  // the others have ended the training without it
        nodes_[rank].given_up = true;
        kill(node.pid, SIGKILL);
        continue;
      }
      if (stopped < std::chrono::duration<double>(config_.timeout_s) + kNoticedByOthers) continue;
      fmt::print(stderr, "param_sync: rank {} was stopped by a signal, and not continued for {:g} s (--timeout)\n",
                 rank, config_.timeout_s);
      fail();
      kill_all(SIGTERM);
    }
  }

  bool started() const {
    return std::none_of(nodes_.begin(), nodes_.end(), [](const NodeProcess& node) { return node.listening.empty(); });
  }

  /// Ends the run. By default the cause is not a stall.
  void fail(const Loss& loss = {}) {
    losses_.add(loss);
    if (!failed_) give_up_at_ = SteadyClock::now() + kEndAfterFailure;
    failed_ = true;
  }

  void kill_all(int signal) {
    killing_ = true;
    for (const NodeProcess& node : nodes_) {
      if (!node.exited) kill(node.pid, signal);
    }
  }

  const Config& config_;
  ProgressLine line_;
  int signal_fd_ = -1;
  std::vector<NodeProcess> nodes_;
  SteadyClock::time_point began_at_ = SteadyClock::now();
  bool failed_ = false;
  Losses losses_;
  bool interrupted_ = false;
  bool killing_ = false;  // true: kill_all() has told all nodes to end
  SteadyClock::time_point give_up_at_ = SteadyClock::time_point::max();
};

/// Between processes that use GPUs, p2p takes a host ring for each connection, and their number is limited. This asks
/// for as many as the nodes need, unless the environment gives a number already or turns host rings off.
void ask_for_host_rings(const Config& config) {
  const char* const set = std::getenv("GPUSOCK_HOST_RINGS");
  const std::string rings = set == nullptr || *set == '\0' ? "auto" : set;
  if (rings == "off" || rings.find(',') != std::string::npos) return;
  const int wanted = connections_between_nodes(config);
  if (wanted == 0) return;
  setenv("GPUSOCK_HOST_RINGS", fmt::format("{},connections={}", rings, std::min(wanted, kHostRingsMax)).c_str(), 1);
}

}  // namespace

int run_cluster(const Config& config, const std::string& program) {
  ask_for_host_rings(config);
  std::optional<RunReport> run;
  {
    Cluster cluster(config, program);
    const bool well = cluster.run();
    if (cluster.interrupted()) throw Interrupted();
    if (!well) return 1;
    run = cluster.report();
  }
  gpusock::program::unblock_stop_signals();
  return tell_results(*run);
}

}  // namespace param_sync
