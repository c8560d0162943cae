#pragma once
/// @file The server of a rank: a block that stays on the device, waits on a poll set, and answers pushes and pulls of
/// the ranges that the rank owns, in the order in which they come. It waits for no single worker.

#include "param_sync/codec/own_share.cuh"
#include "param_sync/codec/packed.cuh"
#include "param_sync/store/correction.hpp"
#include "param_sync/store/key_rows.cuh"
#include "param_sync/store/range_clocks.hpp"
#include "param_sync/store/sum_of.hpp"
#include "param_sync/store/worker.cuh"
#include "param_sync/update/sgd.hpp"

namespace param_sync::store {

/// What a connection does.
enum class Phase : std::uint32_t {
  idle,     ///< the next request may come
  held,     ///< a push that must wait until the one before it is applied; its floats stay in the ring
  dropped,  ///< nothing that comes is used any more: the worker is told so when it pulls
  naming,   ///< the numbers or keys come that follow a request
  pushing,  ///< the floats of a push come
  waiting,  ///< a pull that may not read yet
  sending,  ///< an answer is being sent
  gone      ///< it is closed
};

/// A worker's connection, in device memory. Only the server's block uses it, once it is connected.
struct Connection {
  gpusock::Socket socket = -1;
  std::int32_t rank = -1;
  Phase phase = Phase::idle;
  std::uint32_t head_words = 0;  ///< of an answer: words of `head`
  Request request;
  std::uint64_t done = 0;         ///< numbers of rows, or words of a push that have come, or of an answer that are sent
  std::uint64_t value_words = 0;  ///< of an answer: words of its weights
  codec::BeforePiece before;      ///< of the words that have come, or are sent
  std::uint64_t missed = 0;       ///< of a push: how many pushes of others were applied since its worker has read
  std::uint64_t after[Head::kRanksMax] = {};  ///< of a pull_after: by rank, how many of its pushes it asks for
  Head head;                                  ///< the beginning of an answer
  bool waits_for_room = false;                ///< of an answer: a change of the room wakes the server
  bool from_copy = false;                     ///< of an answer: the weights have changed, and it goes on from a copy
};

/// The rows of a range that a rank has named last.
struct RowList {
  std::uint32_t* rows = nullptr;  ///< their numbers
  std::uint64_t rows_max = 0;     ///< how many there may be
  std::uint64_t count = 0;        ///< how many there are
  bool ascends = true;            ///< each number, or key, is larger than the one before
  bool is_full = false;           ///< a key has no row: there are no more
  std::uint64_t last_key = 0;     ///< the last key that has come
};

/// A range that the rank owns.
struct OwnedRange {
  std::uint64_t floats = 0;
  float* weights = nullptr;
  KeyRows keys;  ///< of a range of keys
  UpdateStates states;
  std::uint64_t states_of_rank = 0;  ///< parameters from a rank's states to the next rank's; 0: all have the same
  float* pushed = nullptr;           ///< with a clock that is kInRankOrder: by rank, its push of the next clock
  float* before = nullptr;           ///< with replicas: the weights and their states, one version older
  float* read = nullptr;             ///< with Correction::compensation: by rank, the weights that it has read last
  float* squares = nullptr;          ///< likewise: of each weight, the mean of its squared gradients
};

/// What a server has, by value. Pointers point to device memory, unless their comment says otherwise.
struct Server {
  gpusock::Net net;
  gpusock::PollSet set = 0;
  std::int32_t ranks = 1;
  std::int32_t connection_count = 0;
  std::int32_t of_pair = 1;  ///< connections of a worker; the last one carries its last words, and is not the server's
  std::uint32_t range_count = 0;
  std::uint64_t row_floats = 1;
  WireFormat push_format = WireFormat::float32;
  WireFormat pull_format = WireFormat::float32;
  Clock clock;  ///< says when pushes are applied, and which version a read needs
  Connection* connections = nullptr;
  RowList* lists = nullptr;                 ///< by range and rank
  const OwnedRange* ranges = nullptr;       ///< by range; those of other owners have no weights
  std::uint64_t* received = nullptr;        ///< by range and rank: how many of its pushes have come
  std::uint64_t* contained = nullptr;       ///< by range and rank: how many of its pushes the weights contain
  std::uint64_t* enough_ns = nullptr;       ///< by range: since when enough pushes have come for the next version, or 0
  std::uint32_t* lost = nullptr;            ///< by rank: 0, or a number that is larger for a later loss
  std::uint32_t* losses = nullptr;          ///< how many ranks are lost
  std::uint64_t* read_of_others = nullptr;  ///< by range and rank: how many pushes of others it has read
  Correction correction;                    ///< of pushes that are applied by themselves
  std::int32_t rank = 0;                    ///< this rank
  Replicas replicas;                        ///< which ranks keep replicas of its ranges
  std::uint64_t* replicated = nullptr;      ///< by range and rank: the version of its replica
  const gpusock::Socket* words_to = nullptr;  ///< as Worker's
  std::uint64_t* spoken = nullptr;            ///< likewise
  std::uint64_t* stop = nullptr;              ///< mapped: the host ends the server
  std::uint64_t* failed = nullptr;
  FailureRecord<Failure>* failure = nullptr;  ///< mapped
};

/// The server's block. All members are block-collective. Those that several others call are separate functions: in
/// each place anew, a GPU's program would be several times larger.
class ServerLoop {
 public:
  __device__ ServerLoop(const Server& server, const Sgd& update) : s_(server), update_(update) {}

