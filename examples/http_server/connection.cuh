#pragma once
/// @file One connection, as one thread serves it: it receives a request, hands it to a cohort, and sends the
/// answer. No call waits.

#include "examples/http_server/answer.cuh"
#include "examples/http_server/chunked.cuh"
#include "examples/http_server/counters.cuh"
#include "examples/http_server/routes.cuh"

#include <gpusock/device.cuh>

namespace http {

/// How long clients may take, and how much they may send.
struct Limits {
  std::uint64_t timeout_ns;  ///< for a whole request, for taking a whole answer, and between requests
  std::size_t body_bytes_max;
};

/// Clients that do not close when we have said that we will are cut off then.
inline constexpr std::uint64_t kPartingNs = 1'000'000'000;
/// Received at once while a head is read: bounds what has to be moved from one request to the next.
inline constexpr std::size_t kReceiveBytes = 8 << 10;
/// Received at once of a body whose end is not known.
inline constexpr std::size_t kReceiveChunkedBytes = 64 << 10;
/// Receives before other connections have their turn.
inline constexpr int kTurnsMax = 32;

/// The memory that a connection's input takes: what is left of the request before, a head, a body, and a receive beyond
/// it.
GPUSOCK_FN constexpr std::size_t input_bytes(const Limits& limits) { return 4 * kHeadBytesMax + limits.body_bytes_max; }

enum class Stage : std::uint8_t {
  free,       ///< not in use (as zeroed memory is)
  head,       ///< receives a head, or waits for one
  body,       ///< receives a body
  ready,      ///< waits for its cohort
  answering,  ///< sends
  parting     ///< has ended its stream, and waits for the client to end its own
};

class Connection {
 public:
  __device__ void open(gpusock::Socket socket, char* input, const Limits& limits, Counters& counters) {
    count(counters.connections);
    count(counters.seated);
    seated_ = &counters.seated;
    socket_ = socket;
    input_ = input;
    begin_ = end_ = 0;
    await_request(limits);
  }

  __device__ Stage stage() const { return stage_; }
  __device__ gpusock::Socket socket() const { return socket_; }
  /// When it acts even if nothing happens; the greatest number: never.
  __device__ std::uint64_t deadline_ns() const {
    return stage_ == Stage::free || stage_ == Stage::ready ? ~std::uint64_t{0} : deadline_ns_;
  }
  /// Since when it waits for the first byte of a request; the greatest number: it does not.
  __device__ std::uint64_t idle_since_ns() const {
    return stage_ == Stage::head && end_ == begin_ ? idle_since_ns_ : ~std::uint64_t{0};
  }
  /// True if there are bytes that it has not looked at: then it must be served, even without an event.
  __device__ bool has_input() const { return stage_ == Stage::head && unread_; }

  __device__ std::int16_t events() const {
    switch (stage_) {
      case Stage::head:
      case Stage::body:
      case Stage::parting:
        return gpusock::kPollIn;
      case Stage::answering:
        return gpusock::kPollOut;
      case Stage::free:
      case Stage::ready:
        break;
    }
    return 0;
  }

  /// Of a request that is ready.
  __device__ const Route& asked() const { return route_; }
  __device__ const Request& request() const { return request_; }
  __device__ Text body() const { return {input_ + begin_ + head_bytes_, body_bytes_}; }
  __device__ std::uint64_t ready_ns() const { return ready_ns_; }
  __device__ Answer& answer() { return answer_; }

  /// Does what can be done without waiting.
  __device__ void serve(const gpusock::Net& net, const Limits& limits, Counters& counters) {
    if (stage_ == Stage::answering) send(net, limits);
    if (stage_ == Stage::parting) drain(net);
    for (int turns = 0; turns < kTurnsMax && (stage_ == Stage::head || stage_ == Stage::body); ++turns) {
      read(limits, counters);
      if (stage_ == Stage::answering) send(net, limits);
      if ((stage_ == Stage::head && !unread_) || stage_ == Stage::body) {
        if (!receive(net, limits)) return;
      }
    }
  }

  /// Its time is over.
  __device__ void expire(const gpusock::Net& net, const Limits& limits, Counters& counters) {
    const bool within_request = stage_ == Stage::body || (stage_ == Stage::head && end_ != begin_);
    if (within_request) {
      count(counters.expired);
      refuse(408, limits, counters);
      send(net, limits);
    } else {
      if (stage_ == Stage::answering) count(counters.expired);
      drop(net);
    }
  }

