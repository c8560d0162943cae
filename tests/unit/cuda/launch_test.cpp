// Launches beside kernels that wait for them: none may wait, for loading or for a larger stack, and none is refused
// without a reason.
#include "tests/unit/cuda/fixture.hpp"

#include <stdlib.h>

#include <atomic>

namespace gpusock::cuda_test {
namespace {

constexpr std::uint64_t kShortNs = 20'000'000;

template <int kWhich>
cuda_double::KernelFacts facts_of_wait(std::size_t stack_bytes = 0) {
  return {cuda_double::symbol_of(wait_for<kWhich>), stack_bytes};
}
template <int kWhich>
cuda_double::KernelFacts facts_of_set(std::size_t stack_bytes = 0) {
  return {cuda_double::symbol_of(set<kWhich>), stack_bytes};
}

class Launch : public testing::Test {
 protected:
  ~Launch() override { cuda_double::set_lazy_loading(false); }

  /// Launches a kernel that waits for another one, and the other one. Numbers that no test has launched yet.
  template <int kWhich>
  Thrown launch_beside() {
    launch(context, {}, wait_for<kWhich>, word.data());
    const Thrown thrown = thrown_by(
        [&] { launch(context, {.stream = &stream}, set<kWhich>, word.data(), std::uint64_t{1}); });
    if (thrown.error != 0) raise(word[0]);
    context.synchronize();
    return thrown;
  }

  Context context{small_options()};
  Stream stream{context};
  Mapped<std::uint64_t> word{context, 1};
};

TEST_F(Launch, KernelsAreLoadedEagerlyAlsoWhereTheProgramUsedCudaBeforeItsFirstContext) {
  EXPECT_FALSE(cuda_double::loads_lazily());
  EXPECT_EQ(cuda_double::hardware_queues(), 32);
  EXPECT_EQ(launch_beside<100>().error, 0);
}

/// In a process of its own: the log counts equal lines of one second instead of writing them.
TEST_F(Launch, WhereKernelsAreLoadedLazilyTheContextWarns) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto make_context = [] {
    cuda_double::set_lazy_loading(true);
    { const Context lazy(small_options()); }
    std::exit(0);
  };
  EXPECT_EXIT(make_context(), testing::ExitedWithCode(0), "loads kernels lazily.*CUDA_MODULE_LOADING=EAGER");
}

/// What a launch would do is known from the double's own calls; gpusock refuses before there is one.
TEST_F(Launch, NoContextIsMadeWhereLaunchesWaitForTheirKernels) {
  for (const char* const value : {"1", "yes"}) {
    ASSERT_EQ(setenv("CUDA_LAUNCH_BLOCKING", value, 1), 0);
    const Thrown thrown = thrown_by([] { Context{small_options()}; });
    EXPECT_EQ(thrown.error, ENOTSUP);
    EXPECT_NE(thrown.what.find("CUDA_LAUNCH_BLOCKING=" + std::string(value)), std::string::npos) << thrown.what;
    EXPECT_NE(thrown.what.find("unset it"), std::string::npos) << thrown.what;
  }
  for (const char* const value : {"0", ""}) {
    ASSERT_EQ(setenv("CUDA_LAUNCH_BLOCKING", value, 1), 0);
    EXPECT_EQ(thrown_by([] { Context{small_options()}; }).error, 0);
  }
  unsetenv("CUDA_LAUNCH_BLOCKING");
}

/// Other threads may read the environment while contexts are made.
TEST_F(Launch, ContextsLeaveTheEnvironmentAlone) {
  ASSERT_EQ(unsetenv("CUDA_MODULE_LOADING"), 0);
  ASSERT_EQ(unsetenv("CUDA_DEVICE_MAX_CONNECTIONS"), 0);
  Context another(small_options());
  EXPECT_EQ(getenv("CUDA_MODULE_LOADING"), nullptr);
  EXPECT_EQ(getenv("CUDA_DEVICE_MAX_CONNECTIONS"), nullptr);
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 1);
}

TEST_F(Launch, WhereKernelsAreLoadedLazilyThoseOfOneLibraryAreLoadedTogether) {
  cuda_double::set_lazy_loading(true);
  cuda_double::describe_library({facts_of_wait<101>(), facts_of_set<101>()});
  EXPECT_EQ(launch_beside<101>().error, 0);
}

TEST_F(Launch, AKernelThatCannotBeLoadedBesideThoseThatRunIsRefused) {
  const ShortPatience patience(kShortNs);
  cuda_double::set_lazy_loading(true);
  const Thrown thrown = launch_beside<102>();
  EXPECT_EQ(thrown.error, EBUSY);
  EXPECT_NE(thrown.what.find("CUDA_MODULE_LOADING=EAGER"), std::string::npos) << thrown.what;
  word[0] = 0;
  launch(context, {}, set<102>, word.data(), std::uint64_t{5});  // nothing runs now
  context.synchronize();
  EXPECT_EQ(word[0], 5u);
  word[0] = 0;
  EXPECT_EQ(launch_beside<102>().error, 0);
}