  /// Serves until the host ends it, or the context ends.
  __device__ void run() {
    begin();
    while (!is_stopped() && turn()) {
    }
  }

  /// Watches all connections.
  __device__ void begin() const {
    for (int i = 0; i < s_.connection_count; ++i) {
      if (i % s_.of_pair + 1 < s_.of_pair) watch(i, gpusock::kPollIn);
    }
  }

  /// Waits until there is something to do, and does it. Returns false if the context ends.
  __device__ bool turn() {
    GPUSOCK_SHARED(events, gpusock::PollEvent[kEvents]);
    const int count = s_.clock.grace() == 0 ? s_.net.wait(block_, s_.set, events, kEvents)
                                            : s_.net.wait(block_, s_.set, events, kEvents, end_of_grace());
    if (count < 0) return false;
    for (int i = 0; i < count; ++i) {
      if ((events[i].events & gpusock::kPollWake) == 0) serve(static_cast<int>(events[i].tag));
    }
    if (s_.clock.grace() != 0) end_graces();
    while (some_left_) answer_after_loss();
    __syncthreads();  // all have read the events before the next ones come
    return true;
  }

 private:
  static constexpr int kNobody = RangeClocks::kNobody;
  static constexpr int kEvents = 16;
  static constexpr int kPiecesOfTurn = 4;  ///< after these, another connection has its turn
  static constexpr std::uint64_t kPieceFloats = 16 << 10;

  __device__ bool is_stopped() const {
    // relaxed: it only ends the loop
    const bool stopped = threadIdx.x == 0 && executor::SystemWord(*s_.stop).load(cuda::memory_order_relaxed) != 0;
    return __syncthreads_or(stopped) != 0;
  }

  __device__ Connection& at(int index) const { return s_.connections[index]; }
  __device__ RangeClocks clocks(unsigned range) const {
    return {s_.clock, s_.received + range * ranks(), s_.contained + range * ranks(), s_.ranks};
  }
  __device__ unsigned ranks() const { return static_cast<unsigned>(s_.ranks); }
  /// The rows that a connection's rank has named last, of the range of its request.
  __device__ RowList& list_of(const Connection& connection) const {
    return s_.lists[connection.request.range * ranks() + static_cast<unsigned>(connection.rank)];
  }
  __device__ std::uint64_t& read_of_others(unsigned range, int rank) const {
    return s_.read_of_others[range * ranks() + static_cast<unsigned>(rank)];
  }
  __device__ std::uint64_t& replicated(unsigned range, int rank) const {
    return s_.replicated[range * ranks() + static_cast<unsigned>(rank)];
  }
  __device__ __noinline__ void watch(int index, int events) const {
    s_.net.watch(block_, s_.set, at(index).socket, events, static_cast<std::uint64_t>(index));
  }

  /// Changes state that all threads of the block read: one thread writes it, between two barriers.
  template <class Change>
  __device__ void change(Change by) const {
    __syncthreads();
    if (threadIdx.x == 0) by();
    __syncthreads();
  }

  __device__ void serve(int index) {
    switch (at(index).phase) {
      case Phase::idle:
        return take_request(index);
      case Phase::pushing:
        return take_push(index);
      case Phase::naming:
        return take_names(index);
      case Phase::sending:
        return go_on_sending(index);
      case Phase::dropped:
        return drop(index);
      case Phase::held:
      case Phase::waiting:
        return leave(index);  // of these only the end is watched
      case Phase::gone:
        return;
    }
  }

