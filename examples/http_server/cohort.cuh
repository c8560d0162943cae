#pragma once
/// @file Cohorts: requests of one kind that a block executes side by side, one request to a thread. (The idea of
/// Rhythm, ASPLOS'14.)

#include "examples/http_server/connection.cuh"
#include "examples/http_server/primes.cuh"

#include <gpusock/device.cuh>

namespace http {

inline constexpr unsigned kCohortMax = 256;

/// A cohort is executed when it has `size` requests, when its first request has waited for `delay_ns`, or when no other
/// connection of the block could add one.
struct CohortRule {
  unsigned size;
  std::uint64_t delay_ns;
};

/// What a block knows about the requests that wait; in its shared memory.
struct Waiting {
  unsigned ready[kKinds];
  unsigned long long oldest_ns[kKinds];  ///< when the first one of them began to wait
  unsigned may_join;                     ///< connections from which a request may still come
};

/// A cohort, in its block's shared memory.
struct Cohort {
  Kind kind;
  unsigned size;
  unsigned members[kCohortMax];  ///< which connections
  std::uint64_t n[kCohortMax];   ///< the n of a request for /primes
  unsigned primes[kCohortMax];
};

__device__ inline Text write_page(TextBuffer& to) {
  to << "<!DOCTYPE html>\n<html lang=\"en\"><head><title>gpusock</title></head><body>\n<h1>Served by a kernel</h1>\n"
     << "<p>This page was written by a thread of a kernel, which received your request with <code>recv</code> and "
        "answers\n"
     << "with <code>send</code>.</p>\n<ul>\n<li><a href=\"/time\">/time</a>: the device's clock</li>\n"
     << "<li><a href=\"/primes?n=1000000\">/primes?n=1000000</a>: how many primes there are up to n</li>\n"
     << "<li><a href=\"/stats\">/stats</a>: what was served, and in cohorts of which size</li>\n"
     << "<li>POST /echo: answers with the body</li>\n</ul>\n</body></html>\n";
  return text("text/html");
}

__device__ inline void write_kind(TextBuffer& to, Kind kind, KindCounters& of) {
  to << "\"" << name_of(kind) << "\": {\"requests\": " << value_of(of.requests)
     << ", \"cohorts\": " << value_of(of.cohorts) << ", \"largest\": " << value_of(of.largest) << ", \"sizes\": {";
  for (int i = 0; i < kSizeClasses; ++i) {
    to << (i == 0 ? text("\"") : text(", \"")) << (std::uint64_t{1} << i) << "\": " << value_of(of.sizes[i]);
  }
  to << "}}";
}

__device__ inline Text write_stats(TextBuffer& to, Counters& counters) {
  to << "{\"connections\": " << value_of(counters.connections) << ", \"refused\": " << value_of(counters.refused)
     << ", \"expired\": " << value_of(counters.expired) << ",\n \"kinds\": {";
  for (int i = 0; i < kKinds; ++i) {
    to << (i == 0 ? text("\n  ") : text(",\n  "));
    write_kind(to, static_cast<Kind>(i), counters.kinds[i]);
  }
  to << "\n }}\n";
  return text("application/json");
}

/// Writes the answer to the cohort's request `index`.
__device__ inline void write_answer(Connection& connection, const Cohort& cohort, unsigned index, Counters& counters) {
  Answer& answer = connection.answer();
  TextBuffer own(answer.own_body, sizeof answer.own_body);
  Text media_type = text("text/plain");
  switch (cohort.kind) {
    case Kind::page:
      media_type = write_page(own);
      break;
    case Kind::time:
      own << gpusock::clock_ns() << "\n";
      break;
    case Kind::primes:
      own << std::uint64_t{cohort.primes[index]} << "\n";
      break;
    case Kind::stats:
      media_type = write_stats(own, counters);
      break;
    case Kind::echo:
      return write_head(answer, connection.shape(200, text("application/octet-stream")), connection.body());
  }
  write_head(answer, connection.shape(200, media_type), {answer.own_body, own.bytes()});
}

/// Counts the requests that wait. All threads of the block call it.
template <class Block>
__device__ void look_at_waiting(const Block& block, Waiting& waiting, const Connection* connections, unsigned count) {
  block.sync();
  for (unsigned i = block.thread_rank(); i < kKinds; i += block.size()) {
    waiting.ready[i] = 0;
    waiting.oldest_ns[i] = ~0ull;
  }
  if (block.thread_rank() == 0) waiting.may_join = 0;
  block.sync();
  for (unsigned i = block.thread_rank(); i < count; i += block.size()) {
    const Connection& connection = connections[i];
    if (connection.stage() == Stage::ready) {
      const auto kind = static_cast<int>(connection.asked().kind);
      atomicAdd(&waiting.ready[kind], 1u);
      atomicMin(&waiting.oldest_ns[kind], static_cast<unsigned long long>(connection.ready_ns()));
    } else if (connection.stage() != Stage::free && connection.stage() != Stage::parting) {
      atomicAdd(&waiting.may_join, 1u);
    }
  }
  block.sync();
}

/// Gathers up to `size` requests of the kind into the cohort. All threads of the block call it.
template <class Block>
__device__ void gather(const Block& block, Cohort& cohort, Kind kind, unsigned size, const Connection* connections,
                       unsigned count) {
  if (block.thread_rank() == 0) {
    cohort.kind = kind;
    cohort.size = 0;
  }
  block.sync();
  for (unsigned i = block.thread_rank(); i < count; i += block.size()) {
    if (connections[i].stage() != Stage::ready || connections[i].asked().kind != kind) continue;
    const unsigned index = atomicAdd(&cohort.size, 1u);
    if (index >= size) continue;
    cohort.members[index] = i;
    cohort.n[index] = connections[i].asked().n;
  }
  block.sync();
  if (block.thread_rank() == 0 && cohort.size > size) cohort.size = size;
  block.sync();
}

/// Executes the cohort: each thread writes the answers to its share of the requests, and starts to send them. All
/// threads of the block call it.
template <class Block>
__device__ void execute(const Block& block, const gpusock::Net& net, Cohort& cohort, Connection* connections,
                        const Limits& limits, Counters& counters) {
  if (cohort.kind == Kind::primes) count_primes(block, cohort.n, cohort.primes, cohort.size);
  for (unsigned i = block.thread_rank(); i < cohort.size; i += block.size()) {
    Connection& connection = connections[cohort.members[i]];
    write_answer(connection, cohort, i, counters);
    connection.start_answer(net, limits);
  }
  if (block.thread_rank() == 0) count_cohort(counters.kinds[static_cast<int>(cohort.kind)], cohort.size);
  block.sync();
}

}  // namespace http
