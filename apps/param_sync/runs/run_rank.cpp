#include "runs/runs.hpp"

#include "checkpoint/safetensors.hpp"
#include "layout/layout.hpp"
#include "plan/plan.hpp"
#include "report/progress.hpp"
#include "runs/control.hpp"
#include "runs/node_run.hpp"
#include "param_sync/bootstrap/bootstrap.hpp"
#include "program/run.hpp"
#include "program/socket_failure.hpp"
#include "program/stop_signals.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <sys/prctl.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <string>
#include <utility>
#include <vector>

namespace param_sync {
namespace {

static_assert(bootstrap::kRanksMax == kNodesMax);

gpusock::Endpoint with_link(const std::string& text, gpusock::LinkKind link) {
  gpusock::Endpoint endpoint = gpusock::Endpoint::parse(text);
  endpoint.link = link;
  return endpoint;
}

nlohmann::json to_json(const Progress& now) {
  return {{"steps", now.steps},
          {"steps_all", now.steps_all},
          {"steps_per_epoch", now.steps_per_epoch},
          {"first_step", now.first_step},
          {"loss", now.loss},
          {"train_s", now.train_s},
          {"pushed_per_step", now.pushed_per_step},
          {"dense_per_step", now.dense_per_step},
          {"pulled_per_step", now.pulled_per_step},
          {"waited_s", now.waited_s},
          {"accuracy", now.accuracy}};
}

/// Trains as a node of a cluster: tells its address, learns those of the others, and sends its progress. If a signal
/// ends the node, `stopped_by` gets it.
Trained train_controlled(const Config& config, const Dataset& data, ControlSocket& control,
                         std::atomic<int>& stopped_by) {
  gpusock::program::block_stop_signals();
  const LossObserver cluster{[&](const Loss& loss) {
                               control.send({{"lost", to_json(loss)}});
                             },
                             [&] { control.receive(); }};  // the cluster answers once all nodes have seen it
  NodeRun node(config, data, cluster, [&](const std::string& text, bool is_first) {
    if (is_first) control.send({{"note", text}});
  });
  gpusock::program::StopWatcher watcher([&](int signal) {
    stopped_by = signal;
    node.request_stop();
    control.interrupt();
  });
  const gpusock::Endpoint at = node.listen(with_link("127.0.0.1:0", config.link));
  if (const auto published = node.publishes_at()) control.send({{"publishing", published->to_string()}});
  control.send({{"listening", at.host_port()}});
  const auto answer = control.receive();
  if (!answer || stopped_by != 0) throw Interrupted();
  std::vector<gpusock::Endpoint> peers;
  for (const auto& peer : answer->at("peers")) peers.push_back(with_link(peer.get<std::string>(), config.link));
  node.connect(peers);
  return node.train([&](const Progress& now) { control.send({{"progress", to_json(now)}}); });
}

int train_and_report(const Config& config, ControlSocket& control, std::atomic<int>& stopped_by) {
  const Dataset data = load_dataset(config.data, config.limit);
  const Trained trained = train_controlled(config, data, control, stopped_by);
  if (stopped_by != 0) throw Interrupted();
  gpusock::program::unblock_stop_signals();
  if (trained.config.rank == 0 && !config.weights_file.empty()) {
    safetensors::write_weights(config.weights_file, Plan::make(config, data).layout, trained.weights);
  }
  control.send({{"report", to_json(trained.report)},
                {"trace", to_json(trained.report.trace)},
                {"history", trained.report.history},
                {"sample", to_json(shape_of(data).sample)}});
  return 0;
}

/// The cluster prints why a node has failed, since it knows whether it had told the node to end. If a signal ends a
/// node, the process also ends by that signal: nothing else would tell the cluster.
int run_controlled(const Config& config) {
  prctl(PR_SET_PDEATHSIG, SIGTERM);  // this process ends when the cluster ends, for whatever reason
  ControlSocket control(config.control_fd);
  std::atomic<int> stopped_by{0};
  try {
    try {
      return train_and_report(config, control, stopped_by);
    } catch (const NodeFailure& failure) {
      control.send({{"failure", failure.what()}});
      return 1;
    }
  } catch (const Interrupted&) {
    if (stopped_by != 0) gpusock::program::end_by(stopped_by);
    throw;  // the cluster is gone
  } catch (const gpusock::Error&) {
    if (stopped_by != 0) gpusock::program::end_by(stopped_by);  // the signal has closed the socket
    throw;
  }
}

Trained train_by_hand(const Config& config, const Dataset& data) {
  gpusock::program::block_stop_signals();
  NodeRun node(config, data, {}, [](const std::string& text, bool) { gpusock::program::print_now(text); });
  gpusock::program::StopWatcher watcher([&](int) { node.request_stop(); });
  std::vector<gpusock::Endpoint> peers;
  for (const std::string& peer : config.peers) peers.push_back(with_link(peer, config.link));
  const gpusock::Endpoint at = node.listen(peers[static_cast<std::size_t>(config.rank)]);
  gpusock::program::print_now("listening on " + at.host_port() + "\n");
  tell_where_published(node.publishes_at());
  node.connect(peers);
  ProgressLine line(config.nodes, config.batch);
  return node.train([&](const Progress& now) { line.show(now); });
}

/// Trains as a node that joins others.
Trained train_joined(const Config& config, const Dataset& data) {
  gpusock::program::block_stop_signals();
  NodeRun node(config, data, {}, [](const std::string& text, bool) { gpusock::program::print_now(text); });
  gpusock::program::StopWatcher watcher([&](int) { node.request_stop(); });
  std::vector<gpusock::Endpoint> members;
  for (const std::string& member : config.join) members.push_back(gpusock::Endpoint::parse(member));
  node.join(members);
  ProgressLine line(node.nodes(), config.batch);
  return node.train([&](const Progress& now) { line.show(now); });
}

/// Calls `meet`, which meets the other nodes, and words its errors for this program's users.
template <class Meet>
auto met(const std::atomic<bool>& stopped, Meet meet) try {
  return meet();
} catch (const bootstrap::MeetingFailure& failure) {
  if (stopped) throw Interrupted();
  using gpusock::program::Attempt;
  throw gpusock::program::SocketFailure(failure.tried, failure.is_listening ? Attempt::listening : Attempt::connecting,
                                        failure.code().value(), failure.address);
} catch (const gpusock::Error& error) {
  if (stopped) throw Interrupted();
  const std::string instead = error.what() + std::string(kWithoutLauncher);
  if (error.code().value() == EINVAL) throw gpusock::program::Misuse(instead);
  if (error.code().value() == EIO) throw gpusock::Error::with_cause(EIO, instead);
  throw;
}

/// Puts the rank and the number of nodes that the launcher gives into `config`.
Trained train_launched(Config& config, const Dataset& data) {
  gpusock::program::block_stop_signals();
  std::atomic<bool> stopped{false};
  const auto others = met(stopped, [&] {
    return bootstrap::make_bootstrap(*config.launch, static_cast<std::uint64_t>(config.timeout_s * 1e9));
  });
  config.rank = others->rank();
  config.nodes = others->size();
  NodeRun node(config, data, {}, [](const std::string& text, bool) { gpusock::program::print_now(text); });
  gpusock::program::StopWatcher watcher([&](int) {
    stopped = true;
    node.request_stop();
    others->interrupt();
  });
  gpusock::Endpoint at = met(stopped, [&] { return others->where_to_listen(); });
  at.link = config.link;
  at = node.listen(at);
  tell_where_published(node.publishes_at());
  auto peers = met(stopped, [&] { return others->exchange_addresses(at); });
  for (gpusock::Endpoint& peer : peers) peer.link = config.link;
  node.connect(peers);
  if (config.rank != 0) return node.train({});
  ProgressLine line(config.nodes, config.batch, false);
  return node.train([&](const Progress& now) { line.show(now); });
}

/// From here on signals end the process, since the reader of its output may keep it waiting.
int tell_own_results(const Config& config, const Dataset& data, const Trained& trained) {
  gpusock::program::unblock_stop_signals();
  const Layout layout = Plan::make(trained.config, data).layout;
  if (!config.weights_file.empty()) safetensors::write_weights(config.weights_file, layout, trained.weights);
  return tell_results({trained.config, layout, device_name(), {trained.report}});
}

int run_by_hand(const Config& config) {
  const Dataset data = load_dataset(config.data, config.limit);
  return tell_own_results(config, data, train_by_hand(config, data));
}

}  // namespace

int run_rank(const Config& config) { return config.control_fd >= 0 ? run_controlled(config) : run_by_hand(config); }

int run_joined(const Config& config) {
  const Dataset data = load_dataset(config.data, config.limit);
  return tell_own_results(config, data, train_joined(config, data));
}

int run_launched(Config config) {
  const Dataset data = load_dataset(config.data, config.limit);
  const Trained trained = train_launched(config, data);
  // A launcher's nodes share one command line, and often one terminal and one folder: rank 0 reports for all.
  if (trained.config.rank == 0) return tell_own_results(config, data, trained);
  gpusock::program::unblock_stop_signals();
  // Only ./run cluster labels its nodes' lines; mpirun and others do not.
  const std::string who = config.launch->source == "GPUSOCK_RANK" ? "" : fmt::format("rank {}: ", config.rank);
  gpusock::program::print(fmt::format("{}weights {:016x}\n", who, trained.report.weights_hash));
  return 0;
}

}  // namespace param_sync