  /// True if enough pushes have come for the next version of a range, and it still waits for the others. One thread.
  __device__ bool is_in_grace(unsigned range) const {
    const std::uint64_t grace_ns = s_.clock.grace();
    if (grace_ns == 0 || clocks(range).all_have_come(s_.lost)) return false;
    const std::uint64_t now_ns = gpusock::clock_ns();
    if (s_.enough_ns[range] == 0) s_.enough_ns[range] = now_ns;
    return now_ns < s_.enough_ns[range] + grace_ns;
  }

  /// When a version is not to wait any longer.
  __device__ gpusock::Deadline end_of_grace() const {
    GPUSOCK_SHARED(until_ns, std::uint64_t);
    change([&] {
      until_ns = 0;
      for (unsigned range = 0; range < s_.range_count; ++range) {
        if (s_.enough_ns[range] == 0) continue;
        const std::uint64_t end_ns = s_.enough_ns[range] + s_.clock.grace();
        until_ns = until_ns == 0 ? end_ns : min(until_ns, end_ns);
      }
    });
    if (until_ns == 0) return gpusock::Deadline::by_default();
    const std::uint64_t now_ns = gpusock::clock_ns();
    return gpusock::Deadline::after_ns(now_ns < until_ns ? until_ns - now_ns : 0);
  }

  /// Ends versions that do not wait any longer.
  __device__ __noinline__ void end_graces() {
    for (unsigned range = 0; range < s_.range_count; ++range) {
      GPUSOCK_SHARED(ends, bool);
      change([&] { ends = s_.enough_ns[range] != 0 && !is_in_grace(range); });
      if (!ends) continue;
      apply_all(range);
      answer_all(range);
    }
  }

  /// Disconnects a worker.
  __device__ __noinline__ void leave(int index) {
    s_.net.close(block_, at(index).socket);
    change([&] {
      at(index).phase = Phase::gone;
      std::uint32_t& lost = s_.lost[at(index).rank];
      if (lost == 0) lost = ++*s_.losses;
    });
    some_left_ = true;
  }

  /// Answers pulls that wait for pushes of workers that have left.
  __device__ void answer_after_loss() {
    some_left_ = false;
    for (unsigned range = 0; range < s_.range_count; ++range) answer_all(range);
    for (int i = 0; i < s_.connection_count; ++i) {
      if (at(i).phase == Phase::held) end_held(i);
    }
  }

  /// Tells the worker of a held push if that can never be applied. The worker reads it when it pulls.
  __device__ void end_held(int index) {
    const int lost = clocks(at(index).request.range).push_waits_for_lost(s_.lost);
    if (lost != kNobody) begin_answer(index, lost);
  }

  /// Takes what comes, and does nothing with it.
  __device__ void drop(int index) {
    const gpusock::Span span = s_.net.peek(block_, at(index).socket, kPieceFloats * sizeof(float),
                                           gpusock::Deadline::now());
    if (span.size == -EAGAIN) return;
    if (span.size <= 0 || s_.net.release(block_, at(index).socket, static_cast<std::size_t>(span.size)) != 0)
      leave(index);
  }

  /// Disconnects a rank that does not follow the protocol, or that names more keys than there is room for.
  __device__ __noinline__ void refuse(int index, FailureKind why = FailureKind::request) {
    if (threadIdx.x == 0) {
      const int error = why == FailureKind::keys ? ENOSPC : EPROTO;
      record_failure(*s_.failed, *s_.failure,
                     {why, at(index).rank, error, static_cast<std::int32_t>(at(index).request.range)});
      // This rank has lost nobody: the worker need not wait for a word.
      const LastWord word{.error = why == FailureKind::keys ? ENOSPC : 0};
      speak_to(s_.net, s_.words_to, s_.spoken, at(index).rank, word);
    }
    leave(index);
  }

  __device__ void take_request(int index) {
    GPUSOCK_SHARED(request, Request);
    const std::int64_t got = s_.net.recv(block_, at(index).socket, &request, sizeof request, gpusock::kWaitAll,
                                         gpusock::Deadline::now());
    if (got == -EAGAIN) return;  // a part of it has come
    if (got != static_cast<std::int64_t>(sizeof request)) return leave(index);
    change([&] {
      at(index).request = request;
      at(index).done = 0;
      at(index).before = {};
    });
    if (!is_valid(index)) return refuse(index);
    if (at(index).request.name_words() == 0) return carry_out(index);
    change([&] {
      at(index).phase = Phase::naming;
      if (!at(index).request.names_rows()) return;
      list_of(at(index)).count = 0;
      list_of(at(index)).ascends = true;
    });
    take_names(index);
  }

