#pragma once
/// @file Runs schedules between ranks over gpusock's sockets. It runs them in kernels in which each block is a lane.

#include "param_sync/codec/codec.hpp"
#include "param_sync/reduction/data_type.hpp"
#include "param_sync/update/update.hpp"
#include "param_sync/executor/failure.hpp"
#include "param_sync/executor/program.hpp"
#include "param_sync/executor/traced_op.hpp"
#include "param_sync/schedule/schedule.hpp"

#include "gpusock/gpusock.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace param_sync::executor {

/// Which code tells the other ranks why a rank fails, before the rank ends its connections.
enum class LastWordsBy {
  nobody,  ///< none: failures name the peer whose connection has ended, and that peer may have lost another rank
  lanes,   ///< the lane that fails first, on one more connection to each peer
  host     ///< kernels of the program, by Executor::last_words(), on one more connection to every rank. Lanes that fail
           ///< leave all connections open, and the opening of channels ends when a rank says something, or has ended
};

/// The settings of an executor. All ranks have the same settings, except `rank`.
struct Settings {
  int rank = 0;                          ///< this rank, from 0
  std::uint64_t ring_bytes = 512 << 10;  ///< size of each of a connection's two rings: a power of two, 4 KiB to 64 MiB
  std::uint64_t unit_bytes = 0;  ///< the most that a pass moves of a chunk; with a message's header it fits into a
                                 ///< ring. 0: as much as fits, at most 256 KiB
  std::uint64_t connect_timeout_ns = 30'000'000'000;  ///< how long opening all channels may take
  unsigned threads = 0;                               ///< threads of a lane; 0: 1 on the CPU device, 256 on a GPU
  Execution execution;                                ///< how all schedules are executed
  LastWordsBy last_words = LastWordsBy::nobody;       ///< which code tells other ranks why this one fails
  gpusock::Stream* stream = nullptr;  ///< runs are launches of this stream, which outlives the executor; null: of one
                                      ///< that the executor makes
};

/// How the owner of a chunk makes weights of its sum. In a parameter server each rank owns some chunks, and sends their
/// weights to all others. In an all-reduce each rank applies the update to all sums. If `weights` is null, sums stay as
/// they are.
struct Optimizing {
  AnyUpdate update{};        ///< its type is the same for all tensors that resident lanes exchange
  UpdateStates states{};     ///< state of each float of the tensor, or of `owned`
  float* weights = nullptr;  ///< as many weights, in device memory. In a parameter server without
                             ///< Execution::weights_apart, other ranks get them where their gradients were
  Floats owned{};  ///< for a reduce-scatter: the sums that become weights at the end of the run. Then only these have
                   ///< states and weights
};

struct ExchangeWords;        // exchange_words.cuh
struct ExchangeTimes;        // handover.cuh
struct LastWords;            // last_words.cuh
struct InPlaceReservations;  // in_place_reservation.cuh

/// A tensor of gradients that resident lanes exchange once in every step, by a schedule of its own. The schedules of
/// two tensors share no channel: schedule::shift_channels() renumbers channels. With a schedule that only copies
/// (schedule::is_copied()), the data that arrives is stored in the tensor.
struct Exchanged {
  std::size_t schedule = 0;    ///< index in the constructor's list of schedules
  float* gradients = nullptr;  ///< memory that kernels reach; also where an all-reduce leaves the sums
  std::uint64_t count = 0;     ///< floats
  Optimizing optimizing;       ///< how the owner of a chunk makes weights of its sum
  bool in_place = false;  ///< true if all kernels write the gradients through Destination (in_place_reservation.cuh),
                          ///< made of in_place_reservations()
  std::uint64_t ready_per_step = 1;  ///< how often its gradients are handed over in a step: once by each block
};

/// What resident lanes share with the other kernels of a training. Pointers point to device memory, unless their
/// comment says otherwise, and none may be null. The memory outlives the lanes. Ranks do not compare these settings: if
/// steps or updates may differ, pass them to begin_connect().
struct Residence {
  std::uint64_t steps = 0;          ///< steps of the training; resident lanes end after them
  std::uint64_t timeout_ns = 0;     ///< how long each wait for another rank may take
  ExchangeWords* words = nullptr;   ///< one entry for each tensor, 0 at the beginning
  ExchangeTimes* times = nullptr;   ///< 0 at the beginning
  std::uint64_t* failed = nullptr;  ///< not 0 once any kernel has failed
  std::uint64_t* stop = nullptr;    ///< mapped: the host sets it to end the training
  bool in_order = true;             ///< sends of a tensor wait while an earlier tensor in the list has data to send
  std::uint64_t traced_steps = 0;   ///< how many steps are traced, from the first one
  std::uint64_t credits = 0;  ///< how many messages may be on their way to be added here at a time, for all tensors
                              ///< together; 0: any number. Needs schedules with as many credits
  codec::AnyCodec codec{};    ///< a codec other than dense needs parameter servers whose weights are apart
  unsigned executors_on_device = 1;  ///< executors with resident lanes on this device at the same time
};

/// Runs the schedules of one rank. To set it up, listen, tell all other ranks the address, and connect. Then all ranks
/// start the same runs in the same order. One host thread at a time calls it.
class Executor {
 public:
  /// The context outlives the executor. Throws schedule::Error if a schedule is wrong (check.hpp), and gpusock::Error
  /// if the device cannot keep all lanes of a schedule resident or a setting is invalid.
  Executor(gpusock::Context& context, const Settings& settings, std::vector<schedule::Schedule> schedules);
  /// Ends runs that are in flight, sets Residence::stop if resident lanes still run, and closes the connections.
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  /// Listens at `at`, which also names the link, and returns the address. The ring size and type of `at` are not used.
  /// Throws gpusock::Error.
  gpusock::Endpoint listen(const gpusock::Endpoint& at);

