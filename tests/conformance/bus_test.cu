// What every link rests on: who sees a position that was published across the bus sees the bytes behind it, and who
// gives bytes back has read them. And: of a commit and a thread that falls asleep one sees the other.
#include "tests/conformance/bus_litmus.cuh"
#include "tests/conformance/litmus_data.hpp"
#include "tests/conformance/party.cuh"

#include "gpusock/context/context_impl.hpp"
#include "host_proxy/proxy/sleeper.hpp"

#include <atomic>
#include <chrono>
#include <cstring>
#include <vector>

namespace gpusock::conformance::bus {
namespace {

/// A ring between a kernel and this thread.
class Bus : public testing::Test {
 protected:
  Bus() {
    device_pattern_.copy_in(pattern_);
    const ringbuf::RingMemory memory{bytes_.data(), BusLitmus::kCapacity, 0};
    it_ = {memory,          &words_[0],        &words_[16], nullptr, device_pattern_.data(),
           scratch_.data(), litmus_messages(), &words_[32]};
  }

  /// Waits until `ready`; false where that takes longer than a test may.
  template <class Ready>
  static bool wait(Ready ready) {
    const auto until = std::chrono::steady_clock::now() + std::chrono::nanoseconds(kPatienceNs);
    while (!ready()) {
      if (std::chrono::steady_clock::now() > until) return false;
      std::this_thread::yield();
    }
    return true;
  }

  /// The kernel sends, this thread receives.
  void receive_from(void (*kernel)(BusLitmus), int threads) {
    launch(context_, {.grid = 1, .block = static_cast<unsigned>(threads)}, kernel, it_);
    ringbuf::ByteConsumer<> consumer(it_.memory, it_.committed, it_.consumed);
    std::vector<std::byte> got(BusLitmus::kMessageBytesMax);
    std::uint64_t different = 0;
    for (std::uint64_t message = 0; message < litmus_messages(); ++message) {
      const std::uint64_t bytes = BusLitmus::bytes_of(message);
      ASSERT_TRUE(wait([&] { return consumer.readable(bytes) >= bytes; })) << "message " << message;
      detail::copy_out(this_thread(), got.data(), consumer.spans(bytes));
      consumer.release(bytes);
      different += std::memcmp(got.data(), pattern_.data() + BusLitmus::begin_of(message), bytes) != 0 ? 1 : 0;
    }
    context_.synchronize();
    EXPECT_EQ(different, 0u) << "messages that came before their bytes";
    EXPECT_EQ(words_[32], 0u);
  }

  /// This thread sends, the kernel receives.
  void send_to(void (*kernel)(BusLitmus), int threads) {
    send_to(kernel, threads, {it_.memory, it_.committed, it_.consumed});
  }
  void send_to(void (*kernel)(BusLitmus), int threads, ringbuf::ByteProducer<> producer) {
    launch(context_, {.grid = 1, .block = static_cast<unsigned>(threads)}, kernel, it_);
    for (std::uint64_t message = 0; message < litmus_messages(); ++message) {
      const std::uint64_t bytes = BusLitmus::bytes_of(message);
      ASSERT_TRUE(wait([&] { return producer.writable(bytes) >= bytes; })) << "message " << message;
      detail::copy_in(this_thread(), producer.spans(bytes), pattern_.data() + BusLitmus::begin_of(message));
      producer.commit(bytes);
    }
    context_.synchronize();
    EXPECT_EQ(words_[32], 0u) << "bytes that were not there behind their position";
  }

