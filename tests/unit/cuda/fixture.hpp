#pragma once
/// @file Contexts on the double of the CUDA runtime, and kernels that wait for what a test does.
#include "gpusock/cuda/kernels.hpp"
#include "gpusock/gpusock.hpp"
#include "tests/support/cuda_double/double.hpp"
#include "tests/support/patience.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace gpusock::cuda_test {

using Word = detail::SystemRef;

/// Small, so that making one takes a moment.
inline Options small_options() {
  Options options;
  options.sockets_max = 4;
  options.connections_max = 2;
  options.ring_bytes = 4 << 10;
  options.observe = "";
  options.host_rings = "";
  return options;
}

/// Ends when the word is set. Each test that launches such kernels for the first time has its own.
template <int kWhich>
__global__ void wait_for(std::uint64_t* word) {
  while (Word(*word).load(ringbuf::kAcquire) == 0) __nanosleep(1'000);
}

template <int kWhich>
__global__ void set(std::uint64_t* word, std::uint64_t value) {
  Word(*word).store(value, ringbuf::kRelease);
}

inline void raise(std::uint64_t& word) { Word(word).store(1, ringbuf::kRelease); }

/// Calls `end_it` at the first hang, which it must end; says who waited for whom.
class HangExpected {
 public:
  explicit HangExpected(std::function<void()> end_it, std::chrono::milliseconds limit = std::chrono::milliseconds(20)) {
    cuda_double::on_hang([this, end_it](const std::string& text) {
      {
        const std::lock_guard lock(mutex_);
        text_ += text;
      }
      end_it();
    });
    cuda_double::set_hang_limit(limit);
  }
  ~HangExpected() {
    cuda_double::set_hang_limit(std::chrono::milliseconds(0));
    cuda_double::on_hang(nullptr);
  }
  HangExpected(const HangExpected&) = delete;
  HangExpected& operator=(const HangExpected&) = delete;

  std::string text() {
    const std::lock_guard lock(mutex_);
    return text_;
  }

 private:
  std::mutex mutex_;
  std::string text_;
};

/// A launch waits for this long until no kernel runs, and not for seconds.
class ShortPatience {
 public:
  explicit ShortPatience(std::uint64_t patience_ns) : before_(cudart::Kernels::patience_ns().exchange(patience_ns)) {}
  ~ShortPatience() { cudart::Kernels::patience_ns() = before_; }
  ShortPatience(const ShortPatience&) = delete;
  ShortPatience& operator=(const ShortPatience&) = delete;

 private:
  std::uint64_t before_;
};

/// The errno and the words of an Error that `call` throws; 0 where it throws none.
struct Thrown {
  int error = 0;
  std::string what;
};
template <class Call>
Thrown thrown_by(Call call) {
  try {
    call();
  } catch (const Error& error) {
    return {error.code().value(), error.what()};
  }
  return {};
}

}  // namespace gpusock::cuda_test