  /// Begins to open the channels to all ranks, and does not wait. `addresses`: where each rank listens, by
  /// rank. `program`: settings of the program that all ranks must share, besides those of the executor; at most
  /// kProgramSettingsMax. A failure says which setting differs (ExecutionFailure::field). Throws gpusock::Error
  /// (EINVAL).
  void begin_connect(const std::vector<gpusock::Endpoint>& addresses, std::span<const std::uint64_t> program = {});
  /// True while channels are being opened. Does not wait.
  bool is_connecting();
  /// Waits until all channels are open. Throws gpusock::Error, which names the rank that cannot be reached, has not
  /// come, or has other settings.
  void await_connect();
  /// After await_connect() has failed: the rank to which this one could not connect in time, or to which no route
  /// leads; -1 if it has failed for another reason.
  int unreachable_rank() const;

  /// Starts a run of schedules[index] on `count` floats at `data`, and returns its number. Runs are executed one after
  /// the other. `data` is memory that kernels reach: of a DeviceBuffer or a Mapped. The run fails if it takes longer
  /// than `timeout_ns` from when it begins; with last words it fails up to 8 s later if a peer does not answer. `tag`
  /// says what the run is for: the run also fails if ranks give different tags. Throws gpusock::Error after a failure,
  /// and if an argument is invalid (EINVAL, EFBIG); then all ranks fail.
  std::uint64_t start(std::size_t index, float* data, std::uint64_t count, std::uint64_t timeout_ns,
                      const Optimizing& optimizing = {}, std::uint32_t tag = 0);

  /// As start(), with any reduction in place of sums of floats. `data` has `words` words of 4 bytes: one element each,
  /// or two of a type of 16 bits. The run also fails if ranks give different reductions. Throws as start() does, and
  /// gpusock::Error (EINVAL) for an average of int32, or if `data` is not aligned to 4 bytes.
  std::uint64_t start_reduction(std::size_t index, void* data, std::uint64_t words, std::uint64_t timeout_ns,
                                const Reduction& reduction);

  /// Call it after an invalid argument. It tells the peers, which then fail at once instead of waiting for this rank in
  /// vain, and ends all runs. Later calls of start() and wait() throw. It does nothing before begin_connect().
  void give_up();

  /// Copies floats between memory that kernels reach: after the runs that were started before, and before later runs.
  void copy(float* to, const float* from, std::uint64_t floats);

  /// True if the run has ended, also if it has failed.
  bool done(std::uint64_t run);

  /// Waits until all runs that were started have ended, also if they fail.
  void await_runs() noexcept;

  /// Waits for a run. Throws gpusock::Error (ECONNRESET, ETIMEDOUT, EPROTO, ECANCELED, EFAULT), which names the lost
  /// rank and the op. After a failure on any rank, runs of all ranks fail: make new executors then.
  void wait(std::uint64_t run);

  /// Allocates the memory of the lanes of all these tensors; the lanes stay for all steps. Allocation may wait for
  /// running kernels: so call it on all ranks of a process before any of them has kernels that wait for another rank.
  /// Throws gpusock::Error: (ENOBUFS) the device cannot keep all lanes resident beside other kernels; (EINVAL) a
  /// pointer is null, two tensors share a channel, the schedules do not suit the credits or the codec, a budget has no
  /// room for messages' headers, or it was called before.
  void prepare_resident(std::span<const Exchanged> tensors, const Residence& residence);

  /// Returns where kernels write this tensor's gradients, once it is prepared. If it is not exchanged in place, there
  /// are no reservations, and kernels write into the tensor.
  InPlaceReservations in_place_reservations(std::size_t tensor) const;

  /// Starts all prepared lanes at once. Call it when the channels are connected, and call start() neither before nor
  /// after it. Kernels hand over a tensor's gradients by hand_over(), and has_version() says when the weights are there
  /// (exchange_words.cuh). Throws gpusock::Error (EINVAL) if lanes are not prepared, not connected, or started already.
  void start_resident();

  /// Waits until the resident lanes have ended: after all steps, after a failure, or once `stop` is set. Lanes wait for
  /// ever if a kernel of this rank hands nothing over. Throws gpusock::Error if a kernel has faulted.
  void await_resident();

  /// Throws gpusock::Error as wait() does, if a lane has failed.
  void check();
  /// Returns why a lane has failed, if one has. Any thread may call it.
  std::optional<ExecutionFailure> failure();

  /// How many ops each resident lane has completed in all steps, by tensor and lane.
  std::vector<std::uint64_t> positions();

  /// Returns the ops of this tensor's lanes in the first traced_steps steps, by lane, in order. Call it when they have
  /// ended.
  std::vector<std::vector<TracedOp>> trace(std::size_t tensor) const;

  /// For kernels that send last words and receive those of others, also while channels are being opened. Empty with
  /// LastWordsBy::nobody.
  LastWords last_words() const;

  /// All channels of this rank, in order.
  const std::vector<Channel>& channels() const;
  /// One of the schedules that the constructor was given.
  const schedule::Schedule& schedule(std::size_t index) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace param_sync::executor
