#include "report/failure.hpp"

#include "plan/layer_schemes.hpp"
#include "gpusock/error.hpp"
#include "program/socket_failure.hpp"

#include <fmt/format.h>

#include <cerrno>

namespace param_sync {
namespace {

std::string reason(int error) {
  if (error == 0) return "it closed the connection before the end";
  std::string text = gpusock::describe_errno(error);
  if (!text.empty() && text[0] >= 'A' && text[0] <= 'Z') text[0] = static_cast<char>(text[0] - 'A' + 'a');
  return text;
}

using gpusock::program::Attempt;

/// Says what to do if a socket could not be opened.
std::string advice(Attempt attempt, int error, const gpusock::Endpoint& at) {
  const bool absent = error == ECONNREFUSED || error == ECONNRESET;
  if (attempt == Attempt::connecting && absent)
    return ". Start that node, or correct --peers; if it has ended, it has said why: all nodes need the same --link";
  if (attempt == Attempt::connecting && error == EPROTO)
    return ". All nodes need the same --link, and a program of the same version";
  if (attempt == Attempt::connecting && error == ETIMEDOUT) {
    return ". It does not answer: start that node, or correct --peers; if it runs, a firewall may be between, or it "
           "may have no descriptors left (raise ulimit -n)";
  }
  const std::string to_do = gpusock::program::remedy(attempt, error, at);
  return to_do.empty() ? "" : ": " + to_do;
}

}  // namespace

std::string field_name(RunSetting field) {
  switch (field) {
    case RunSetting::version:
      return "version (build both from the same source)";
    case RunSetting::nodes:
      return "--nodes";
    case RunSetting::model:
      return "model (--model, --hidden, --batch-norm, and the data's image size and classes)";
    case RunSetting::data:
      return "data set (--data, --limit)";
    case RunSetting::steps:
      return "number of steps (--epochs, --batch, --limit)";
    case RunSetting::batch:
      return "--batch";
    case RunSetting::seed:
      return "--seed";
    case RunSetting::optimizer:
      return "--lr, --warmup, --elastic-lr or --momentum";
    case RunSetting::scheme:
      return "--scheme (or --prices, by which auto chooses)";
    case RunSetting::transfer:
      return "--fuse, --credits or --budget";
    case RunSetting::sync:
      return "--sync, or option of a store (--replicas, --codec, --no-error-feedback, --outer, --stale-lr, "
             "--delay-compensation)";
    case RunSetting::first_step:
      return "step to go on from (--resume; name a step that all nodes have)";
    case RunSetting::rank:
      return "--rank, or with other --peers: two nodes claim one rank";
    case RunSetting::none:
      break;
  }
  return "settings";
}

namespace {

std::string mismatch(const Failure& failure, const Layout& layout) {
  std::string text = "rank " + std::to_string(failure.rank) + " was started with another " + field_name(failure.field);
  const bool hashes = failure.field == RunSetting::model || failure.field == RunSetting::data ||
                      failure.field == RunSetting::optimizer || failure.field == RunSetting::transfer ||
                      failure.field == RunSetting::sync || failure.field == RunSetting::rank;
  if (failure.field == RunSetting::scheme) {
    text += ": " + describe_difference(failure.theirs, failure.ours, layout);
  } else if (!hashes) {
    text += ": " + std::to_string(failure.theirs) + " there, " + std::to_string(failure.ours) + " here";
  }
  return text + ". Start all nodes with the same arguments, except for --rank";
}

}  // namespace

bool in_training(const Failure& failure) { return failure.kind >= FailureKind::receive; }

std::string describe(const Failure& failure, int rank, const gpusock::Endpoint& at_peer, const Layout& layout) {
  const std::string peer = at_peer.family == 0 ? "" : at_peer.host_port();
  const std::string who = "rank " + std::to_string(failure.rank);
  const std::string at = peer.empty() ? "" : " at " + peer;
  const std::string why = reason(failure.error);
  const std::string text = "rank " + std::to_string(rank) + ": ";
  const auto lost = [&](const std::string& how) {
    return text + "lost " + who + ": " + how + (peer.empty() ? "" : ", at " + peer);
  };
  switch (failure.kind) {
    case FailureKind::listen:
      return text + "cannot listen" + at + ": " + why + advice(Attempt::listening, failure.error, at_peer);
    case FailureKind::connect:
      return text + "cannot reach " + who + at + ": " + why + advice(Attempt::connecting, failure.error, at_peer);
    case FailureKind::accept:
      return text + (failure.rank < 0 ? "not all peers connected" : who + at + " has not connected") + ": " + why +
             ". Start all nodes with the same --peers" +
             (failure.error == ETIMEDOUT ? "; if it runs, it may itself wait for another node, or have ended for its "
                                           "sake: see what all nodes say"
                                         : "");
    case FailureKind::mismatch:
      return text + mismatch(failure, layout);
    case FailureKind::receive:
      return lost(why) + ", while receiving from it";
    case FailureKind::send:
      return lost(why) + ", while sending to it";
    case FailureKind::end:
      return lost(why);
    case FailureKind::interrupted:
      return lost("it was told to end (SIGTERM or SIGINT)");
    case FailureKind::told:
    case FailureKind::silent:
      if (failure.rank < 0 || failure.rank == rank) {
        const bool told = failure.kind == FailureKind::told;
        return text + fmt::format("rank {} has ended {}; the lost rank is unknown", failure.teller,
                                  told ? "the run, and says why" : "a connection, and has not said why");
      }
      return text + fmt::format("lost {}: rank {} has lost it, and told so", who, failure.teller);
    case FailureKind::protocol:
      return text + who + at + " sent a message that cannot come here: are both the same version?";
    case FailureKind::late:
      return text + "waited too long for the other nodes; raise --timeout if they are only slow";
    case FailureKind::store:
      return text + "a push to the store, or a pull, has failed";
    case FailureKind::behind:
      return text + who + " has pushed nothing more in time; raise --timeout if it is only slow";
    case FailureKind::none:
      break;
  }
  return text + "unknown failure";
}

std::string describe_missing(const std::vector<int>& ranks, int nodes, double limit_s) {
  const bool all = ranks.size() == static_cast<std::size_t>(nodes);
  const bool one = ranks.size() == 1;
  const std::string who = one   ? fmt::format("rank {} has not", ranks.front())
                          : all ? fmt::format("none of the {} nodes has", nodes)
                                : fmt::format("ranks {} have not", fmt::join(ranks, ", "));
  return fmt::format("{} come up within {:g} s; raise --timeout if the machine is only slow", who, limit_s);
}

}  // namespace param_sync
