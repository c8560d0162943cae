#pragma once
/// @file A plan of another program: what each thread block of each rank reads, writes, sends and waits for, step by
/// step. MSCCL's XML files and MSCCL++'s JSON files are both read into this form. docs/foreign_plans.md says what steps
/// mean.

#include "param_sync/schedule/schedule.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace param_sync::foreign {

inline constexpr int kNone = -1;                    ///< no block, connection, counter or queue
inline constexpr int kBlocksMax = 4096;             ///< most thread blocks of a plan, of all ranks together
inline constexpr int kStepsMax = 1 << 19;           ///< most steps of a plan
inline constexpr int kChunksMax = 1 << 16;          ///< most chunks of a buffer of a rank
inline constexpr int kSlicesMax = 1 << 10;          ///< most cells of a chunk
inline constexpr std::int64_t kCellsMax = 1 << 20;  ///< most cells of all ranks' buffers together

/// The error for a file that is invalid, or that has something whose meaning we do not know. what() says where.
using Error = schedule::Error;

/// The buffers of a rank. `packets` is scratch memory in which each word has a flag beside it: a reader waits for the
/// word's flag.
enum class Buffer : std::uint8_t { input, output, scratch, packets };

/// What a plan does. Each is described in docs/foreign_plans.md.
enum class Collective : std::uint8_t {
  all_reduce,
  all_gather,
  reduce_scatter,
  all_to_all,
  broadcast,
  reduce,
  send_receive,
};

/// Where a step begins to read or write. A step uses `Step::count` cells from here on.
struct Place {
  int rank = 0;                    ///< whose memory it is
  Buffer buffer = Buffer::input;   ///< which of its buffers
  int cell = 0;                    ///< the first cell: a cell is a slice of a chunk (Plan::slices)
  bool waits_for_packets = false;  ///< with Buffer::packets: true if a reader waits for the flags
  /// True if all members are equal.
  bool operator==(const Place&) const = default;
};

/// The kinds of steps.
enum class Kind : std::uint8_t {
  move,     ///< sums what it reads and receives, cell by cell; writes and sends the sums
  await,    ///< waits until another block of the rank has done a step
  signal,   ///< adds 1 to a counter
  wait,     ///< waits until a counter is more than 0, and subtracts 1
  barrier,  ///< waits until so many blocks of the rank are there
  sync,     ///< all threads of the block wait for each other
  flush,    ///< waits until a queue is empty
};

/// One step of a thread block. A step of the file can be several of these.
struct Step {
  Kind kind = Kind::move;     ///< what it does
  std::string name;           ///< what the file calls it: "rrc"
  int index = 0;              ///< its number in the file, in its block
  int iteration = kNone;      ///< of a loop that surrounds it
  int count = 0;              ///< move: number of cells; the messages of two ends must have the same number
  std::vector<Place> from;    ///< move: what it reads
  std::vector<Place> to;      ///< move: what it writes
  int receives = kNone;       ///< move: the connection on which it receives
  int sends = kNone;          ///< move: the connection on which it sends
  bool uses_switch = false;   ///< move: true if a switch reads or writes several ranks' memory for it
  int counter = kNone;        ///< signal, wait
  bool relaxed = false;       ///< signal, wait: orders no memory accesses but those before the plan began
  int barrier = kNone;        ///< barrier: its number, counted over all ranks
  int queue = kNone;          ///< the queue in which a move or a signal is put, or that a flush empties
  int awaited_block = kNone;  ///< await: the block, counted over all ranks
  int awaited_step = kNone;   ///< await: the step, an index of Block::steps
};

/// A thread block. Its steps run in order.
struct Block {
  int rank = 0;             ///< its rank
  int id = 0;               ///< its number in the file
  std::vector<Step> steps;  ///< what it does
};

/// A first-in-first-out path of messages. One block sends on it, and one receives.
struct Connection {
  int from = 0;     ///< the rank that sends
  int to = 0;       ///< the rank that receives
  int channel = 0;  ///< its number in the file
};

/// Blocks signal a counter and wait for it.
struct Counter {
  std::string name;  ///< for people: "semaphore 2 of rank 0"
  int initial = 0;   ///< its value before the plan begins
};

/// A point at which blocks of a rank wait for each other.
struct Barrier {
  std::string name;  ///< for people
  int blocks = 0;    ///< how many blocks wait for each other
};

/// The sizes of a rank's buffers, in chunks.
struct Sizes {
  int input = 0;    ///< chunks of the input
  int output = 0;   ///< chunks of the output
  int scratch = 0;  ///< chunks of the scratch memory
};

/// A plan.
struct Plan {
  std::string format;                              ///< "MSCCL" or "MSCCL++"
  std::string name;                                ///< from the file, as it is there
  std::string protocol;                            ///< from the file: "Simple", "LL", "LL128"
  std::string steps_called = "step";               ///< what the format calls a step
  Collective collective = Collective::all_reduce;  ///< what it should do
  int root = 0;                                    ///< broadcast, reduce: the root
  int ranks = 0;                                   ///< number of ranks
  int data_chunks = 0;                             ///< chunks of the larger one of input and output
  int slices = 1;                                  ///< cells of a chunk
  /// Bytes of a chunk that an iteration of a pipeline takes; 0: there is no pipeline. Then a chunk's cells are
  /// iterations.
  std::uint64_t iteration_bytes = 0;
  bool runs_in_place = false;      ///< the file says: input and output may be one buffer
  bool runs_out_of_place = false;  ///< the file says: input and output may be two buffers
  bool syncs_itself = true;        ///< true if a block's threads meet after each step, unasked
  bool doubles_scratch = false;    ///< calls take turns with two scratch buffers
  int slots = 1;                   ///< pieces of messages that a connection holds
  /// A piece has neighbouring chunks of a message, of together so many bytes at most; or a part of one larger chunk.
  std::uint64_t piece_bytes = 0;
  std::uint64_t bytes_max = 0;          ///< data that it is for, at most; 0: any number
  std::vector<Sizes> sizes;             ///< by rank
  std::vector<Block> blocks;            ///< of all ranks
  std::vector<Connection> connections;  ///< of all ranks
  std::vector<Counter> counters;        ///< of all ranks
  std::vector<Barrier> barriers;        ///< of all ranks
  std::vector<int> queues;              ///< their ranks: a queue moves data beside its rank's blocks
  std::string fault;                    ///< what is wrong whatever happens when it runs; empty: nothing
};

/// The name of a collective, as MSCCL has it.
const char* to_string(Collective collective);

/// The collective of this name, in MSCCL's or MSCCL++'s words. Throws Error if we know none.
Collective parse_collective(const std::string& name);

/// Chunks of input and output that a collective has, if the larger of both has `data_chunks`.
/// Throws Error if the ranks cannot share them evenly.
Sizes sizes_of(Collective collective, int ranks, int data_chunks);

/// The chunk of the output at which a rank's input lies, if both are one buffer and the output is larger or equal.
/// For a reduce-scatter: the chunk of the input at which its output lies.
int offset_in_place(const Plan& plan, int rank);

/// Returns text such as "rank 0, thread block 2, step 3 (rrc)".
std::string location(const Plan& plan, const Block& block, const Step& step);

/// Returns text such as "output chunk 3 of rank 1".
std::string name_of(const Plan& plan, const Place& place);

}  // namespace param_sync::foreign
