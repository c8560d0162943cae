// The byte ring (ringbuf/byte_ring.hpp): what is received is what was sent, whatever is stale and whoever runs when;
// bytes are plain memory, so overwriting one that is still being read, or reading one before it is written, is a race.
#include "cases.hpp"

#include "rdma/visibility.hpp"
#include "ringbuf/byte_ring.hpp"

#include <array>
#include <cstddef>
#include <string>

namespace gpusock::model {
namespace {

constexpr std::uint64_t kCapacity = 4;

/// Of the word that a NIC writes for kernels.
constexpr std::uint64_t kWordsBias = 0x1E3779B97F4A7C15;

/// Where counters start: at 0, and just below where 32 and 64 bits end.
constexpr std::array<std::uint64_t, 3> kStarts = {0, (std::uint64_t{1} << 32) - 2, ~std::uint64_t{0} - 1};

struct Ring {
  explicit Ring(std::uint64_t start)
      : committed(start),
        consumed(start),
        producer(memory(), &committed, &consumed, start),
        consumer(memory(), &committed, &consumed, start) {}
  ringbuf::RingMemory memory() { return {data, kCapacity, 0}; }

  std::byte data[kCapacity] = {};
  std::uint64_t committed, consumed;
  ringbuf::ByteProducer<> producer;
  ringbuf::ByteConsumer<> consumer;
  std::uint8_t next_in = 1, next_out = 1;
  std::string sizes;  // of what was received

  static std::byte& at(const ringbuf::RingSpans& spans, std::uint64_t i) {
    return i < spans.first.bytes ? spans.first.data[i] : spans.second.data[i - spans.first.bytes];
  }

  void put(std::uint64_t bytes) {
    const ringbuf::RingSpans to = producer.spans(bytes);
    for (std::uint64_t i = 0; i < bytes; ++i) at(to, i) = std::byte{next_in++};
    producer.commit(bytes);
  }

  void get(std::uint64_t bytes) {
    const ringbuf::RingSpans from = consumer.spans(bytes);
    for (std::uint64_t i = 0; i < bytes; ++i)
      require(at(from, i) == std::byte{next_out++}, "bytes come as they were sent");
    consumer.release(bytes);
  }

  void send(std::uint64_t bytes) {
    while (producer.writable(bytes) < bytes) give_way();
    put(bytes);
  }

