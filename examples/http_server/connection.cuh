#pragma once
/// @file One connection, which one thread serves: it receives a request, hands it to a cohort, and sends the answer. No
/// call waits.

#include "examples/http_server/answer.cuh"
#include "examples/http_server/body.cuh"
#include "examples/http_server/counters.cuh"
#include "examples/http_server/routes.cuh"

#include <gpusock/io.cuh>

namespace http {

/// How long clients may take, and how much they may send.
struct Limits {
  std::uint64_t timeout_ns;  ///< for a whole request, for a whole answer, and for the time between requests
  std::size_t body_bytes_max;
};

/// If the server has ended its stream and the client does not close, the server closes after this time.
inline constexpr std::uint64_t kPartingNs = 1'000'000'000;
/// How many lines and pieces are read before other connections have their turn.
inline constexpr int kTurnsMax = 64;
/// The largest piece of a body.
inline constexpr std::size_t kPieceBytes = 64 << 10;

/// Bytes of memory for a connection's input: a line and a body.
GPUSOCK_FN constexpr std::size_t input_bytes(const Limits& limits) { return kHeadBytesMax + limits.body_bytes_max; }

enum class Stage : std::uint8_t {
  free,       ///< not in use, as in zeroed memory
  head,       ///< receives a head, or waits for one
  body,       ///< receives a body
  ready,      ///< waits for its cohort
  answering,  ///< sends an answer
  parting     ///< has ended its stream, and waits for the client to end its own
};

class Connection {
 public:
  __device__ void open(const gpusock::Net& net, gpusock::Socket socket, char* input, const Limits& limits,
                       Counters& counters) {
    count(counters.connections);
    count(counters.seated);
    seated_ = &counters.seated;
    socket_ = socket;
    reader_ = {gpusock::this_thread(), net, socket, input, kHeadBytesMax};
    answer_.writer = {gpusock::this_thread(), net, socket, answer_.buffer, sizeof answer_.buffer, 0};
    body_memory_ = input + kHeadBytesMax;
    await_request(limits);
  }

  __device__ Stage stage() const { return stage_; }
  __device__ gpusock::Socket socket() const { return socket_; }
  /// When the connection must act even if no event comes. The greatest number: never.
  __device__ std::uint64_t deadline_ns() const {
    return stage_ == Stage::free || stage_ == Stage::ready ? ~std::uint64_t{0} : deadline_ns_;
  }
  /// The time since which it waits for its client: for a whole request, or until the client takes the answer. Parts of
  /// a request do not change it. The greatest number: it does not wait.
  __device__ std::uint64_t waits_since_ns() const {
    return stage_ == Stage::free || stage_ == Stage::ready ? ~std::uint64_t{0} : waits_since_ns_;
  }
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

  /// The request must be ready when these are called.
  __device__ const Route& asked() const { return route_; }
  __device__ const Request& request() const { return request_; }
  __device__ Text body() const { return {body_memory_, body_.bytes()}; }
  __device__ std::uint64_t ready_ns() const { return ready_ns_; }
  __device__ Answer& answer() { return answer_; }

  /// Does all that can be done without waiting.
  __device__ void serve(const gpusock::Net& net, const Limits& limits, Counters& counters) {
    if (stage_ == Stage::answering) send(net, limits);
    if (stage_ == Stage::parting) drain(net);
    for (int turns = 0; turns < kTurnsMax && (stage_ == Stage::head || stage_ == Stage::body); ++turns) {
      if (!read(net, limits, counters)) return;
      if (stage_ == Stage::answering) send(net, limits);
    }
  }

