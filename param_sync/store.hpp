#pragma once
/// @file A parameter server for workers that do not wait for each other: param_sync's public API beside group.hpp. Link
/// gpusock::param_sync. store.cuh has the calls of kernels.

#include "param_sync/codec/wire_format.hpp"
#include "param_sync/group.hpp"
#include "param_sync/parameters.hpp"
#include "param_sync/store/clock/clock.hpp"
#include "param_sync/store/correction.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace param_sync {

namespace store {
struct Worker;  // what kernels need: store/worker.cuh
}

/// How a store works. All ranks pass the same options, except where it says that they may differ.
struct StoreOptions {
  AnyClock clock = Bsp();  ///< which version of the weights a worker may read (clock_of() reads its text)
  /// What an owner does with a push; with Bsp, Backup and Coded, with a sum of pushes. With other clocks each rank has
  /// velocities of its own, which decay with its pushes alone.
  Update update = Update::add();
  Correction correction = {};  ///< of pushes that are late; with Ssp and Async
  /// How pushes are sent. An owner computes with float32 in any case.
  WireFormat push_format = WireFormat::float32;
  WireFormat pull_format = WireFormat::float32;  ///< how weights are sent to workers that pull
  /// How many connections a rank has to each owner, 1 to 16. Range i uses connection i % connections. Only one group of
  /// threads of a rank may push or pull ranges of one connection at a time.
  unsigned connections = 1;
  /// Floats of a row, of which push_rows() and pull_rows() move some. Each range is a whole number of rows, at most
  /// 2^32.
  std::size_t row_floats = 1;
  /// The most rows that a call may move which moves some of them. Owners keep their numbers for each rank and range, 4
  /// bytes of device memory each, and at most as many as the range has rows: rows that a rank names again are not sent
  /// again.
  std::size_t rows_max = 0;
  /// Rows that each rank has for keys: push_keys() and pull_keys() name rows by 64-bit keys. At most 2^32 - 2; 0: there
  /// are no keys. Consistent hashing gives a rank up to 1.5 times as many keys as the mean. Rank r's keys are range
  /// number n + r, where n is how many ranges the store was given.
  std::size_t keys_max = 0;
  /// What a rank owns (weights, velocities, pushes that wait for others) is in host memory, which the kernels of a GPU
  /// reach over the bus: for weights that device memory has no room for. Ranks may differ.
  bool in_host_memory = false;
  /// Not 0: ranks pass weights on to each other by trees of so many levels below an owner (pull_by_tree.cuh). With Bsp
  /// and a pull_format of float32.
  std::uint64_t tree_depth = 0;
  /// How many ranks have each range, 1 to the number of ranks: its owner, and with more than 1 the ranks after it,
  /// which keep replicas. What a pull returns is not lost while one of them lives (held()). Each rank then pulls each
  /// range after each of its pushes, by pull(): others wait for ranks that keep replicas of what they read. With Bsp
  /// and float32; without keys, rows and trees.
  int replicas = 1;
  std::size_t history_events = 0;  ///< how many pushes and pulls of a rank history() keeps
};

/// A push or a pull of one rank.
struct StoreEvent {
  bool is_push = false;             ///< true: a push; false: a pull
  std::uint64_t clock = 0;          ///< how many pushes of this range the rank had made: of a push, with this one
  std::size_t begin = 0;            ///< the keys, which are numbers of weights: [begin, end)
  std::size_t end = 0;              ///< see begin
  std::vector<std::uint64_t> seen;  ///< of a pull, by rank: how many of its pushes the weights contain at least
  bool is_cached = false;           ///< of a pull: pull_cached() has not asked the owner
};

/// Bytes that kernels of one rank have moved, of one range, since start().
struct StoreTraffic {
  std::uint64_t pushed_bytes = 0;  ///< of pushes, with their requests
  std::uint64_t asked_bytes = 0;   ///< of the requests of pulls
  std::uint64_t pulled_bytes = 0;  ///< of the answers to pulls
};

/// A range of weights, with what the owner's update keeps of each.
struct HeldRange {
  std::size_t range = 0;       ///< its number
  std::uint64_t clock = 0;     ///< how many pushes of each rank the weights contain
  std::vector<float> weights;  ///< the weights
  std::vector<float> states;   ///< the states, as UpdateStates has them
};

/// Weights that the ranks of a group have put together.
struct RecoveredRanges {
  std::uint64_t clock = 0;                  ///< how many pushes of each rank they contain
  std::vector<std::vector<float>> weights;  ///< by range
  std::vector<std::vector<float>> states;   ///< by range: what the update keeps of each weight
};

/// What kernels need to push and to pull (store.cuh). Kernels take it by value. It is valid as long as its Store
/// exists.
struct StoreHandle {
  const store::Worker* worker = nullptr;  ///< device memory
};