  /// Takes what there is, at least a byte.
  std::uint64_t receive() {
    std::uint64_t there = 0;
    while ((there = consumer.readable(1)) == 0) give_way();
    require(there <= kCapacity, "no more arrives than the ring holds");
    get(there);
    return there;
  }
};

std::string start_name(std::uint64_t start) {
  return start == 0 ? "0" : (start < ~std::uint64_t{0} - 1 ? "2^32-2" : "2^64-2");
}

/// Everything is received: three times 2 bytes through a ring of 4, so that the last two are written over the first.
Case passes_all(std::uint64_t start) {
  return {"ring.passes_all_from_" + start_name(start),
          [start](Run& run) {
            auto& ring = run.make<Ring>(start);
            run.thread([&] {
              for (int i = 0; i < 3; ++i) ring.send(2);
            });
            run.thread([&] {
              for (std::uint64_t done = 0; done < 6;) {
                const std::uint64_t bytes = ring.receive();
                ring.sizes += static_cast<char>('0' + bytes);
                done += bytes;
              }
            });
            run.at_end([&] { return ring.sizes; });
          },
          {"222", "24", "42"}};
}

/// Nobody waits: each side takes what it finds. Sizes received, and what the producer found free at its second look.
Case looks_once(std::uint64_t start) {
  return {"ring.looks_once_from_" + start_name(start),
          [start](Run& run) {
            struct Looks : Ring {
              using Ring::Ring;
              std::uint64_t writable = 0;
            };
            auto& ring = run.make<Looks>(start);
            run.thread([&] {
              ring.put(3);
              ring.writable = ring.producer.writable();
              if (ring.writable >= 3) ring.put(3);
            });
            run.thread([&] {
              for (int i = 0; i < 2; ++i) {
                const std::uint64_t there = ring.consumer.readable();
                if (there != 0) ring.get(there);
                ring.sizes += static_cast<char>('0' + there);
              }
            });
            run.at_end([&] { return ring.sizes + " then " + std::to_string(ring.writable); });
          },
          {"00 then 1", "03 then 1", "03 then 4", "30 then 1", "30 then 4", "33 then 4"}};
}

/// Full by one byte: what does not fit waits, and positions say so.
Case full_by_one(std::uint64_t start) {
  return {"ring.full_by_one_from_" + start_name(start),
          [start](Run& run) {
            auto& ring = run.make<Ring>(start);
            run.thread([&] {
              ring.send(3);
              ring.send(1);
              ring.send(1);
            });
            run.thread([&] {
              for (std::uint64_t done = 0; done < 5;) {
                const std::uint64_t bytes = ring.receive();
                ring.sizes += static_cast<char>('0' + bytes);
                done += bytes;
              }
            });
            run.at_end([&] { return ring.sizes; });
          },
          {"311", "32", "41"}};
}

/// A look from aside (poll) at a ring that is in use says nothing that cannot be, and does not miss what its own thread
/// knows of.
Case glance() {
  return {"ring.glance",
          [](Run& run) {
            struct Glance : Ring {
              using Ring::Ring;
              std::uint64_t there = 0;
            };
            auto& ring = run.make<Glance>(0u);
            run.thread([&] { ring.send(2); });
            run.thread([&] {
              ring.there = ring.consumer.readable_at_a_glance();
              const std::uint64_t found = ring.consumer.readable();
              require(found >= ring.there, "what poll has seen recv finds");
              if (found != 0) ring.get(found);
              require(ring.consumer.readable_at_a_glance() == 0 || found == 0, "what was received is gone");
              ring.sizes = std::to_string(found);
            });
            run.at_end([&] { return std::to_string(ring.there) + " then " + ring.sizes; });
          },
          {"0 then 0", "0 then 2", "2 then 2"}};
}

/// A NIC writes bytes, and behind them a word (V6, and PCIe's order of posted writes: a release, as far as a CPU can
/// see).
Case written_by_a_nic() {
  return {"ring.written_by_a_nic",
          [](Run& run) {
            auto& ring = run.make<Ring>(0u);
            run.thread([&] {
              ring.data[0] = std::byte{7};
              ringbuf::SystemAtomics::Ref<std::uint64_t>(ring.committed).store(1, ringbuf::kRelease);
            });
            run.thread([&] {
              const std::uint64_t there = rdma::load_word_of_nic(ring.committed);
              if (there != 0) require(ring.data[0] == std::byte{7}, "who sees the word sees the bytes");
              ring.sizes = std::to_string(there);
            });
            run.at_end([&] { return ring.sizes; });
          },
          {"0", "1"}};
}

/// A NIC writes bytes and two words after them (V8): a kernel polls the first, which may hold anything at first, and
/// the proxy the second. The kernel may be ahead of what the proxy knows, and by a ring at most.
Case written_for_kernels_and_a_proxy(std::uint64_t left) {
  return {"ring.written_for_kernels_and_a_proxy_after_" + std::to_string(left),
          [left](Run& run) {
            struct Two : Ring {
              explicit Two(std::uint64_t word) : Ring(0) {
                committed = word;
                ringbuf::RingMemory kept = memory();
                kept.words_are_kept = true;
                kept.bias = kWordsBias;
                consumer = {kept, &committed, &consumed, 0};
              }
              std::uint64_t for_proxy = 0;
              std::string ahead;
            };
            auto& ring = run.make<Two>(left);
            using Ref = ringbuf::SystemAtomics::Ref<std::uint64_t>;
            run.thread([&] {
              for (std::uint8_t i = 1; i <= 3; ++i) {
                ring.data[i - 1] = std::byte{i};
                Ref(ring.committed).store(i + kWordsBias, ringbuf::kRelease);
                Ref(ring.for_proxy).store(i, ringbuf::kRelease);
              }
            });
            run.thread([&] {
              for (std::uint64_t done = 0; done < 3;) done += ring.receive();
            });
            run.thread([&] {
              const std::uint64_t consumed = Ref(ring.consumed).load(ringbuf::kAcquire);
              const std::uint64_t lead = consumed - rdma::load_word_of_nic(ring.for_proxy);
              const bool is_ahead = static_cast<std::int64_t>(lead) > 0;
              require(!is_ahead || lead <= kCapacity, "kernels are ahead by a ring at most");
              ring.ahead = is_ahead ? "ahead" : "";
            });
            run.at_end([&] { return ring.ahead; });
          },
          {"", "ahead"}};
}

}  // namespace

std::vector<Case> ring_cases() {
  std::vector<Case> all;
  for (const std::uint64_t start : kStarts) {
    all.push_back(passes_all(start));
    all.push_back(looks_once(start));
    all.push_back(full_by_one(start));
  }
  all.push_back(glance());
  all.push_back(written_by_a_nic());
  for (const std::uint64_t left : {0, 3}) all.push_back(written_for_kernels_and_a_proxy(left));
  return all;
}

}  // namespace gpusock::model