  /// Makes room for another client.
  __device__ void displace(const gpusock::Net& net, Counters& counters) {
    count(counters.displaced);
    drop(net);
  }

  /// Starts to send the answer that was written.
  __device__ void start_answer(const gpusock::Net& net, const Limits& limits) {
    begin_answer(limits);
    send(net, limits);
  }

  __device__ AnswerShape shape(int status, Text media_type) const {
    return {status, request_.keep_alive, request_.http_1_0, request_.method == Method::head, text(""), media_type};
  }

 private:
  __device__ __noinline__ void drop(const gpusock::Net& net) {
    net.close(gpusock::this_thread(), socket_);
    stage_ = Stage::free;
    count(*seated_, ~0ull);  // one less
  }

  GPUSOCK_FN void await_request(const Limits& limits) {
    stage_ = Stage::head;
    unread_ = end_ != begin_;
    scan_ = HeadScan();
    idle_since_ns_ = gpusock::clock_ns();
    deadline_ns_ = idle_since_ns_ + limits.timeout_ns;
  }

  /// Looks at what has come. What is left of the request's stage afterwards needs more bytes.
  __device__ void read(const Limits& limits, Counters& counters) {
    if (stage_ == Stage::head && unread_) read_head(limits, counters);
    if (stage_ == Stage::body) read_body(limits, counters);
  }

  __device__ void read_head(const Limits& limits, Counters& counters) {
    unread_ = false;
    request_ = {};
    int status = scan_.look({input_ + begin_, end_ - begin_});
    if (status == kMoreNeeded) return;
    if (status == kComplete) {
      head_bytes_ = scan_.bytes();
      status = parse_head({input_ + begin_, head_bytes_}, request_);
    }
    if (status == kComplete && request_.content_length > limits.body_bytes_max) status = 413;
    if (status != kComplete) {
      request_.keep_alive = false;  // where the next request would begin is not known
      return refuse(status, limits, counters);
    }
    route_ = route(request_);
    if (route_.status != kComplete) {
      if (request_.body != BodyKind::none)
        request_.keep_alive = false;  // rather than reading a body that is not needed
      head_end_is_request_end();
      return refuse(route_.status, limits, counters);
    }
    start_body(limits);
  }

  __device__ void head_end_is_request_end() {
    body_bytes_ = 0;
    request_end_ = begin_ + head_bytes_;
  }

  __device__ void start_body(const Limits& limits) {
    head_end_is_request_end();
    at_ = {request_end_, request_end_};
    chunks_ = ChunkDecoder();
    stage_ = Stage::body;
    const bool no_body = request_.body == BodyKind::none ||
                         (request_.body == BodyKind::counted && request_.content_length == 0);
    if (!request_.expects_continue || no_body || end_ != request_end_) return;
    write_continue(answer_);
    begin_answer(limits);
  }

  __device__ void read_body(const Limits& limits, Counters& counters) {
    int status = kComplete;
    if (request_.body == BodyKind::chunked) {
      status = chunks_.decode(input_, at_, end_, limits.body_bytes_max);
      body_bytes_ = at_.write - (begin_ + head_bytes_);
      request_end_ = at_.read;
      if (status == kMoreNeeded) end_ = at_.read = at_.write;  // all is read: the next bytes follow the body's
    } else if (request_.body == BodyKind::counted) {
      const std::size_t there = end_ - (begin_ + head_bytes_);
      body_bytes_ = there < request_.content_length ? there : request_.content_length;
      request_end_ = begin_ + head_bytes_ + body_bytes_;
      if (body_bytes_ < request_.content_length) status = kMoreNeeded;
    }
    if (status == kMoreNeeded) return;
    if (status != kComplete) {
      request_.keep_alive = false;
      return refuse(status, limits, counters);
    }
    stage_ = Stage::ready;
    ready_ns_ = gpusock::clock_ns();
  }

  /// How much to receive: of a counted body no byte too many, and never more than there is room for.
  GPUSOCK_FN std::size_t receive_bytes_max(const Limits& limits) const {
    if (stage_ == Stage::head) return kReceiveBytes;
    if (request_.body == BodyKind::counted) return begin_ + head_bytes_ + request_.content_length - end_;
    const std::size_t room = input_bytes(limits) - end_;
    return room < kReceiveChunkedBytes ? room : kReceiveChunkedBytes;
  }