/// Weights that ranks share, without a collective operation: a worker's kernel pushes and pulls by itself, and a server
/// block on each rank answers requests in the order in which they come. The weights are divided into ranges, such as
/// the layers of a model. Each range has one owner. A push or a pull moves one range, between a worker and the owner.
///
/// **Clocks.** The clock of a worker and a range is how many pushes of that range the worker has made. The option
/// `clock` says what a pull waits for, and so how stale weights may be: Bsp, Ssp or Async (param_sync/store/clock).
/// With Bsp, pushes of one clock are summed in the order of ranks and applied together, so all ranks read equal bits; a
/// worker that pushes twice without a pull waits until all others have pushed once. Otherwise a push is applied when it
/// comes. A pull beside it may then read weights to which only a part of that push is applied.
///
/// To set it up, all ranks make a Store with the same ranges and options; then all call start(). The constructor waits
/// for no rank, but it makes memory, for which a GPU waits until its kernels have ended: so ranks that share a GPU in
/// one process all make theirs before one of them has kernels that wait for others, such as those of start() and of the
/// group's operations. At the end all of them call stop() before one ends its Store.
///
/// **Failures.** If an owner is lost, or a push that a pull must wait for cannot come any more, or a call takes longer
/// than its deadline, the call returns a negated errno, and check() throws an error that names the rank. All later
/// calls of this rank fail, too. This rank is then lost for the others, and so is a rank that ends its Store: end it
/// after a barrier() of the group. After a failure on any rank make new stores on all ranks.
///
/// Context::synchronize() waits for the server block, too: launch kernels on a gpusock::Stream, and synchronize that.
/// One host thread at a time calls it, and not at the same time as the group.
class Store {
 public:
  /// `initial`: the weights of each range; the same on all ranks. The group listens, and outlives this object.
  /// Throws gpusock::Error (EINVAL, ENOTCONN, ENOMEM); then operations of this group fail on all ranks.
  Store(Group& group, std::span<const std::vector<float>> initial, const StoreOptions& options = {});
  /// As the other constructor, with the weights and states that recover() has returned. With Bsp.
  Store(Group& group, const RecoveredRanges& recovered, const StoreOptions& options = {});
  /// Ends the server block. First wait for the kernels that use the handle.
  ~Store();
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;

  /// Connects to all ranks, waits until they are connected, and starts the server block. The group is connected. It is
  /// an operation of the group that waits. Call it once. Throws as the group's operations do; (ETIMEDOUT, ECONNREFUSED,
  /// ...) a rank cannot be reached; (EPROTO) a rank has other ranges or options. The message names the rank.
  StoreHandle start();

  /// Ends the server block, and waits until it has ended. Call it after a barrier() of the group: a rank whose server
  /// has ended is lost for those that still push or pull. The destructor does the same.
  void stop();

  /// Throws gpusock::Error if a call of a kernel has failed. The message names the rank that was lost.
  void check();

  /// The rank that owns a range. Ranks own about equally many weights. Throws gpusock::Error (EINVAL): no such range.
  int owner(std::size_t range) const;

  /// Where the states are of a range that this rank owns, as UpdateStates has them, in the order of weights; null for a
  /// range of another rank. In the memory of kernels. With Bsp they change when a rank reads weights of the next clock.
  const float* states(std::size_t range) const;

  /// Ends this rank's part after a failure, with options that have replicas: ends the server block and all connections,
  /// so that the others learn of it, and returns what this rank has of the weights, as their owner or as a replica: of
  /// each range the newest version, and the one before it if there is one. recover() makes the weights of all ranks
  /// from it. Call it when no kernel uses the handle.
  std::vector<HeldRange> held();

  /// What this rank's kernels have moved, by range. Call it when no kernel uses the handle.
  std::vector<StoreTraffic> traffic() const;

  /// This rank's first StoreOptions::history_events pushes and pulls, in order. Call it when no kernel uses the handle.
  std::vector<StoreEvent> history() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// After a loss, the ranks that are left put together what they hold of a store: the newest version that they have of
/// all ranges, the same on all of them. No rank has read a newer version of all ranges, if fewer ranks were lost than
/// StoreOptions::replicas. So a new Store begins with these weights and states, and each rank repeats the step after
/// `clock`.
///
/// It is two operations of `group`, a new group, that wait; each up to `timeout_ns`. `context`: that of the group.
/// `range_floats`: how long each range is. `held`: what this rank has; a rank that is new has nothing.
///
/// Throws as the group's operations do, and gpusock::Error (ENODATA): the ranks do not have all of some range, on all
/// of them.
RecoveredRanges recover(Group& group, gpusock::Context& context, std::span<const std::size_t> range_floats,
                        std::span<const HeldRange> held, std::uint64_t timeout_ns = Group::kTimeoutNs);

/// Returns a rank's history as lines of JSON, one for each event, for programs that decide whether a run has kept its
/// clock (docs/stores.md has the format).
std::string to_json_lines(int rank, std::span<const StoreEvent> history);

}  // namespace param_sync