  /// Does what a request asks for, once its rows are named.
  __device__ __noinline__ void carry_out(int index) {
    if (at(index).request.is_push()) return begin_push(index);
    if (at(index).request.kind == RequestKind::replicated) return note_replica(index);
    begin_wait(index);
  }

  /// A worker has a replica. Others may wait for that.
  __device__ void note_replica(int index) {
    const Request request = at(index).request;
    change([&] { replicated(request.range, at(index).rank) = request.clock; });
    answer_all(request.range);
  }

  /// A pull waits until its clock allows it.
  __device__ void begin_wait(int index) {
    change([&] { at(index).phase = Phase::waiting; });
    watch(index, 0);
    answer(index);
  }

  /// Takes what has come of the numbers or keys that follow a request.
  __device__ __noinline__ void take_names(int index) {
    const Request& request = at(index).request;
    const unsigned of_name = request.name_words();
    const std::uint64_t words = (request.names_rows() ? request.floats : ranks()) * of_name;
    const auto take = [&](const std::uint32_t* some, std::uint64_t count) {
      if (!request.names_rows()) {
        take_after(index, some, count);
        return true;
      }
      return request.has_keys() ? take_keys(index, some, count) : take_rows(index, some, count);
    };
    if (!take_words(index, words, of_name, take)) return;
    RowList& list = list_of(at(index));
    if ((request.is_push() || request.has_keys()) && !list.ascends) return refuse(index);
    change([&] {
      if (request.names_rows()) list.count = request.floats;
      at(index).done = 0;
    });
    carry_out(index);
  }

  /// Notes which pushes a pull asks for.
  __device__ void take_after(int index, const std::uint32_t* words, std::uint64_t count) const {
    Connection& connection = at(index);
    for_own_share(count / 2, [&](std::uint64_t i) {
      connection.after[connection.done / 2 + i] = words[2 * i] | std::uint64_t{words[2 * i + 1]} << 32;
    });
    __syncthreads();
  }

  /// Notes numbers of rows. Returns false if there are no such rows.
  __device__ bool take_rows(int index, const std::uint32_t* words, std::uint64_t count) const {
    const Connection& connection = at(index);
    RowList& list = list_of(connection);
    const std::uint64_t rows = rows_of(connection.request), done = connection.done;
    for_own_share(count, [&](std::uint64_t i) { list.rows[done + i] = words[i]; });
    __syncthreads();
    bool wrong = false, falls = false;  // of what is noted: a peer may change its ring
    for_own_share(count, [&](std::uint64_t i) {
      const std::uint64_t at = done + i;
      wrong = wrong || list.rows[at] >= rows;
      falls = falls || (at != 0 && list.rows[at] <= list.rows[at - 1]);
    });
    if (__syncthreads_or(falls) != 0) change([&] { list.ascends = false; });
    return __syncthreads_or(wrong) == 0;
  }

  /// Notes the rows of keys, which ascend. Returns false if there is no row for one of them.
  __device__ bool take_keys(int index, const std::uint32_t* words, std::uint64_t count) const {
    const Connection& connection = at(index);
    RowList& list = list_of(connection);
    const KeyRows& keys = s_.ranges[connection.request.range].keys;
    const auto key_at = [&](std::uint64_t i) { return words[2 * i] | std::uint64_t{words[2 * i + 1]} << 32; };
    const std::uint64_t done = connection.done / 2;
    bool full = false, falls = false;
    // A key twice among these would have two threads make its row: first it is seen that they ascend.
    for_own_share(count / 2, [&](std::uint64_t i) {
      const bool is_first = done + i == 0;
      falls = falls || (!is_first && key_at(i) <= (i == 0 ? list.last_key : key_at(i - 1)));
    });
    if (__syncthreads_or(falls) != 0) {
      change([&] { list.ascends = false; });
      return false;
    }
    for_own_share(count / 2, [&](std::uint64_t i) {
      const std::uint32_t row = keys.row_of(key_at(i));
      list.rows[done + i] = row;
      full = full || row == KeyRows::kNone;
    });
    const bool is_full = __syncthreads_or(full) != 0;
    change([&] {
      list.last_key = key_at(count / 2 - 1);
      list.is_full = is_full;
    });
    return !is_full;
  }