  /// Called when the deadline is over: refuses a request that has begun to arrive, else closes the connection.
  __device__ void expire(const gpusock::Net& net, const Limits& limits, Counters& counters) {
    const bool within_request = stage_ == Stage::body || (stage_ == Stage::head && under_way_);
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
    waits_since_ns_ = gpusock::clock_ns();  // the time that the server took is not the client's fault
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

  __device__ void await_request(const Limits& limits) {
    stage_ = Stage::head;
    under_way_ = false;
    head_ = {};
    body_ = {};
    request_ = {};
    waits_since_ns_ = gpusock::clock_ns();
    deadline_ns_ = waits_since_ns_ + limits.timeout_ns;
  }

  /// Reads a line of the head, or a piece of the body. False: it has not arrived whole, or the connection has ended.
  __device__ __noinline__ bool read(const gpusock::Net& net, const Limits& limits, Counters& counters) {
    const gpusock::Received got = receive();
    const bool too_long = got.size == -EMSGSIZE;
    if (!under_way_ && (got || too_long || reader_.begun())) {
      under_way_ = true;
      deadline_ns_ = gpusock::clock_ns() + limits.timeout_ns;
    }
    if (got.size == -EAGAIN) return false;
    if (!got && !too_long) {  // the client has ended or is gone: it waits for no answer to half a request
      drop(net);
      return false;
    }
    const int status = stage_ == Stage::head ? take_head(got, limits)
                       : too_long            ? 431
                                             : body_.take(got.text(), limits.body_bytes_max);
    if (status == kMoreNeeded) return true;
    if (status != kComplete) {
      request_.keep_alive = false;  // the start of the next request is unknown
      refuse(status, limits, counters);
    } else if (route_.status != kComplete) {
      if (request_.body != BodyKind::none) request_.keep_alive = false;  // avoids reading a body that no one needs
      refuse(route_.status, limits, counters);
    } else {
      go_on(limits);
    }
    return true;
  }

  __device__ gpusock::Received receive() {
    const auto now = gpusock::Deadline::now();
    if (stage_ == Stage::head) return reader_.until('\n', now);
    const std::size_t left = body_.left();
    switch (body_.next()) {
      case Body::Part::data:
        return reader_.read(body_memory_ + body_.bytes(), left < kPieceBytes ? left : kPieceBytes, now);
      case Body::Part::data_end:
        return reader_.exactly(2, now);
      case Body::Part::size:
      case Body::Part::trailer:
        break;
    }
    return reader_.until('\n', now);
  }

  __device__ int take_head(const gpusock::Received& line, const Limits& limits) {
    const int status = line ? head_.take(line.text(), request_) : head_.too_long();
    if (status == kMoreNeeded && head_.lines() == 1) route_ = route(request_);  // the next line overwrites this one
    return status == kComplete && request_.content_length > limits.body_bytes_max ? 413 : status;
  }

  /// Called when the head is complete, or the body.
  __device__ void go_on(const Limits& limits) {
    const bool no_body = request_.body == BodyKind::none ||
                         (request_.body == BodyKind::counted && request_.content_length == 0);
    if (stage_ == Stage::body || no_body) {
      stage_ = Stage::ready;
      ready_ns_ = gpusock::clock_ns();
      return;
    }
    stage_ = Stage::body;
    body_ = Body(request_.body, request_.content_length);
    if (!request_.expects_continue) return;
    write_continue(answer_);
    begin_answer(limits);
  }

  __device__ void refuse(int status, const Limits& limits, Counters& counters) {
    count(counters.refused);
    AnswerShape how = shape(status, text("text/plain"));
    if (status == 408) how.keep_alive = false;
    if (status == 405) how.allow = route_.kind == Kind::echo ? text("POST") : text("GET, HEAD");
    write_refusal(answer_, how);
    begin_answer(limits);
  }

  __device__ void begin_answer(const Limits& limits) {
    stage_ = Stage::answering;
    if (answer_.after != After::rest_of_body) deadline_ns_ = gpusock::clock_ns() + limits.timeout_ns;
  }

  __device__ __noinline__ void send(const gpusock::Net& net, const Limits& limits) {
    int error = answer_.writer.flush(gpusock::Deadline::now());
    if (error == 0 && answer_.rest.bytes != 0) {
      const auto sent = net.send(gpusock::this_thread(), socket_, answer_.rest.data, answer_.rest.bytes,
                                 gpusock::kDontWait);
      if (sent > 0) answer_.rest = answer_.rest.from(static_cast<std::size_t>(sent));
      if (sent < 0) error = static_cast<int>(sent);
    }
    if (error != 0 && error != -EAGAIN) return drop(net);
    if (error != 0 || answer_.rest.bytes != 0) return;
    if (answer_.after == After::rest_of_body) {
      stage_ = Stage::body;
    } else if (answer_.after == After::next_request) {
      await_request(limits);
    } else {
      // Closing now would reset the connection if the client is still sending, and the answer could be lost.
      net.shutdown(gpusock::this_thread(), socket_, gpusock::Shutdown::write);
      stage_ = Stage::parting;
      deadline_ns_ = gpusock::clock_ns() + kPartingNs;
    }
  }

  /// Drops what the client still sends, until its stream ends.
  __device__ void drain(const gpusock::Net& net) {
    const int error = reader_.skip(kPieceBytes, gpusock::Deadline::now());
    if (error != 0 && error != -EAGAIN) drop(net);
  }

  gpusock::Socket socket_;
  Stage stage_;
  bool under_way_;  // true if a part of a request has arrived
  gpusock::Reader<gpusock::ThisThread> reader_;
  char* body_memory_;
  Head head_;
  Body body_;
  Request request_;
  Route route_;
  std::uint64_t deadline_ns_;
  std::uint64_t waits_since_ns_;
  unsigned long long* seated_;
  std::uint64_t ready_ns_;
  Answer answer_;
};

}  // namespace http
