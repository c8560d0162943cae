// A kernel that fails ends the use of the GPU: all calls say so, and nothing hangs or crashes.
#include "tests/unit/cuda/fixture.hpp"

namespace gpusock::cuda_test {
namespace {

__global__ void fail() { throw std::runtime_error("on purpose"); }

class Faults : public testing::Test {
 protected:
  ~Faults() override { cuda_double::forget_fault(); }
};

TEST_F(Faults, AKernelsFaultIsReportedByAllCallsThatFollow) {
  const std::vector<std::string> before = cuda_double::left();
  {
    Context context(small_options());
    DeviceBuffer<int> buffer(context, 10);
    Mapped<int> mapped(context, 10);
    launch(context, {}, fail);
    EXPECT_EQ(thrown_by([&] { context.synchronize(); }).error, EFAULT);
    EXPECT_EQ(thrown_by([&] { context.synchronize(); }).error, EFAULT);
    EXPECT_EQ(thrown_by([&] { launch(context, {}, fail); }).error, EINVAL);
    EXPECT_EQ(thrown_by([&] { DeviceBuffer<int>(context, 1); }).error, ENOMEM);
    EXPECT_EQ(thrown_by([&] { buffer.copy_in(std::vector<int>(10)); }).error, EFAULT);
    EXPECT_EQ(thrown_by([&] { Context another(small_options()); }).error, ENODEV);
  }
  cuda_double::forget_fault();
  EXPECT_EQ(cuda_double::left().size(), before.size()) << "streams are kept";
}

/// The program's own next cudaGetLastError() is about its own calls.
TEST_F(Faults, ErrorsOfGpusockAreNotLeftForTheProgramToFind) {
  Context context(small_options());
  Stream stream(context);
  Mapped<std::uint64_t> word(context, 1);
  ASSERT_EQ(cudaGetLastError(), cudaSuccess);
  launch(context, {.stream = &stream}, wait_for<3>, word.data());
  EXPECT_FALSE(stream.idle());
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  raise(word[0]);
  context.synchronize();
  EXPECT_EQ(thrown_by([&] { launch(context, {.block = 2000}, wait_for<3>, word.data()); }).error, EINVAL);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
}

}  // namespace
}  // namespace gpusock::cuda_test