  __device__ bool is_valid(int index) const {
    const Request& request = at(index).request;
    if (!request.is_known() || request.range >= s_.range_count) return false;
    const OwnedRange& range = s_.ranges[request.range];
    const RowList& list = list_of(at(index));
    const bool size = request.is_again()     ? request.floats == list.count && (list.ascends || !request.is_push())
                      : request.names_rows() ? request.floats <= list.rows_max
                                             : request.floats == range.floats;
    return size && (!request.has_keys() || range.keys.rows != 0) && (range.weights != nullptr || range.floats == 0) &&
           (!request.is_of_replica() || s_.replicas.keeps(s_.rank, at(index).rank)) &&
           clocks(request.range).may_have(at(index).rank, request.clock);
  }

  /// How many rows the range of a request has.
  __device__ std::uint64_t rows_of(const Request& request) const {
    return s_.ranges[request.range].floats / s_.row_floats;
  }
  /// The floats of a request's push, or of its answer.
  __device__ codec::MessageRows rows_in(const Request& request) const {
    if (request.has_rows()) return {request.floats, s_.row_floats};
    if (request.kind == RequestKind::pull_replica) return {1, replica_floats(request.floats)};
    return {1, request.floats};
  }
  /// In how many words the floats of a push are sent.
  __device__ std::uint64_t words_of_push(const Request& request) const {
    const codec::MessageRows of = rows_in(request);
    return of.rows * codec::words_of(s_.push_format, of.floats);
  }

  __device__ void begin_push(int index) {
    const unsigned range = at(index).request.range;
    const int rank = at(index).rank;
    const bool held = !clocks(range).may_push(rank);
    change([&] {
      clocks(range).begin_push(rank, at(index).request.clock);
      at(index).phase = held ? Phase::held : Phase::pushing;
      at(index).missed = clocks(range).of_others(rank) - read_of_others(range, rank);
    });
    if (held) {
      watch(index, 0);
      return end_held(index);
    }
    forget_rows(index);
    take_push(index);
  }

  /// Before rows are kept for the sum of their clock: all other rows count as 0.
  __device__ void forget_rows(int index) const {
    if (!s_.clock.is_in_rank_order() || !at(index).request.has_rows()) return;
    float* const of_rank = pushed_by(at(index));
    for_own_share(s_.ranges[at(index).request.range].floats, [&](std::uint64_t i) { of_rank[i] = 0; });
    __syncthreads();
  }

  /// Takes what has come of a push.
  __device__ __noinline__ void take_push(int index) {
    const auto take = [&](const std::uint32_t* words, std::uint64_t count) {
      take_floats(index, words, count);
      return true;
    };
    if (take_words(index, words_of_push(at(index).request), 1, take)) end_push(index);
  }

  /// Takes what has come of so many words: take(words, count) is called with each piece, which is a whole number of
  /// `unit` words, at most two. It returns false if they cannot be right: then the worker is disconnected. Returns true
  /// when all words have come.
  template <class Take>
  __device__ bool take_words(int index, std::uint64_t all, unsigned unit, Take take) {
    Connection& connection = at(index);
    for (int piece = 0; connection.done < all; ++piece) {
      if (piece == kPiecesOfTurn) return false;
      const std::uint64_t most = min(kPieceFloats, all - connection.done);
      const gpusock::Span span = s_.net.peek(block_, connection.socket, most * sizeof(float), gpusock::Deadline::now());
      if (span.size == -EAGAIN) return false;
      if (span.size <= 0) return left(index);
      std::uint64_t count = static_cast<std::uint64_t>(span.size) / (unit * sizeof(std::uint32_t)) * unit;
      const bool right = count == 0 || take(static_cast<const std::uint32_t*>(span.data), count);
      if (s_.net.release(block_, connection.socket, count * sizeof(float)) != 0) return left(index);
      if (!right) return refused(index);
      if (count == 0) {  // a part of a unit has come, perhaps at the ring's end
        GPUSOCK_SHARED(one, std::uint32_t[2]);
        const std::size_t bytes = unit * sizeof one[0];
        const std::int64_t got = s_.net.recv(block_, connection.socket, one, bytes, gpusock::kWaitAll,
                                             gpusock::Deadline::now());
        if (got == -EAGAIN) return false;
        if (got != static_cast<std::int64_t>(bytes)) return left(index);
        if (!take(one, unit)) return refused(index);
        count = unit;
      }
      change([&] { connection.done += count; });
    }
    return true;
  }
  __device__ bool left(int index) {
    leave(index);
    return false;
  }
  __device__ bool refused(int index) {
    refuse(index, list_of(at(index)).is_full ? FailureKind::keys : FailureKind::request);
    return false;
  }

