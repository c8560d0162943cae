// A producer and a consumer thread over one ring: every byte arrives, in order, for 10^9 bytes (fewer under sanitizers,
// which are an order of magnitude slower).
#include "tests/support/ring_storage.hpp"
#include "tests/support/sanitized.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <thread>

namespace gpusock::ringbuf {
namespace {

constexpr std::uint64_t kBytes = kSanitized ? 50'000'000 : 1'000'000'000;

/// The stream's content: its 8-byte words count up, scrambled so that a word of another lap or offset is wrong.
constexpr std::uint64_t word_at(std::uint64_t offset) { return (offset / 8 + 1) * 0x9E3779B97F4A7C15u; }

/// Chunk sizes of both sides, in words: a small generator, so that they drift against each other.
class Chunks {
 public:
  Chunks(std::uint64_t seed, std::uint64_t words_max) : state_(seed), words_max_(words_max) {}
  std::uint64_t next_bytes() {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return 8 * (1 + (state_ >> 33) % words_max_);
  }

 private:
  std::uint64_t state_;
  std::uint64_t words_max_;
};

template <class Each>
void for_words(const RingSpans& spans, Each each) {
  for (const RingSpan& span : {spans.first, spans.second}) {
    for (std::uint64_t i = 0; i < span.bytes; i += 8) each(span.data + i);
  }
}

void produce(ByteProducer<> producer, std::uint64_t words_max) {
  Chunks chunks(1, words_max);
  for (std::uint64_t sent = 0; sent < kBytes;) {
    const std::uint64_t bytes = std::min(chunks.next_bytes(), kBytes - sent);
    while (producer.writable(bytes) < bytes) std::this_thread::yield();
    for_words(producer.spans(bytes), [&](std::byte* at) {
      const std::uint64_t word = word_at(sent);
      std::memcpy(at, &word, 8);
      sent += 8;
    });
    producer.commit(bytes);
  }
}

std::uint64_t consume(ByteConsumer<> consumer, std::uint64_t words_max) {
  Chunks chunks(2, words_max);
  std::uint64_t wrong = 0;
  for (std::uint64_t received = 0; received < kBytes;) {
    const std::uint64_t ready = consumer.readable(8);
    if (ready == 0) {
      std::this_thread::yield();
      continue;
    }
    const std::uint64_t bytes = std::min(ready / 8 * 8, chunks.next_bytes());
    for_words(consumer.spans(bytes), [&](const std::byte* at) {
      std::uint64_t word = 0;
      std::memcpy(&word, at, 8);
      wrong += word != word_at(received);
      received += 8;
    });
    consumer.release(bytes);
  }
  return wrong;
}

class RingStress : public testing::TestWithParam<std::uint64_t> {};

TEST_P(RingStress, EveryByteArrivesInOrder) {
  constexpr std::uint64_t kRingBytes = 64 << 10;
  RingStorage storage(kRingBytes, GetParam());
  std::thread producer(produce, storage.producer(), kRingBytes / 8 / 4);
  const std::uint64_t wrong = consume(storage.consumer(), kRingBytes / 8 / 4);
  producer.join();
  EXPECT_EQ(wrong, 0u);
}

INSTANTIATE_TEST_SUITE_P(Starts, RingStress, testing::Values(~std::uint64_t{0} - (1 << 20) + 1),
                         [](const auto&) { return "AcrossTheWrapOf2to64"; });

TEST(RingStressSmall, ARingOfEightBytesWorksToo) {
  RingStorage storage(8);
  constexpr int kRounds = 20'000;
  std::thread producer([half = storage.producer()]() mutable {
    for (int i = 0; i < kRounds; ++i) {
      while (half.writable(1) < 1) std::this_thread::yield();
      *half.spans(1).first.data = static_cast<std::byte>(i);
      half.commit(1);
    }
  });
  auto consumer = storage.consumer();
  int wrong = 0;
  for (int i = 0; i < kRounds; ++i) {
    while (consumer.readable(1) < 1) std::this_thread::yield();
    wrong += *consumer.spans(1).first.data != static_cast<std::byte>(i);
    consumer.release(1);
  }
  producer.join();
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace gpusock::ringbuf
