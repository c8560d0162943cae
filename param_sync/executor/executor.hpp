#pragma once
/// @file Runs schedules between ranks, over gpusock's sockets, in kernels of which each block is a lane.

#include "param_sync/codec/codec.hpp"
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

/// Who tells the other ranks why a rank fails, before it ends its connections.
enum class LastWordsBy {
  nobody,  ///< failures name the peer whose connection has ended, which may have lost another one
  lanes,   ///< the lane that fails first, on one more connection to each peer
  host     ///< kernels of the program, by Executor::last_words(), on one more connection to every rank. Lanes that fail
           ///< leave all connections open, and the opening of channels ends when a rank tells something, or has ended
};

/// The same on all ranks, but for `rank`.
struct Settings {
  int rank = 0;                          ///< this rank, from 0
  std::uint64_t ring_bytes = 512 << 10;  ///< of each connection, each way; a power of two, 4 KiB to 64 MiB
  std::uint64_t unit_bytes = 0;  ///< what a pass moves of a chunk at most; with a message's header it fits into a ring.
                                 ///< 0: as much as fits, at most 256 KiB
  std::uint64_t connect_timeout_ns = 30'000'000'000;  ///< how long opening all channels may take
  unsigned threads = 0;                               ///< of a lane; 0: 1 on the CPU device, 256 on a GPU
  Execution execution;                                ///< of all schedules
  LastWordsBy last_words = LastWordsBy::nobody;       ///< who tells other ranks why this one fails
};

/// What the owner of a chunk does with its sum: it makes weights. By a parameter server each rank owns some chunks, and
/// sends their weights to all others. By an all-reduce each rank applies the update to all sums. Without weights, sums
/// stay what they are.
struct Optimizing {
  AnyUpdate update{};        ///< its type is the same for all tensors that resident lanes exchange
  UpdateStates states{};     ///< for each float of the tensor, or of `owned`
  float* weights = nullptr;  ///< as many; device memory. By a parameter server whose weights are not apart
                             ///< (Execution::weights_apart) other ranks get them where their gradients were
  Floats owned{};  ///< of a reduce-scatter: the sums that become weights at the end of the run. Only they have memory
                   ///< then
};

struct ExchangeWords;  // exchange_words.cuh
struct ExchangeTimes;  // handover.cuh
struct LastWords;      // last_words.cuh
struct Places;         // place.cuh

/// A tensor of gradients that resident lanes exchange once in every step, by a schedule of its own. Schedules of two
/// tensors share no channel: schedule::shift_channels() renumbers those of one. By a schedule that only copies
/// (schedule::is_copied()) the tensor has what arrives.
struct Exchanged {
  std::size_t schedule = 0;    ///< index in the list that the constructor was given
  float* gradients = nullptr;  ///< memory that kernels reach; also where an all-reduce leaves the sums
  std::uint64_t count = 0;     ///< floats
  Optimizing optimizing;       ///< what the owner of a chunk does with its sum
  bool in_place = false;       ///< all kernels that write the gradients do so by Destination (place.cuh), by those of
                               ///< places()
  std::uint64_t ready_per_step = 1;  ///< so often its gradients are handed over in a step: once by each block
};

/// What resident lanes share with the other kernels of a training. Pointers are to device memory, unless they say
/// otherwise; none may be null. What they point to outlives the lanes. Ranks do not compare these settings: where steps
/// or updates may differ, give them to begin_connect().
struct Residence {
  std::uint64_t steps = 0;          ///< of the training: resident lanes end after them
  std::uint64_t timeout_ns = 0;     ///< for any wait on another rank
  ExchangeWords* words = nullptr;   ///< one for each tensor, 0 at the beginning
  ExchangeTimes* times = nullptr;   ///< 0 at the beginning
  std::uint64_t* failed = nullptr;  ///< not 0 once any kernel has failed
  std::uint64_t* stop = nullptr;    ///< mapped: the host sets it to end the training
  bool in_order = true;             ///< sends of a tensor wait while one before it in the list has something to send
  std::uint64_t traced_steps = 0;   ///< the first ones
  std::uint64_t credits = 0;  ///< at most so many messages are on their way to be added here at a time, in all tensors
                              ///< together: of schedules with as many slots; 0: any number
  codec::AnyCodec codec{};    ///< other than dense: of parameter servers whose weights are apart
  unsigned executors_on_device = 1;  ///< that have resident lanes at the same time
};