  Context context_{from_environment(Options())};
  const std::vector<std::byte> pattern_ = litmus_pattern();
  Mapped<std::byte> bytes_{context_, BusLitmus::kCapacity};
  Mapped<std::uint64_t> words_{context_, 48};
  DeviceBuffer<std::byte> device_pattern_{context_, BusLitmus::kPatternBytes};
  DeviceBuffer<std::byte> scratch_{context_, BusLitmus::kMessageBytesMax};
  BusLitmus it_;
};

TEST_F(Bus, AThreadsBytesComeBeforeItsPosition) { receive_from(litmus_thread_sends, 1); }
TEST_F(Bus, ABlocksBytesComeBeforeItsLeadersPosition) { receive_from(litmus_block_sends, 96); }
TEST_F(Bus, AThreadSeesTheBytesBehindAPosition) { send_to(litmus_thread_receives, 1); }
TEST_F(Bus, ABlockSeesTheBytesBehindItsLeadersPosition) { send_to(litmus_block_receives, 96); }

/// The kernel polls the position in its own memory, into which this thread stores it through a mapping (X1). The bytes
/// are in host memory, or come the same way.
class BusOfBarWrites : public Bus {
 protected:
  void SetUp() override {
    try {
      window_ = context_.impl().held->platform->make_window(kPage + BusLitmus::kCapacity);
    } catch (const Error& error) {
      GTEST_SKIP() << error.what();
    }
  }

  void send_to_poller(void (*kernel)(BusLitmus), int threads, bool posts_bytes) {
    it_.committed = reinterpret_cast<std::uint64_t*>(window_->device());
    if (posts_bytes) it_.memory.data = window_->device() + kPage;
    ringbuf::RingMemory memory = it_.memory;
    if (posts_bytes) memory.data = window_->mapping() + kPage;
    auto* const bar_word = reinterpret_cast<std::uint64_t*>(window_->mapping());
    send_to(kernel, threads, {memory, &words_[0], it_.consumed, 0, {bar_word, true}});
  }

 private:
  static constexpr std::size_t kPage = 4096;
  std::unique_ptr<proxy::DeviceWindow> window_;
};

TEST_F(BusOfBarWrites, AThreadSeesTheBytesBehindAPosition) { send_to_poller(litmus_thread_receives, 1, false); }
TEST_F(BusOfBarWrites, ABlockSeesTheBytesBehindAPosition) { send_to_poller(litmus_block_receives, 96, false); }
TEST_F(BusOfBarWrites, AThreadSeesBarWrittenBytesBehindAPosition) { send_to_poller(litmus_thread_receives, 1, true); }
TEST_F(BusOfBarWrites, ABlockSeesBarWrittenBytesBehindAPosition) { send_to_poller(litmus_block_receives, 96, true); }

/// Store buffering, which x86 has too: without the fences (E1, E2) each may miss the other. Both come to each meeting
/// at the same time, and their words lie apart, as otherwise one store after the other would have the line.
TEST(BusOfThreads, ACommitIsSeenOrItsThreadRings) {
  struct Meeting {
    alignas(ringbuf::kWordStride) proxy::Sleeper sleeper;
    alignas(ringbuf::kWordStride) std::uint64_t committed = 0;
    alignas(ringbuf::kWordStride) bool rings = false;
    alignas(ringbuf::kWordStride) bool seen = false;
  };
  struct alignas(ringbuf::kWordStride) Arrivals {
    std::atomic<std::size_t> count{0};

    void meet(const Arrivals& others) {
      const std::size_t mine = ++count;
      for (int spins = 0; others.count.load() < mine; ++spins) {
        if (spins > 1000) std::this_thread::yield();
      }
    }
  };
  std::vector<Meeting> meetings(static_cast<std::size_t>(scaled(20'000, 2'000)));
  Arrivals callers, sleepers;
  std::thread caller([&] {
    for (Meeting& one : meetings) {
      callers.meet(sleepers);
      detail::SystemRef(one.committed).store(1, ringbuf::kRelease);  // as P1
      one.rings = one.sleeper.must_be_rung(proxy::Sleeper::kWantsCommits);
    }
  });
  for (Meeting& one : meetings) {
    sleepers.meet(callers);
    one.sleeper.fall_asleep(proxy::Sleeper::kWantsCommits);
    one.seen = detail::SystemRef(one.committed).load(ringbuf::kRelaxed) != 0;
  }
  caller.join();
  std::size_t missed = 0;
  for (const Meeting& one : meetings) missed += one.rings || one.seen ? 0 : 1;
  EXPECT_EQ(missed, 0u) << "commits that nobody would have heard of";
}

}  // namespace
}  // namespace gpusock::conformance::bus
