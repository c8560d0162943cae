#pragma once
/// @file Counts the primes up to n for a whole cohort at once. The block sieves up to the cohort's greatest n, and all
/// requests share the work: here a cohort does less than its requests would do one by one.

#include "examples/http_server/routes.cuh"

#include <gpusock/device.cuh>

namespace http {

/// Odd numbers in one turn of the sieve. Each thread has a part of them.
inline constexpr unsigned kSieveNumbers = 16 << 10;

/// Fills composite[0, count) with which of the odd numbers first, first + 2, ... are composite.
__device__ inline void sieve_part(unsigned char* composite, std::uint64_t first, unsigned count) {
  for (unsigned i = 0; i < count; ++i) composite[i] = 0;
  const std::uint64_t last = first + 2 * (count - 1);
  // Not all of these divisors are primes: striking out the multiples of another one costs little and changes nothing.
  for (std::uint64_t divisor = 3; divisor * divisor <= last; divisor += 2) {
    if (divisor > 5 && (divisor % 3 == 0 || divisor % 5 == 0)) continue;
    std::uint64_t multiple = divisor * divisor;
    if (multiple < first) multiple = (first + divisor - 1) / divisor * divisor;
    if (multiple % 2 == 0) multiple += divisor;
    for (; multiple <= last; multiple += 2 * divisor) composite[(multiple - first) / 2] = 1;
  }
}

/// Stores the number of primes up to n[i] in found[i], for all i < requests. All threads of the block call it, and can
/// access n and found. Ends with a barrier.
template <class Block>
__device__ void count_primes(const Block& block, const std::uint64_t* n, unsigned* found, unsigned requests) {
  __shared__ unsigned char composite[kSieveNumbers];
  std::uint64_t greatest = 0;
  for (unsigned i = 0; i < requests; ++i) greatest = n[i] > greatest ? n[i] : greatest;
  for (unsigned i = block.thread_rank(); i < requests; i += block.size()) found[i] = n[i] >= 2 ? 1 : 0;  // the number 2
  const unsigned part = (kSieveNumbers + block.size() - 1) / block.size(), start = block.thread_rank() * part;
  for (std::uint64_t first = 3; first <= greatest; first += 2 * kSieveNumbers) {
    if (start < kSieveNumbers) {
      sieve_part(composite + start, first + 2 * start, start + part < kSieveNumbers ? part : kSieveNumbers - start);
    }
    block.sync();
    for (unsigned i = block.thread_rank(); i < requests; i += block.size()) {
      if (n[i] < first) continue;
      const std::uint64_t numbers = (n[i] - first) / 2 + 1;
      const unsigned count = numbers < kSieveNumbers ? static_cast<unsigned>(numbers) : kSieveNumbers;
      unsigned primes = 0;
      for (unsigned k = 0; k < count; ++k) primes += composite[k] == 0;
      found[i] += primes;
    }
    block.sync();
  }
  block.sync();
}

}  // namespace http
