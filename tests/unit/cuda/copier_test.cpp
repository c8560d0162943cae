// The copies by which the proxy reaches rings in device memory.
#include "gpusock/context/device.hpp"
#include "tests/unit/cuda/fixture.hpp"

#include <cstring>

namespace gpusock::cuda_test {
namespace {

constexpr std::size_t kRingBytes = 4096;

class Copies : public testing::Test {
 protected:
  ~Copies() override {
    copier.reset();
    platform->free_device(device);
    platform->free_shared(host, kRingBytes);
  }

  ringbuf::RingSpans ring() const {
    ringbuf::RingSpans spans{};
    spans.first.data = device;
    spans.first.bytes = 3000;
    spans.second.data = device + 3000;
    spans.second.bytes = kRingBytes - 3000;
    return spans;
  }
  proxy::Copier::State await(proxy::Copier::Copy copy) {
    proxy::Copier::State state;
    while ((state = copier->query(copy)) == proxy::Copier::State::busy) std::this_thread::yield();
    return state;
  }

  std::shared_ptr<proxy::Platform> platform = detail::make_device(small_options())->platform();
  std::unique_ptr<proxy::Copier> copier = platform->make_copier();
  std::byte* device = platform->allocate_device(kRingBytes);
  std::byte* host = static_cast<std::byte*>(platform->allocate_shared(kRingBytes));
};

TEST_F(Copies, BytesGoThereAndBack) {
  std::memset(host, 7, kRingBytes);
  EXPECT_EQ(await(copier->to_device(ring(), host)), proxy::Copier::State::done);
  std::memset(host, 0, kRingBytes);
  EXPECT_EQ(await(copier->to_host(host, ring())), proxy::Copier::State::done);
  EXPECT_EQ(host[0], std::byte{7});
  EXPECT_EQ(host[kRingBytes - 1], std::byte{7});
}

TEST_F(Copies, StartingACopyDoesNotWaitForIt) {
  proxy::Copier::Copy copy;
  {
    const cuda_double::SlowCopies slow;
    copy = copier->to_device(ring(), host);
    EXPECT_EQ(copier->query(copy), proxy::Copier::State::busy);
  }
  EXPECT_EQ(await(copy), proxy::Copier::State::done);
}

/// The proxy uses the memory again once a copy has failed.
TEST_F(Copies, NoCopyIsUnderWayThatIsSaidToHaveFailed) {
  for (std::uint64_t n = 1;; ++n) {
    std::memset(host, static_cast<int>(n), kRingBytes);
    proxy::Copier::Copy copy;
    bool failed = false;
    {
      const cuda_double::SlowCopies slow;
      cuda_double::fail_call(n);
      copy = copier->to_device(ring(), host);
      failed = copier->query(copy) == proxy::Copier::State::failed;
      const bool made_to_fail = !cuda_double::failed_call().empty();
      cuda_double::fail_call(0);
      EXPECT_TRUE(!failed || made_to_fail);
      EXPECT_TRUE(!failed || cuda_double::copies_under_way() == 0) << n;
      if (!made_to_fail) break;
    }
    if (!failed) await(copy);
  }
}

}  // namespace
}  // namespace gpusock::cuda_test