  /// Keeps words of a push for the sum of their clock, or applies them.
  __device__ void take_floats(int index, const std::uint32_t* words, std::uint64_t count) const {
    const Connection& connection = at(index);
    if (s_.push_format == WireFormat::float32 && !connection.request.has_rows()) {
      with_push(connection, [&](auto apply) {
        for_own_share(count, [&](std::uint64_t i) { apply(connection.done + i, __uint_as_float(words[i])); });
      });
    } else {
      codec::with_format(s_.push_format, [&]<class Format>(const Format&) {
        take_packed(at(index), codec::Packed<Format>(rows_in(at(index).request)), words, count);
      });
    }
  }

  template <class Format>
  __device__ void take_packed(Connection& connection, const codec::Packed<Format>& packed, const std::uint32_t* words,
                              std::uint64_t count) const {
    with_push(connection, [&](auto apply) {
      for_own_share(count, [&](std::uint64_t i) {
        packed.unpack(words, connection.done, i, connection.before,
                      [&](std::uint64_t row, std::uint64_t of_row, float pushed) {
                        apply(weight_of(connection, row, of_row), pushed);
                      });
      });
    });
    const codec::BeforePiece before = packed.after(words, connection.done, count, connection.before);
    change([&] { connection.before = before; });
  }

  /// The number of a weight in its range: float number i of a row of the message.
  __device__ std::uint64_t weight_of(const Connection& connection, std::uint64_t row, std::uint64_t i) const {
    return connection.request.has_rows() ? list_of(connection).rows[row] * s_.row_floats + i : i;
  }

  /// Calls `call` with a function that takes the number of a weight in its range, and what is pushed for it.
  template <class Call>
  __device__ void with_push(const Connection& connection, Call call) const {
    const OwnedRange& range = s_.ranges[connection.request.range];
    if (s_.clock.is_in_rank_order()) {
      float* const to = pushed_by(connection);
      call([&](std::uint64_t weight, float pushed) { to[weight] = pushed; });
    } else {
      const auto rank = static_cast<std::uint64_t>(connection.rank);
      const SinglePush push(update_, s_.correction, s_.ranks, connection.missed);
      const UpdateStates states = range.states.from(rank * range.states_of_rank);
      const bool compensates = range.read != nullptr;
      const float* const read = compensates ? read_by(connection) : nullptr;
      call([&](std::uint64_t weight, float pushed) {
        push.apply(pushed, compensates ? read + weight : nullptr, compensates ? range.squares + weight : nullptr,
                   states.of(weight), range.weights[weight]);
      });
    }
  }

  __device__ void end_push(int index) {
    const unsigned range = at(index).request.range;
    GPUSOCK_SHARED(applies, bool);
    change([&] {
      applies = clocks(range).end_push(at(index).rank) && !is_in_grace(range);
      at(index).phase = Phase::idle;
    });
    if (words_of_push(at(index).request) == 0) watch(index, gpusock::kPollIn);
    if (s_.clock.is_in_rank_order()) {
      if (!applies) return;
      apply_all(range);
    }
    answer_all(range);
  }

  /// Applies the sum of all ranks' pushes of a clock, or of some (kDropsLate).
  __device__ void apply_all(unsigned range) {
    const OwnedRange& owned = s_.ranges[range];
    if (owned.before != nullptr) {
      gpusock::copy(block_, owned.before, owned.weights, replica_floats(owned.floats) * sizeof(float));
      __syncthreads();
    }
    if (s_.clock.drops_late()) {
      keep_answers(range);
      apply_some(owned, clocks(range).summed());
    } else {
      for_own_share(owned.floats, [&](std::uint64_t i) {
        float sum = owned.pushed[i];
        for (int rank = 1; rank < s_.ranks; ++rank) {
          sum = sum + owned.pushed[static_cast<std::uint64_t>(rank) * owned.floats + i];
        }
        update_.apply(sum, owned.states.of(i), owned.weights[i]);
      });
    }
    change([&] {
      clocks(range).apply_all();
      s_.enough_ns[range] = 0;
    });
    for (int i = 0; i < s_.connection_count; ++i) {
      if (at(i).phase != Phase::held || at(i).request.range != range) continue;
      change([&] { at(i).phase = Phase::pushing; });
      forget_rows(i);
      // An empty push goes on at once: there is room for an answer.
      watch(i, words_of_push(at(i).request) == 0 ? gpusock::kPollOut : gpusock::kPollIn);
    }
  }