/// One rank. Set-up: listen, tell all other ranks the address, connect. Then all ranks start the same runs in the same
/// order. One host thread at a time.
class Executor {
 public:
  /// The context outlives it. Throws schedule::Error where a schedule is wrong (check.hpp), gpusock::Error where the
  /// device cannot keep all lanes of a schedule resident, or a setting is invalid.
  Executor(gpusock::Context& context, const Settings& settings, std::vector<schedule::Schedule> schedules);
  /// Ends runs that are in flight, sets Residence::stop where resident lanes still run, and closes the connections.
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  /// Listens, and says where. `at` names the link; its ring size and type are not used. Throws gpusock::Error.
  gpusock::Endpoint listen(const gpusock::Endpoint& at);

  /// Opens the channels to the ranks that listen at these addresses, by rank; waits for nothing. `program`: settings of
  /// the program that all ranks must share, besides those of the executor; at most kProgramSettingsMax. A failure says
  /// which one differs (ExecutionFailure::field).
  void begin_connect(const std::vector<gpusock::Endpoint>& addresses, std::span<const std::uint64_t> program = {});
  /// True while channels are being opened. Waits for nothing.
  bool is_connecting();
  /// Waits until all channels are open. Throws gpusock::Error: which rank cannot be reached, has not come, or has other
  /// settings.
  void await_connect();

  /// Starts a run of schedules[index] on `count` floats at `data`, and returns its number. Runs go one after the other.
  /// `data` is memory that kernels reach: of a DeviceBuffer or a Mapped. The run fails when it takes longer than
  /// `timeout_ns` from when it begins; with last words up to 8 s later, where a peer does not answer. It also fails
  /// where ranks give different tags: what the run is for. Throws gpusock::Error after a failure, and where an argument
  /// is invalid (EINVAL, EFBIG): then all ranks fail.
  std::uint64_t start(std::size_t index, float* data, std::uint64_t count, std::uint64_t timeout_ns,
                      const Optimizing& optimizing = {}, std::uint32_t tag = 0);

  /// After an invalid argument: tells the peers, which fail at once instead of waiting for this rank in vain, and ends
  /// all runs. Any call after it throws. Nothing where the executor is not connected.
  void give_up();

  /// Copies floats between memory that kernels reach, after the runs that were started before, and before later ones.
  void copy(float* to, const float* from, std::uint64_t floats);

  /// True if the run has ended, well or not.
  bool done(std::uint64_t run);

  /// Waits until all runs that were started have ended, well or not.
  void await_runs() noexcept;

  /// Waits for a run. Throws gpusock::Error (ECONNRESET, ETIMEDOUT, EPROTO, ECANCELED, EFAULT): which rank it lost, and
  /// where. After a failure on any rank, runs of all ranks fail; make new executors then.
  void wait(std::uint64_t run);

  /// Makes the memory of lanes that stay for all steps, of all these tensors. Making memory may wait for running
  /// kernels: so do this on all ranks of a process before any of them has kernels that wait for another rank. Throws
  /// gpusock::Error: (ENOBUFS) the device cannot keep all lanes resident beside other kernels; (EINVAL) a pointer is
  /// null, two tensors share a channel, the schedules grant nothing or are not for the codec, a budget has no room for
  /// messages' headers, or it was called before.
  void prepare_resident(std::span<const Exchanged> tensors, const Residence& residence);

  /// Where kernels write this tensor's gradients, once it is prepared. None where it is not exchanged in place: they
  /// write into the tensor.
  Places places(std::size_t tensor) const;

  /// Starts the lanes that were prepared, all at once, when the channels are connected. A kernel hands a tensor's
  /// gradients over with hand_over(), and has_version() says when the weights are there
  /// (exchange_words.cuh). No start() before or after. Throws gpusock::Error (EINVAL): not prepared, not connected, or
  /// started before.
  void start_resident();

  /// Waits until the resident lanes have ended: after all steps, after a failure, or once `stop` is set. Lanes wait for
  /// ever for a kernel of this rank that hands nothing over. Throws gpusock::Error where a kernel has faulted.
  void await_resident();

  /// Throws gpusock::Error, as wait(), where a lane has failed.
  void check();
  /// Why a lane has failed, if one has. Any thread.
  std::optional<ExecutionFailure> failure();

  /// How many ops each resident lane has completed in all steps, by tensor and lane.
  std::vector<std::uint64_t> positions();

  /// What the lanes of this tensor have done in the first traced_steps, by lane, in order; once they have ended.
  std::vector<std::vector<TracedOp>> trace(std::size_t tensor) const;

  /// For kernels that tell last words, and hear those of others; while channels are opened, too. None without the
  /// setting.
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
