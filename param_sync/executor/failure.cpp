#include "param_sync/executor/failure.hpp"

#include "gpusock/error.hpp"

#include <fmt/format.h>

#include <cerrno>

namespace param_sync::executor {
namespace {

const char* name_of(ChannelHelloField field) {
  switch (field) {
    case ChannelHelloField::none:
    case ChannelHelloField::program:
      break;
    case ChannelHelloField::version:
      return "version of param_sync";
    case ChannelHelloField::nodes:
      return "number of ranks";
    case ChannelHelloField::ring_bytes:
      return "ring size";
    case ChannelHelloField::unit_bytes:
      return "unit size";
    case ChannelHelloField::schedules:
      return "schedules, or how they are executed (hash)";
    case ChannelHelloField::rank:
      return "rank";
  }
  return "a setting of the program";
}

std::string reason_of(int error) {
  if (error == 0) return "it ended its connection: it has failed, or was ended";
  if (error == ETIMEDOUT) return "nothing more came of it in time; it may itself wait for another rank (ETIMEDOUT)";
  return gpusock::describe_errno(error);
}

/// What to do if a rank cannot be reached; empty if the errno says enough.
const char* advice_on_connecting(int error) {
  if (error == ENOBUFS) {
    return ": raise the limits (ulimit -n, -f, -v), or, with link p2p on a GPU, give all ranks "
           "GPUSOCK_HOST_RINGS=NAME,connections=N with a larger N";
  }
  if (error == ECONNREFUSED) return ": it does not run, or has ended: see what it says";
  if (error == EHOSTUNREACH) return ": with link p2p on a GPU, all ranks need the same GPUSOCK_HOST_RINGS=NAME";
  return "";
}

std::string describe_message(const MessageHeader& got, const MessageHeader& expected) {
  if (got.magic == MessageHeader::kMagicOfChanges) {
    return fmt::format("it sent {} changes instead of {} floats: all ranks must have a budget, or none", got.floats / 2,
                       expected.floats);
  }
  if (got.magic != MessageHeader::kMagic) return "it sent bytes that are no message";
  if (got.run != expected.run) {
    return fmt::format("it is in run {}, this rank in run {}: all ranks must start the same runs in the same order",
                       got.run, expected.run);
  }
  if (got.operation != expected.operation) {
    return fmt::format(
        "in run {} it does another operation: all ranks must start the same ones in the same order, "
        "on tensors of one type, with the same settings",
        got.run);
  }
  if (got.floats != expected.floats) {
    return fmt::format(
        "it sent {} floats, {} are expected: all ranks must start the same operations, on tensors of one size",
        got.floats, expected.floats);
  }
  return fmt::format("it sent chunks {} to {} in pass {}, expected are chunks {} to {} in pass {}", got.chunk,
                     got.chunk + got.count - 1, got.pass, expected.chunk, expected.chunk + expected.count - 1,
                     expected.pass);
}

/// Describes a loss. `lost`: the rank that the peer has named.
std::string describe_loss(const ExecutionFailure& failure, const std::string& peer, const std::string& lost) {
  switch (failure.blame) {
    case Blame::none:
    case Blame::peer:
      break;
    case Blame::silent_peer:
      return fmt::format("lost {}: nothing more came of it in time, and nothing answers there (ETIMEDOUT)", peer);
    case Blame::told:
      return fmt::format("lost {}: {} has lost it, and told so", lost, peer);
    case Blame::told_of_schedule:
      return fmt::format("{0} and {1} do not follow the same schedule: {1} has told so, and says more", lost, peer);
    case Blame::told_of_argument:
      return fmt::format("{} was given an invalid argument, and has ended: see what it says", lost);
    case Blame::this_rank:
      return fmt::format("{} has given this rank up: see what it says", peer);
    case Blame::unknown:
      if (failure.error != ETIMEDOUT) return fmt::format("{} ended the connection; the lost rank is unknown", peer);
      return fmt::format(
          "nothing more came of {} in time. It waits itself, or has stopped; the lost rank is unknown (ETIMEDOUT)",
          peer);
  }
  return fmt::format("lost {}: {}", peer, reason_of(failure.error));
}

}  // namespace

std::string describe(const ExecutionFailure& failure, int rank, const std::vector<Channel>& channels,
                     const std::vector<std::string>& addresses, const std::vector<schedule::Schedule>& schedules) {
  std::string peer = "another rank";
  const auto at = [&](std::int32_t number) {
    const auto index = static_cast<std::size_t>(number);
    return fmt::format("rank {}", number) +
           (index < addresses.size() ? fmt::format(" ({})", addresses[index]) : std::string());
  };
  if (failure.channel >= 0 && static_cast<std::size_t>(failure.channel) < channels.size()) {
    peer = at(channels[static_cast<std::size_t>(failure.channel)].peer);
  }
  std::string where;
  if (failure.schedule >= 0 && failure.lane >= 0 && failure.op >= 0) {
    const auto& lanes =
        schedules[static_cast<std::size_t>(failure.schedule)].ranks[static_cast<std::size_t>(rank)].lanes;
    where = fmt::format(
        " [{}: {}]", schedule::location(rank, failure.lane, failure.op),
        schedule::describe(lanes[static_cast<std::size_t>(failure.lane)][static_cast<std::size_t>(failure.op)]));
  }
  const std::string self = fmt::format("rank {}: ", rank);
  if (failure.error == ECANCELED) return self + "its context was ended" + where;
  switch (failure.kind) {
    case ExecutionFailureKind::none:
      break;
    case ExecutionFailureKind::listen:
      return self + "cannot listen: " + gpusock::describe_errno(failure.error);
    case ExecutionFailureKind::connect:
      return self + fmt::format("cannot connect to {}: {}{}", peer, gpusock::describe_errno(failure.error),
                                advice_on_connecting(failure.error));
    case ExecutionFailureKind::accept:
      if (failure.error == ETIMEDOUT)
        return self +
               fmt::format("{} has not connected in time: is it running, and can it reach the ranks before it?", peer);
      return self + fmt::format("cannot accept {}: {}", peer, gpusock::describe_errno(failure.error));
    case ExecutionFailureKind::mismatch:
      if (failure.field == ChannelHelloField::rank && failure.channel >= 0) {
        return self +
               fmt::format("where {} is to be, rank {} answers: give all ranks the same addresses", peer, failure.lost);
      }
      if (failure.field == ChannelHelloField::rank) {
        return self + fmt::format("two processes say that they are rank {}: give each rank to one", failure.lost);
      }
      return self + fmt::format("{} was started with other settings: {} is {:#x} there and {:#x} here", peer,
                                name_of(failure.field), failure.theirs, failure.ours);
    case ExecutionFailureKind::receive:
    case ExecutionFailureKind::send:
      return self + describe_loss(failure, peer, failure.lost < 0 ? "" : at(failure.lost)) + where;
    case ExecutionFailureKind::message:
      return self + fmt::format("{} does not follow the schedule: {}{}", peer,
                                describe_message(failure.got, failure.expected), where);
    case ExecutionFailureKind::argument:
      return self + "an operation was given an invalid argument, which all ranks were told: make new groups";
    case ExecutionFailureKind::late:
      return self + fmt::format("its lane {} does not advance; the lost rank is unknown", failure.lane);
  }
  return self + "it failed";
}

}  // namespace param_sync::executor
