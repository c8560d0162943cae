#pragma once
/// @file Why a run of a schedule ended early: what a kernel records, and the text that describes it.

#include "param_sync/executor/program.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace param_sync::executor {

/// What a rank could not do.
enum class ExecutionFailureKind : std::uint32_t {
  none,
  listen,    ///< this rank could not listen
  connect,   ///< another rank could not be reached
  accept,    ///< a rank did not connect
  mismatch,  ///< a rank was started with other settings; `field` says which
  receive,   ///< a message did not come
  send,      ///< a message could not be sent
  message,   ///< the message that came is not the one in the schedule
  late,      ///< another lane of this rank did not advance in time
  argument,  ///< this rank was given an invalid argument
};

/// Which rank is lost, if a peer's connection has ended or nothing came from it in time (last_words.cuh).
enum class Blame : std::uint32_t {
  none,              ///< no rank was asked: the peer is lost, or a rank that the peer has lost
  peer,              ///< the peer: it has ended without a word
  silent_peer,       ///< the peer: it says nothing, and does not answer
  told,              ///< the rank in `lost`: the peer has said so
  told_of_schedule,  ///< the rank in `lost` does not follow the schedule: the peer has said so
  told_of_argument,  ///< no rank: the peer has said that the rank in `lost` was given an invalid argument
  this_rank,         ///< the peer has given up this rank
  unknown,
};

/// The most settings of a program that ranks compare.
inline constexpr int kProgramSettingsMax = 16;

/// What all ranks must share, in the order in which ranks compare it.
enum class ChannelHelloField : std::uint32_t {
  none,
  version,
  nodes,
  program,  ///< the first setting of the program (Executor::begin_connect()); the others follow
  ring_bytes = program + kProgramSettingsMax,
  unit_bytes,
  schedules,  ///< schedules, and how they are executed: Settings::execution, last_words
  rank        ///< not a setting: two processes claim the same rank, or another rank answers at a rank's address
};
inline constexpr int kChannelHelloFields = static_cast<int>(ChannelHelloField::rank);  ///< values that are compared

/// The first bytes of each message.
struct MessageHeader {
  static constexpr std::uint32_t kMagic = 0x45537350;           ///< "PsSE": floats follow
  static constexpr std::uint32_t kMagicOfChanges = 0x43537350;  ///< "PsSC": changes follow, each as long as two floats
  std::uint32_t magic = kMagic;                                 ///< what follows
  std::uint32_t chunk = 0;                                      ///< the first chunk
  std::uint32_t count = 0;                                      ///< number of chunks; 0: a signal
  std::uint32_t pass = 0;                                       ///< pass of the run, from 0 (Cut)
  std::uint32_t run = 0;                                        ///< Run::number, modulo 2^32
  std::uint32_t operation = 0;                                  ///< Run::operation
  std::uint64_t floats = 0;                                     ///< floats that follow; a change counts as two
  /// Equal members.
  bool operator==(const MessageHeader&) const = default;
};
static_assert(sizeof(MessageHeader) == 32);

/// Why a run ended, and where. Members without a meaning for its kind keep their defaults.
struct ExecutionFailure {
  ExecutionFailureKind kind = ExecutionFailureKind::none;  ///< what this rank could not do
  std::int32_t channel = -1;                               ///< index of the channel, if the failure is about one
  std::int32_t error = 0;                                  ///< errno, positive; 0 if the peer ended its connection
  std::int32_t schedule = -1;                              ///< index of the schedule that ran; -1: none yet
  std::int32_t lane = -1;                                  ///< index in the schedule
  std::int32_t op = -1;                                    ///< index in the lane
  Blame blame = Blame::none;                               ///< which rank is lost, and how this one knows
  std::int32_t lost = -1;  ///< a rank, if `blame` says so; mismatch of `rank`: the rank that the other side claims
  ChannelHelloField field = ChannelHelloField::none;  ///< mismatch: what differs
  std::uint64_t ours = 0;                             ///< mismatch: this rank's value
  std::uint64_t theirs = 0;                           ///< mismatch: the other rank's
  MessageHeader expected = {};                        ///< message
  MessageHeader got = {};                             ///< message
};

/// Returns "rank 2: lost rank 1: ...", and what to do. `addresses`: the ranks' addresses, if they are known.
std::string describe(const ExecutionFailure& failure, int rank, const std::vector<Channel>& channels,
                     const std::vector<std::string>& addresses, const std::vector<schedule::Schedule>& schedules);

}  // namespace param_sync::executor