TEST_F(Launch, LoadingWaitsForKernelsThatEndByThemselves) {
  cuda_double::set_lazy_loading(true);
  launch(context, {}, wait_for<103>, word.data());
  cuda_double::fail_call(0);  // calls are counted from here on
  std::atomic<bool> launched{false};
  std::thread ends([&] {  // once the launch has asked some times whether the kernel still runs
    while (cuda_double::calls_made() < 20 && !launched) std::this_thread::yield();
    raise(word[0]);
  });
  EXPECT_EQ(thrown_by([&] { launch(context, {.stream = &stream}, set<103>, word.data(), std::uint64_t{2}); }).error, 0);
  launched = true;
  ends.join();
  context.synchronize();
  EXPECT_EQ(word[0], 2u);
}

TEST_F(Launch, TheLargestStackOfALibraryIsSetUpBeforeItsFirstKernelRuns) {
  const std::size_t bytes = cuda_double::stack_bytes() + 1000;
  cuda_double::describe_library({facts_of_wait<104>(16), facts_of_set<104>(bytes)});
  EXPECT_EQ(launch_beside<104>().error, 0);
  EXPECT_EQ(cuda_double::stack_bytes(), bytes);
}

TEST_F(Launch, AKernelThatNeedsALargerStackBesideThoseThatRunIsRefused) {
  const ShortPatience patience(kShortNs);
  cuda_double::describe_library({facts_of_wait<105>()});
  cuda_double::describe_library({facts_of_set<105>(cuda_double::stack_bytes() + 1000)});
  const Thrown thrown = launch_beside<105>();
  EXPECT_EQ(thrown.error, EBUSY);
  EXPECT_NE(thrown.what.find("stack"), std::string::npos) << thrown.what;
}

TEST_F(Launch, AKernelWhoseFramesAreTooLargeIsRefused) {
  cuda_double::describe_library({facts_of_set<106>(cuda_double::kStackBytesMax + 1)});
  const std::size_t before = cuda_double::stack_bytes();
  const Thrown thrown = thrown_by([&] { launch(context, {}, set<106>, word.data(), std::uint64_t{1}); });
  EXPECT_EQ(thrown.error, ENOMEM);
  EXPECT_NE(thrown.what.find("stacks of 65537 bytes"), std::string::npos) << thrown.what;
  EXPECT_EQ(cuda_double::stack_bytes(), before);
  std::uint64_t* to = word.data();
  std::uint64_t value = 1;
  void* arguments[] = {static_cast<void*>(&to), &value};
  cudaStream_t raw = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&raw, cudaStreamNonBlocking), cudaSuccess);
  EXPECT_EQ(cudaLaunchKernel(cuda_double::symbol_of(set<106>), 1, 1, arguments, 0, raw), cudaErrorLaunchOutOfResources);
  EXPECT_EQ(cudaGetLastError(), cudaErrorLaunchOutOfResources);
  EXPECT_EQ(cudaStreamDestroy(raw), cudaSuccess);
}

TEST_F(Launch, ABlockThatNeedsMoreRegistersThanThereAreIsRefusedWithTheRemedy) {
  constexpr unsigned kThreads = 1024;
  cuda_double::KernelFacts facts = facts_of_set<107>();
  facts.registers = cuda_double::kRegisters / kThreads + 1;
  cuda_double::describe_library({facts});
  const Thrown thrown = thrown_by(
      [&] { launch(context, {.block = kThreads}, set<107>, word.data(), std::uint64_t{1}); });
  EXPECT_EQ(thrown.error, EINVAL);
  EXPECT_NE(thrown.what.find("__launch_bounds__(1024, 1)"), std::string::npos) << thrown.what;
  launch(context, {.block = kThreads / 2}, set<107>, word.data(), std::uint64_t{1});
  context.synchronize();
}

__global__ void use_shared(std::uint64_t* result, std::size_t bytes) {
  auto* const shared = dynamic_shared<unsigned char>();
  shared[bytes - 1] = 9;
  *result = shared[bytes - 1];
}

TEST_F(Launch, ABlockMayHaveAllTheDynamicSharedMemoryThatThereIs) {
  constexpr std::size_t kBytes = 227 << 10;
  launch(context, {.shared_bytes = kBytes}, use_shared, word.data(), kBytes);
  context.synchronize();
  EXPECT_EQ(word[0], 9u);
  EXPECT_EQ(thrown_by([&] { launch(context, {.shared_bytes = kBytes + 1}, use_shared, word.data(), kBytes); }).error,
            EINVAL);
  EXPECT_EQ(thrown_by([&] { launch(context, {.block = 2000}, use_shared, word.data(), kBytes); }).error, EINVAL);
}

}  // namespace
}  // namespace gpusock::cuda_test
