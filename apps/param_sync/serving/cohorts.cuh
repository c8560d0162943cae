#pragma once
/// @file The kernel of a server: a block that answers the requests of its connections in cohorts (README.md).

#include "publishing/follower.cuh"
#include "layers/softmax.cuh"
#include "serving/limits.hpp"
#include "serving/served_model.cuh"
#include "serving/wire.hpp"

#include "gpusock/io.cuh"

#include <cerrno>

namespace param_sync::serving {

static_assert(kBlocksMax + 2 <= Snapshots::kSlotsMax);

/// After so long without a byte a client is reset.
inline constexpr std::int64_t kIdleNs = 60'000'000'000;
/// The most time from the first byte of a request to its last one. Then the client's seat is for others.
inline constexpr std::uint64_t kRequestNs = 10'000'000'000;

/// A client's connection and its request. In device memory; zeroed memory is a free seat.
struct Seat {
  enum State : std::uint32_t { free, reading, waiting, answering, leaving };

  State state = free;
  std::uint32_t id = 0;  ///< of the request
  bool is_last = false;  ///< the answer is the client's last one
  gpusock::Socket socket = 0;
  bool has_head = false;       ///< the head of a request has come, and its image is awaited
  std::uint64_t begun_ns = 0;  ///< when its first bytes came; 0: none have
  std::uint64_t came_ns = 0;   ///< when the whole request was there
  std::uint64_t drained = 0;   ///< bytes that came after that
  const std::uint8_t* image = nullptr;
  gpusock::Reader<gpusock::ThisThread> reader;
  gpusock::Writer<gpusock::ThisThread> writer;
};

/// What a block has done. In mapped memory; the host reads it after the kernel.
struct Served {
  std::uint64_t clients, answered, late, stale, without_weights, broken;
  std::uint64_t cohorts, largest;  ///< how many cohorts, and the requests of the largest one
  std::uint64_t age_ns_max;        ///< of weights in an answer
  std::uint64_t least_version, most_version;
  std::int64_t failed;  ///< 0, or why serving ended
};

/// What a block serves with, by value. All pointers point to device memory of this block, unless their comments say
/// otherwise.
struct Server {
  gpusock::Net net;
  gpusock::Socket listener = -1;  ///< of all blocks
  ServedModel model;
  Snapshots weights;                      ///< of all blocks
  std::uint64_t* confirmed_ns = nullptr;  ///< likewise: see confirmed_at() in publishing/follower.cuh
  Seat* seats = nullptr;
  gpusock::PollEntry* entries = nullptr;  ///< the listener's, then one for each seat
  char* received = nullptr;               ///< by seat: a request
  char* answers = nullptr;                ///< by seat: an answer
  unsigned* queue = nullptr;              ///< a ring of the seats that wait, in the order in which requests came
  std::uint64_t* cohort_ns = nullptr;     ///< by requests of a cohort: how long such a one takes; 0: not known
  unsigned seat_count = 0;
  unsigned cohort = 1;             ///< the most requests of one
  std::uint64_t objective_ns = 0;  ///< the most time for a request; 0: any
  std::uint64_t stale_ns = 0;      ///< the greatest age of weights; 0: any
  Served* served = nullptr;        ///< mapped

  __device__ std::size_t request_bytes() const { return sizeof(AskHead) + model.pixels(); }
  __device__ std::size_t answer_bytes() const { return sizeof(AnswerHead) + model.classes * sizeof(float); }
};

/// What the threads of the block share.
struct Shared {
  unsigned long long first = 0;  ///< of the queue, counted from the beginning of the server
  unsigned long long end = 0;    ///< likewise
  unsigned cohort[kCohortMax];
  unsigned count = 0;  ///< requests of the cohort
  int error = 0;       ///< 0, or what the cohort gets instead of scores
  int slot = 0;        ///< of the weights
  std::uint64_t began_ns = 0, age_ns = 0;
};

/// The block. Members are block-collective, unless their comments say otherwise.
template <class Block>
class Cohorts {
 public:
  __device__ Cohorts(const Block& block, const Server& server, Shared& shared)
      : block_(block), s_(server), all_(shared) {}