  /// Takes what has arrived; false: nothing has, or the connection is over.
  __device__ __noinline__ bool receive(const gpusock::Net& net, const Limits& limits) {
    const auto got = net.recv(gpusock::this_thread(), socket_, input_ + end_, receive_bytes_max(limits),
                              gpusock::kDontWait);
    if (got == -EAGAIN) return false;
    if (got <= 0) {  // the client has ended or is gone: no client waits for the answer to half a request
      drop(net);
      return false;
    }
    if (stage_ == Stage::head && end_ == begin_) deadline_ns_ = gpusock::clock_ns() + limits.timeout_ns;
    end_ += static_cast<std::size_t>(got);
    unread_ = true;
    return true;
  }

  __device__ void refuse(int status, const Limits& limits, Counters& counters) {
    count(counters.refused);
    AnswerShape how = shape(status, text("text/plain"));
    if (status == 408) how.keep_alive = false;
    if (status == 405) how.allow = same(request_.path, text("/echo")) ? text("POST") : text("GET, HEAD");
    write_refusal(answer_, how);
    begin_answer(limits);
  }

  __device__ void begin_answer(const Limits& limits) {
    stage_ = Stage::answering;
    if (answer_.after != After::rest_of_body) deadline_ns_ = gpusock::clock_ns() + limits.timeout_ns;
  }

  /// Sends what the socket takes of one part; true: all of it is gone.
  __device__ bool send_part(const gpusock::Net& net, Text part, std::size_t before, int flags) {
    const std::size_t done = answer_.sent - before;
    if (done == part.bytes) return true;
    const auto sent = net.send(gpusock::this_thread(), socket_, part.data + done, part.bytes - done,
                               gpusock::kDontWait | flags);
    if (sent < 0 && sent != -EAGAIN) drop(net);
    if (sent > 0) answer_.sent += static_cast<std::size_t>(sent);
    return sent > 0 && answer_.sent - before == part.bytes;
  }

  __device__ __noinline__ void send(const gpusock::Net& net, const Limits& limits) {
    const bool in_head = answer_.sent < answer_.head_bytes;
    const int flags = answer_.body.bytes != 0 ? gpusock::kMore : 0;
    if (in_head && !send_part(net, {answer_.head, answer_.head_bytes}, 0, flags)) return;
    if (!send_part(net, answer_.body, answer_.head_bytes, 0)) return;
    if (answer_.after == After::rest_of_body) {
      stage_ = Stage::body;
    } else if (answer_.after == After::next_request) {
      next_request(limits);
    } else {
      // Closing now would reset the connection if the client is still sending, and the answer could be lost.
      net.shutdown(gpusock::this_thread(), socket_, gpusock::Shutdown::write);
      stage_ = Stage::parting;
      deadline_ns_ = gpusock::clock_ns() + kPartingNs;
    }
  }

  /// What follows in the buffer is the next request's beginning; it goes to the front before it would run out of room.
  GPUSOCK_FN void next_request(const Limits& limits) {
    begin_ = request_end_;
    if (begin_ == end_) {
      begin_ = end_ = 0;
    } else if (begin_ > kHeadBytesMax) {
      for (std::size_t i = 0; i < end_ - begin_; ++i) input_[i] = input_[begin_ + i];
      end_ -= begin_;
      begin_ = 0;
    }
    await_request(limits);
  }

  /// Throws away what the client still sends, until its end.
  __device__ __noinline__ void drain(const gpusock::Net& net) {
    for (int turns = 0; turns < kTurnsMax; ++turns) {
      const auto got = net.recv(gpusock::this_thread(), socket_, input_, 4 * kHeadBytesMax, gpusock::kDontWait);
      if (got == -EAGAIN) return;
      if (got <= 0) return drop(net);
    }
  }

  gpusock::Socket socket_;
  Stage stage_;
  bool unread_;
  char* input_;        // input_bytes() of memory
  std::size_t begin_;  // of the current request in it
  std::size_t end_;    // of what has been received
  std::size_t head_bytes_;
  std::size_t body_bytes_;  // that are there, decoded
  std::size_t request_end_;
  ChunkPositions at_;
  HeadScan scan_;
  ChunkDecoder chunks_;
  Request request_;
  Route route_;
  std::uint64_t deadline_ns_;
  std::uint64_t idle_since_ns_;
  unsigned long long* seated_;
  std::uint64_t ready_ns_;
  Answer answer_;
};

}  // namespace http