  /// Before a range changes, with a clock that is kDropsLate: answers that are being sent to slow workers keep their
  /// version. A worker that reads has no push that waits, so its push's memory is free until the answer is sent.
  __device__ void keep_answers(unsigned range) const {
    const OwnedRange& owned = s_.ranges[range];
    for (int i = 0; i < s_.connection_count; ++i) {
      const Connection& connection = at(i);
      if (connection.phase != Phase::sending || connection.request.range != range || connection.from_copy) continue;
      if (connection.request.is_push()) continue;  // it is told of a loss
      gpusock::copy(block_, pushed_by(connection), owned.weights, owned.floats * sizeof(float));
      change([&] { at(i).from_copy = true; });
    }
  }

  /// Where a rank's push of the next clock is kept.
  __device__ float* pushed_by(const Connection& connection) const {
    const OwnedRange& range = s_.ranges[connection.request.range];
    return range.pushed + static_cast<std::uint64_t>(connection.rank) * range.floats;
  }

  /// The weights of an answer.
  __device__ const float* weights_for(const Connection& connection) const {
    return connection.from_copy ? pushed_by(connection) : s_.ranges[connection.request.range].weights;
  }

  /// Applies the sum of some ranks' pushes: bits of `summed` by rank.
  __device__ void apply_some(const OwnedRange& owned, std::uint64_t summed) const {
    const float scale = s_.clock.scale(summed, s_.ranks);
    for_own_share(owned.floats, [&](std::uint64_t i) {
      update_.apply(scale * sum_of(summed, owned.pushed + i, owned.floats), owned.states.of(i), owned.weights[i]);
    });
  }

  __device__ __noinline__ void answer_all(unsigned range) {
    for (int i = 0; i < s_.connection_count; ++i) {
      if (at(i).phase == Phase::waiting && at(i).request.range == range) answer(i);
    }
  }

  /// Answers a pull if its clock allows that, or if it would wait for ever.
  __device__ __noinline__ void answer(int index) {
    const Request& request = at(index).request;
    const int reader = at(index).rank;
    const RangeClocks range = clocks(request.range);
    const std::uint64_t* const after = request.kind == RequestKind::pull_after ? at(index).after : nullptr;
    const bool readable = range.may_read(reader, request.clock, after);
    const bool has_replicas = s_.ranges[request.range].before != nullptr;
    const auto waits_for = [&](int rank) {
      return has_replicas &&
             s_.replicas.waits_for(s_.rank, reader, rank, request.clock, replicated(request.range, rank));
    };
    bool waits = false;
    for (int rank = 0; rank < s_.ranks; ++rank) waits = waits || waits_for(rank);
    if (readable && !waits) return begin_answer(index, kNobody);
    const int lost = readable ? range.first_lost(s_.lost, waits_for)
                              : range.read_waits_for_lost(reader, request.clock, s_.lost, after);
    if (lost != kNobody) begin_answer(index, lost);
  }

  /// `lost`: the rank to tell of, or kNobody to send the values.
  __device__ __noinline__ void begin_answer(int index, int lost) {
    Connection& connection = at(index);
    change([&] {
      const unsigned range = connection.request.range;
      const bool values = lost == kNobody;
      const codec::MessageRows of = rows_in(connection.request);
      connection.head.answer = {values ? AnswerKind::values : AnswerKind::lost, range,
                                static_cast<std::uint64_t>(values ? 0 : lost), values ? of.rows * of.floats : 0};
      for (int rank = 0; rank < s_.ranks; ++rank) connection.head.seen[rank] = clocks(range).contained[rank];
      if (values) read_of_others(range, connection.rank) = clocks(range).of_others(connection.rank);
      const std::uint64_t bytes = sizeof(Answer) + (values ? ranks() * sizeof(std::uint64_t) : 0);
      connection.head_words = static_cast<std::uint32_t>(bytes / sizeof(std::uint32_t));
      connection.value_words = values ? of.rows * codec::words_of(s_.pull_format, of.floats) : 0;
      connection.before = {};
      connection.done = 0;
      connection.waits_for_room = false;
      connection.from_copy = false;
      connection.phase = Phase::sending;
    });
    go_on_sending(index);
  }