  /// Serves until the context ends.
  __device__ void run() {
    if (leader()) all_.first = all_.end = 0;
    block_.sync();
    while (await_events()) {
      for (unsigned i = block_.thread_rank(); i < s_.seat_count; i += block_.size()) serve(i);
      block_.sync();  // all have queued their requests
      take_cohort();
      if (all_.count != 0) answer_cohort();
    }
  }

 private:
  __device__ bool leader() const { return block_.thread_rank() == 0; }
  __device__ std::uint64_t waiting() const { return all_.end - all_.first; }

  /// Waits for something to do. Returns false if the context ends.
  __device__ bool await_events() {
    bool has_room = false, has_begun = false;
    for (unsigned i = block_.thread_rank(); i < s_.seat_count; i += block_.size()) {
      const Seat& seat = s_.seats[i];
      const bool sends = seat.state == Seat::answering;
      const bool reads = seat.state == Seat::reading || seat.state == Seat::leaving;
      const std::int16_t events = sends ? gpusock::kPollOut : reads ? gpusock::kPollIn : 0;
      s_.entries[1 + i] = {events == 0 ? -1 : seat.socket, events, 0};
      has_room = has_room || seat.state == Seat::free;
      has_begun = has_begun || seat.begun_ns != 0;
    }
    has_room = __syncthreads_or(has_room) != 0;
    has_begun = __syncthreads_or(has_begun) != 0;
    if (leader()) s_.entries[0] = {has_room ? s_.listener : -1, gpusock::kPollIn, 0};
    block_.sync();
    const auto until = waiting() != 0 ? gpusock::Deadline::now()
                       : has_begun    ? gpusock::Deadline::after_ns(kRequestNs)
                                      : gpusock::Deadline::never();
    const int events = s_.net.poll(block_, s_.entries, static_cast<int>(s_.seat_count) + 1, until);
    const bool is_over = events < 0 || (s_.entries[0].revents & (gpusock::kPollErr | gpusock::kPollNval)) != 0;
    if (is_over && leader() && events != -ECANCELED) s_.served->failed = events < 0 ? events : -EBADF;
    return !is_over;
  }

  /// Does what can be done for a seat without waiting. One thread.
  __device__ void serve(unsigned index) {
    Seat& seat = s_.seats[index];
    if (seat.state == Seat::free) {
      if (s_.entries[0].revents != 0) admit(index);
      return;
    }
    const bool is_late = seat.begun_ns != 0 && gpusock::clock_ns() - seat.begun_ns > kRequestNs;
    if (seat.state == Seat::reading && is_late) return leave(seat);
    if (s_.entries[1 + index].revents == 0) return;
    if (seat.state == Seat::answering) send(seat);
    if (seat.state == Seat::leaving) drain(seat);
    if (seat.state == Seat::reading) read(index);
  }

  __device__ void admit(unsigned index) {
    const auto socket = s_.net.accept(gpusock::this_thread(), s_.listener, gpusock::Deadline::now());
    if (socket < 0) return;  // another thread or block has taken it, or poll will say what is wrong
    s_.net.setsockopt(gpusock::this_thread(), socket, gpusock::SocketOption::idle_timeout_ns, kIdleNs);
    Seat& seat = s_.seats[index];
    seat.socket = socket;
    seat.state = Seat::reading;
    seat.is_last = false;
    seat.has_head = false;
    seat.begun_ns = 0;
    seat.drained = 0;
    seat.reader = {gpusock::this_thread(), s_.net, socket, s_.received + index * s_.request_bytes(),
                   s_.request_bytes()};
    seat.writer = {gpusock::this_thread(), s_.net, socket, s_.answers + index * s_.answer_bytes(),
                   s_.answer_bytes(),      0};
    atomicAdd(reinterpret_cast<unsigned long long*>(&s_.served->clients), 1ull);
    read(index);
  }

