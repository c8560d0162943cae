#pragma once
/// @file What is fuzzed: a function of bytes that ends the process where a promise is broken. The same source is linked
/// to libFuzzer (preset fuzz; each target a program) and to replay_main.cpp (every build; all targets in one program).

#include "tests/fuzz/input.hpp"

#include <cstdio>
#include <cstdlib>
#include <vector>

namespace gpusock::fuzz {

struct Target {
  const char* name;
  void (*run)(Input input);
};

inline std::vector<Target>& targets() {
  static std::vector<Target> all;
  return all;
}

struct Registered {
  Registered(const char* name, void (*run)(Input)) { targets().push_back({name, run}); }
};

[[noreturn]] inline void broken(const char* promise, const char* file, int line) {
  std::fprintf(stderr, "%s:%d: broken promise: %s\n", file, line, promise);
  std::abort();
}

}  // namespace gpusock::fuzz

/// Ends the process, so that the fuzzer keeps the input, unless this holds.
#define FUZZ_CHECK(promise)                                                \
  do {                                                                     \
    if (!(promise)) ::gpusock::fuzz::broken(#promise, __FILE__, __LINE__); \
  } while (false)

/// The target of this name: FUZZ_TARGET(idx) { ... input ... }
#define FUZZ_TARGET(name)                                                        \
  static void run_##name(::gpusock::fuzz::Input input);                          \
  static const ::gpusock::fuzz::Registered registered_##name(#name, run_##name); \
  static void run_##name([[maybe_unused]] ::gpusock::fuzz::Input input)
