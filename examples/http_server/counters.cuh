#pragma once
/// @file What the server counts, in memory that all its blocks share.

#include "examples/http_server/routes.cuh"

#include <gpusock/device.cuh>

namespace http {

/// Sizes of cohorts are counted in powers of two: 1, 2, 3-4, 5-8, ... 129-256.
inline constexpr int kSizeClasses = 9;

struct KindCounters {
  unsigned long long requests;
  unsigned long long cohorts;
  unsigned long long largest;
  unsigned long long sizes[kSizeClasses];
};

struct Counters {
  unsigned long long connections;
  unsigned long long refused;      ///< requests answered with 4xx or 5xx
  unsigned long long expired;      ///< clients that took too long for a request or an answer
  unsigned long long displaced;    ///< idle or slow clients that made room for others
  unsigned long long turned_away;  ///< clients that got 503, as all connections were taken
  unsigned long long seated;       ///< connections that are served now
  KindCounters kinds[kKinds];
};

__device__ inline void count(unsigned long long& counter, unsigned long long more = 1) { atomicAdd(&counter, more); }
__device__ inline unsigned long long value_of(unsigned long long& counter) { return atomicAdd(&counter, 0ull); }

/// Counts a cohort of `size` requests.
__device__ inline void count_cohort(KindCounters& of, unsigned size) {
  int size_class = 0;
  while ((1u << size_class) < size && size_class + 1 < kSizeClasses) ++size_class;
  count(of.requests, size);
  count(of.cohorts);
  count(of.sizes[size_class]);
  atomicMax(&of.largest, static_cast<unsigned long long>(size));
}

}  // namespace http