  /// Reads a request. If it is whole, it waits for a cohort.
  __device__ void read(unsigned index) {
    Seat& seat = s_.seats[index];
    const auto now = gpusock::Deadline::now();
    if (!seat.has_head) {
      const auto got = seat.reader.exactly(sizeof(AskHead), now);
      if (got.size == -EAGAIN) return note_begun(seat);
      if (!got) return leave(seat);
      AskHead head;
      __builtin_memcpy(&head, got.data, sizeof head);
      if (head.magic != kAskMagic) return refuse_for_good(seat);
      seat.id = head.id;
      seat.has_head = true;
    }
    const auto got = seat.reader.exactly(s_.model.pixels(), now);
    if (got.size == -EAGAIN) return note_begun(seat);
    if (!got) return leave(seat);
    seat.image = reinterpret_cast<const std::uint8_t*>(got.data);
    seat.has_head = false;
    seat.begun_ns = 0;
    seat.came_ns = gpusock::clock_ns();
    seat.state = Seat::waiting;
    s_.queue[atomicAdd(&all_.end, 1ull) % s_.seat_count] = index;
  }

  __device__ void note_begun(Seat& seat) {
    if (seat.begun_ns == 0 && (seat.has_head || seat.reader.begun())) seat.begun_ns = gpusock::clock_ns();
  }

  __device__ void refuse_for_good(Seat& seat) {
    atomicAdd(reinterpret_cast<unsigned long long*>(&s_.served->broken), 1ull);
    seat.begun_ns = 0;
    refuse(seat, 0, EPROTO);
    send(seat);
  }

  __device__ void leave(Seat& seat) {
    s_.net.close(gpusock::this_thread(), seat.socket);
    seat.state = Seat::free;
    seat.begun_ns = 0;
  }

  /// Writes an answer without scores.
  __device__ void refuse(Seat& seat, std::uint32_t id, int error) {
    const AnswerHead head{id, error, 0, 0, 0, 0};
    seat.writer.write(&head, sizeof head);
    seat.state = Seat::answering;
    seat.is_last = error == EPROTO;
  }

  /// Sends what the client takes. After the answer the next request may come.
  __device__ void send(Seat& seat) {
    const int error = seat.writer.flush(gpusock::Deadline::now());
    if (error == -EAGAIN) return;
    if (error != 0) return leave(seat);
    seat.state = Seat::reading;
    if (!seat.is_last) return;
    // A close with unread input would reset the connection, and the client might miss the answer.
    s_.net.shutdown(gpusock::this_thread(), seat.socket, gpusock::Shutdown::write);
    seat.state = Seat::leaving;
  }

  /// Drops what a client still sends that has got its last answer.
  __device__ void drain(Seat& seat) {
    constexpr std::uint64_t kPieceBytes = 64 << 10, kBytesMax = 16 << 20;
    const auto piece = s_.net.peek(gpusock::this_thread(), seat.socket, kPieceBytes, gpusock::Deadline::now());
    if (piece.size == -EAGAIN) return;
    if (piece.size <= 0 || seat.drained > kBytesMax) return leave(seat);
    seat.drained += static_cast<std::uint64_t>(piece.size);
    s_.net.release(gpusock::this_thread(), seat.socket, static_cast<std::size_t>(piece.size));
  }

  /// How long a cohort of so many requests is expected to take. The time of a larger one is an upper bound.
  __device__ std::uint64_t expected_ns(unsigned requests) const {
    for (unsigned more = requests; more <= s_.cohort; ++more) {
      if (s_.cohort_ns[more] != 0) return s_.cohort_ns[more];
    }
    for (unsigned fewer = requests - 1; fewer > 0; --fewer) {
      if (s_.cohort_ns[fewer] != 0) return s_.cohort_ns[fewer] * requests / fewer;
    }
    return 0;
  }