  /// Sends as much of an answer as there is room for.
  __device__ __noinline__ void go_on_sending(int index) {
    Connection& connection = at(index);
    const std::uint64_t all = connection.head_words + connection.value_words;
    bool full = false;
    for (int piece = 0; connection.done < all && piece < kPiecesOfTurn; ++piece) {
      const std::uint64_t most = min(kPieceFloats, all - connection.done);
      const gpusock::Span room = s_.net.reserve(block_, connection.socket, most * sizeof(float),
                                                gpusock::Deadline::now());
      full = room.size == -EAGAIN;
      if (full) break;
      if (room.size < 0) return leave(index);
      const std::uint64_t count = static_cast<std::uint64_t>(room.size) / sizeof(float);
      full = count == 0;
      if (full) {  // less than a word is free
        s_.net.abort(block_, connection.socket);
        break;
      }
      write(connection, static_cast<std::uint32_t*>(room.data), count);
      if (s_.net.commit(block_, connection.socket, count * sizeof(float)) != 0) return leave(index);
      change([&] { connection.done += count; });
    }
    if (connection.done < all) return watch_room(index, full);
    // A push is answered only if it can never be applied.
    const bool dropped = connection.request.is_push();
    change([&] { connection.phase = dropped ? Phase::dropped : Phase::idle; });
    watch(index, gpusock::kPollIn);
  }

  /// Goes on with an answer in the next turn; if its ring is full, after the next change: a part of a word may be free
  /// all the time.
  __device__ void watch_room(int index, bool full) const {
    const bool watches = at(index).waits_for_room;
    if (full && watches) return;
    change([&] { at(index).waits_for_room = full; });
    watch(index, full ? gpusock::kPollOut | gpusock::kPollEdge : gpusock::kPollOut);
  }

  /// Writes the next words of an answer.
  __device__ void write(Connection& connection, std::uint32_t* to, std::uint64_t count) const {
    const OwnedRange& range = s_.ranges[connection.request.range];
    const auto* const head = reinterpret_cast<const std::uint32_t*>(&connection.head);
    const std::uint64_t of_head = connection.done < connection.head_words
                                      ? min(connection.head_words - connection.done, count)
                                      : std::uint64_t{0};
    for_own_share(of_head, [&](std::uint64_t i) { to[i] = head[connection.done + i]; });
    if (count != of_head) {
      const std::uint64_t first = connection.done + of_head - connection.head_words;
      if (!connection.request.has_rows() && s_.pull_format == WireFormat::float32) {
        const std::uint64_t bytes = (count - of_head) * sizeof(float);
        gpusock::copy(block_, to + of_head, weights_for(connection) + first, bytes);
        if (range.read != nullptr) gpusock::copy(block_, read_by(connection) + first, range.weights + first, bytes);
      } else {
        codec::with_format(s_.pull_format, [&]<class Format>(const Format&) {
          const codec::Packed<Format> packed(rows_in(connection.request));
          write_packed(connection, packed, first, to + of_head, count - of_head);
        });
      }
    }
    __syncthreads();  // all is written before it is committed
  }

  /// Writes words of the weights that a pull asks for, from number `first` of all of them on.
  template <class Format>
  __device__ void write_packed(Connection& connection, const codec::Packed<Format>& packed, std::uint64_t first,
                               std::uint32_t* to, std::uint64_t count) const {
    const OwnedRange& range = s_.ranges[connection.request.range];
    const float* const weights = weights_for(connection);
    float* const read = range.read == nullptr ? nullptr : read_by(connection);
    // Other ranks may change weights between two pieces: then a block that is cut keeps the scale with which it began.
    packed.pack(
        first, count, to, threadIdx.x, blockDim.x, &connection.before,
        [&](std::uint64_t row, std::uint64_t i) { return weights[weight_of(connection, row, i)]; },
        [&](std::uint64_t row, std::uint64_t i, float sent) {
          if (read != nullptr) read[weight_of(connection, row, i)] = sent;
        });
    __syncthreads();
    const codec::BeforePiece before = packed.after(to, first, count, connection.before);
    change([&] { connection.before = before; });
  }

  /// The weights as a worker has read them last.
  __device__ float* read_by(const Connection& connection) const {
    const OwnedRange& range = s_.ranges[connection.request.range];
    return range.read + static_cast<std::uint64_t>(connection.rank) * range.floats;
  }

  const Server& s_;
  const Sgd update_;
  cooperative_groups::thread_block block_ = gpusock::this_block();
  bool some_left_ = false;  ///< the same for all threads
};

}  // namespace param_sync::store
