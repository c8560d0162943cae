// Memory of a GPU that the host stores into: with GDRCopy's library, or what stands for it (gdrapi.cpp).
#include "gpusock/cuda/window.hpp"
#include "tests/unit/cuda/fixture.hpp"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>
#include <memory>

namespace gpusock::cuda_test {
namespace {

constexpr std::size_t kBytes = 100'000;  // no whole pages

/// Functions of the library that stands for GDRCopy's.
template <class Function>
Function of_library(const char* name) {
  void* const library = dlopen("libgdrapi.so.2", RTLD_NOW | RTLD_LOCAL);
  return reinterpret_cast<Function>(dlsym(library, name));
}
void fail_call(int nth) { of_library<void (*)(int)>("gdrapi_double_fail")(nth); }
int left_in_library() { return of_library<int (*)()>("gdrapi_double_left")(); }

__global__ void read_word(const std::uint64_t* word, std::uint64_t* to) {
  *to = Word(*const_cast<std::uint64_t*>(word)).load(ringbuf::kAcquire);
}

TEST(Window, WhatIsWrittenThroughTheMappingAKernelReads) {
  Context context(small_options());
  const auto before = cuda_double::left();
  Mapped<std::uint64_t> seen(context, 1);
  {
    const auto window = cudart::CudaWindow::make(0, kBytes);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(window->device()) % 65536, 0u);
    const std::size_t last = kBytes / sizeof(std::uint64_t) - 1;
    auto* const words = reinterpret_cast<std::uint64_t*>(window->mapping());
    for (const std::size_t at : {std::size_t{0}, last}) {
      const auto* const on_device = reinterpret_cast<const std::uint64_t*>(window->device()) + at;
      launch(context, {}, read_word, on_device, seen.data());
      context.synchronize();
      EXPECT_EQ(seen[0], 0u) << "it was zeroed, word " << at;
      ringbuf::bar_write(words + at, 42);
      launch(context, {}, read_word, on_device, seen.data());
      context.synchronize();
      EXPECT_EQ(seen[0], 42u);
    }
  }
  EXPECT_EQ(left_in_library(), 0) << "opened, pinned or mapped";
  EXPECT_EQ(cuda_double::left().size(), before.size() + 1) << "`seen` alone";
}

TEST(Window, WhereGdrCopyFailsTheReasonIsToldAndNothingIsLeft) {
  Context context(small_options());
  const auto before = cuda_double::left();
  const char* const reasons[] = {"GDRCopy finds no kernel module: load gdrdrv", "GDRCopy cannot pin 131072 bytes",
                                 "GDRCopy cannot map 131072 bytes"};
  for (int call = 1; call <= 3; ++call) {
    fail_call(call);
    const Thrown thrown = thrown_by([] { cudart::CudaWindow::make(0, kBytes); });
    fail_call(0);
    EXPECT_EQ(thrown.error, ENOTSUP) << call;
    EXPECT_NE(thrown.what.find(reasons[call - 1]), std::string::npos) << thrown.what;
    EXPECT_EQ(left_in_library(), 0) << call;
    EXPECT_EQ(cuda_double::left(), before) << call;
  }
}

TEST(Window, WhereACallOfCudaFailsNothingIsLeft) {
  Context context(small_options());
  const auto before = cuda_double::left();
  bool failed = true;
  for (std::uint64_t n = 1; failed; ++n) {
    cuda_double::fail_call(n);
    (void)thrown_by([] { cudart::CudaWindow::make(0, kBytes); });
    failed = !cuda_double::failed_call().empty();
    cuda_double::fail_call(0);
    EXPECT_EQ(left_in_library(), 0) << "call " << n;
    EXPECT_EQ(cuda_double::left(), before) << "call " << n;
  }
}

/// The double's driver does not say in which order its GPU sees what comes over the bus.
TEST(Window, AGpuThatPromisesNoOrderKeepsItsWordsInHostMemory) {
  Options options = small_options();
  options.words = RingPlacement::device;
  const Thrown thrown = thrown_by([&] { Context context(options); });
  EXPECT_EQ(thrown.error, ENOTSUP);
  EXPECT_NE(thrown.what.find("does not say that it sees what comes over the bus in order"), std::string::npos)
      << thrown.what;
  options.words = RingPlacement::automatic;
  const Context context(options);
  EXPECT_EQ(left_in_library(), 0);
}

}  // namespace
}  // namespace gpusock::cuda_test