  /// Takes the oldest requests, as many as can be answered in time together, and the weights for them. Those that
  /// would be late even alone are refused.
  __device__ void take_cohort() {
    if (leader()) {
      all_.count = 0;
      all_.began_ns = gpusock::clock_ns();
      const std::uint64_t objective_ns = s_.objective_ns;
      bool is_refused = false;
      for (; objective_ns != 0 && waiting() != 0; ++all_.first) {
        Seat& oldest = s_.seats[s_.queue[all_.first % s_.seat_count]];
        if (all_.began_ns - oldest.came_ns + expected_ns(1) <= objective_ns) break;
        refuse(oldest, oldest.id, ETIMEDOUT);
        send(oldest);
        ++s_.served->late;
        is_refused = true;
      }
      const std::uint64_t room = waiting() < s_.cohort ? waiting() : s_.cohort;
      auto count = static_cast<unsigned>(room);
      if (objective_ns != 0 && count > 1) {
        const std::uint64_t age_ns = all_.began_ns - s_.seats[s_.queue[all_.first % s_.seat_count]].came_ns;
        while (count > 1 && age_ns + expected_ns(count) > objective_ns) --count;
      }
      // A pause of the machine must not count for ever: what is refused is not measured again.
      for (unsigned size = 1; is_refused && count == 0 && size <= s_.cohort; ++size) s_.cohort_ns[size] /= 2;
      for (unsigned i = 0; i < count; ++i) all_.cohort[i] = s_.queue[all_.first++ % s_.seat_count];
      all_.count = count;
      if (count != 0) take_weights();
    }
    block_.sync();
  }

  /// One thread.
  __device__ void take_weights() {
    const std::uint64_t confirmed_ns = confirmed_at(*s_.confirmed_ns);
    all_.slot = s_.weights.begin_read();
    all_.age_ns = confirmed_ns < all_.began_ns ? all_.began_ns - confirmed_ns : 0;
    const bool is_stale = s_.stale_ns != 0 && all_.age_ns > s_.stale_ns;
    all_.error = confirmed_ns == 0 ? EAGAIN : is_stale ? ESTALE : 0;
    if (all_.error == EAGAIN) s_.served->without_weights += all_.count;
    if (all_.error == ESTALE) s_.served->stale += all_.count;
  }

  __device__ void answer_cohort() {
    const float* scores = nullptr;
    if (all_.error == 0) {
      scores = scores_of(block_, s_.model, s_.weights.of(all_.slot), all_.count,
                         [&](std::uint32_t i) { return s_.seats[all_.cohort[i]].image; });
    }
    const std::uint64_t version = s_.weights.versions[all_.slot];
    for (unsigned i = block_.thread_rank(); i < all_.count; i += block_.size()) {
      Seat& seat = s_.seats[all_.cohort[i]];
      if (all_.error != 0) {
        refuse(seat, seat.id, all_.error);
      } else {
        const float* const own = scores + std::size_t{i} * s_.model.classes;
        const AnswerHead head{seat.id,          0,       predicted_class(own, s_.model.classes),
                              s_.model.classes, version, all_.age_ns / 1000};
        seat.writer.write(&head, sizeof head).write(own, s_.model.classes * sizeof(float));
        seat.state = Seat::answering;
      }
      send(seat);
    }
    block_.sync();  // all have read the scores and the version
    if (leader()) note_cohort(version);
    block_.sync();
  }

  /// Gives the weights back, and notes how long the cohort has taken. One thread.
  __device__ void note_cohort(std::uint64_t version) {
    s_.weights.end_read(all_.slot);
    Served& served = *s_.served;
    if (all_.error != 0) return;
    const std::uint64_t took_ns = gpusock::clock_ns() - all_.began_ns;
    std::uint64_t& known_ns = s_.cohort_ns[all_.count];
    known_ns = known_ns == 0 ? took_ns : (3 * known_ns + took_ns) / 4;
    if (served.answered == 0 || version < served.least_version) served.least_version = version;
    if (version > served.most_version) served.most_version = version;
    served.answered += all_.count;
    ++served.cohorts;
    if (all_.count > served.largest) served.largest = all_.count;
    if (all_.age_ns > served.age_ns_max) served.age_ns_max = all_.age_ns;
  }

  const Block& block_;
  const Server& s_;
  Shared& all_;
};

/// Serves the clients of a listener until the context ends. One block; other kernels of one block serve others.
static __global__ void serve_cohorts(Server server) {
  __shared__ Shared shared;
  const auto block = gpusock::this_block();
  Cohorts(block, server, shared).run();
}

}  // namespace param_sync::serving
