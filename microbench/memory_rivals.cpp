#include "memory_rivals.hpp"

#include "host_side.hpp"
#include "sides.cuh"
#include "spin.hpp"

#include <algorithm>
#include <cstring>

namespace bench {
namespace {

/// One direction: the flag is the number of messages that were passed, and the latest message follows it. A small
/// message lies in the flag's cache line.
struct Box {
  explicit Box(std::uint64_t bytes) : words(1 + words_of(bytes) + kAlignmentWords) {
    auto address = reinterpret_cast<std::uintptr_t>(words.data());
    flag = reinterpret_cast<std::uint64_t*>((address + 127) / 128 * 128);
  }
  static constexpr std::uint64_t kAlignmentWords = 16;
  static constexpr std::uint64_t kClosed = ~std::uint64_t{0};

  std::vector<std::uint64_t> words;
  std::uint64_t* flag;
};

/// A wire (wire.cuh) for messages that go back and forth in turn: a box is empty when its sender sends.
///
///   label  operation              order    partner  data protected
///   B1     sender: store flag     release  B2       the message in the box
///   B2     receiver: load flag    acquire  B1       as B1; the way back orders the box's reuse
class BoxWire {
 public:
  BoxWire(Box& out, Box& in, std::uint64_t deadline_ns) : out_(out), in_(in), deadline_ns_(deadline_ns) {}

  std::int64_t send(const gpusock::ThisThread&, const void* data, std::uint64_t bytes) {
    std::memcpy(out_.flag + 1, data, bytes);
    Ref(*out_.flag).store(++sent_, cuda::memory_order_release);  // B1, pairs with B2
    return static_cast<std::int64_t>(bytes);
  }
  std::int64_t receive(const gpusock::ThisThread&, void* data, std::uint64_t bytes) {
    Spin spin(deadline_ns_);
    for (;;) {
      const std::uint64_t flag = Ref(*in_.flag).load(cuda::memory_order_acquire);  // B2, pairs with B1
      if (flag == Box::kClosed) return 0;
      if (flag != received_) break;
      if (!spin.turn()) return -ETIMEDOUT;
    }
    ++received_;
    std::memcpy(data, in_.flag + 1, bytes);
    return static_cast<std::int64_t>(bytes);
  }
  void close() { Ref(*out_.flag).store(Box::kClosed, cuda::memory_order_release); }

 private:
  using Ref = cuda::atomic_ref<std::uint64_t, cuda::thread_scope_system>;

  Box& out_;
  Box& in_;
  std::uint64_t deadline_ns_;
  std::uint64_t sent_ = 0;
  std::uint64_t received_ = 0;
};

class LineRival final : public Contestant {
 public:
  std::string name() const override { return "raw lines"; }
  std::string description() const override {
    return "memcpy and a flag word through shared cache lines, two host threads that spin";
  }

  Round run(const Job& job) override {
    Box there(job.bytes), back(job.bytes);
    const std::uint64_t deadline_ns = gpusock::clock_ns() + job.limit_ns;
    return run_on_two_threads(
        job,
        [&](const Memory& memory) {
          BoxWire wire(back, there, deadline_ns);
          echo(gpusock::this_thread(), wire, job, memory);
          wire.close();
        },
        [&](const Memory& memory) {
          BoxWire wire(there, back, deadline_ns);
          ping(gpusock::this_thread(), wire, job, memory);
          wire.close();
        });
  }
};

/// Makes the compiler assume that memory is read and written here.
void keep_copies() { asm volatile("" ::: "memory"); }

class CopyRival final : public Contestant {
 public:
  CopyRival(std::uint64_t ring_bytes, bool out) : ring_bytes_(ring_bytes != 0 ? ring_bytes : kRingBytes), out_(out) {}

  /// The buffer's size if the options give none.
  static constexpr std::uint64_t kRingBytes = 2 << 20;

  std::string name() const override { return out_ ? "memcpy in+out" : "memcpy in"; }
  std::string description() const override {
    return std::string("memcpy of each message into a buffer of the ring's size") + (out_ ? " and out again" : "") +
           ", one host thread";
  }

  Round run(const Job& job) override {
    // The buffer holds whole messages, at least one, so that each is one memcpy. It is about as large as the ring.
    const std::uint64_t messages = std::max<std::uint64_t>(1, ring_bytes_ / job.bytes);
    std::vector<char> ring(messages * job.bytes, 1), from(job.bytes, 2), to(job.bytes, 3);
    const std::uint64_t per_look = std::max<std::uint64_t>(1, kBytesPerLook / job.bytes);
    const std::uint64_t started_ns = gpusock::clock_ns();
    Round round;
    std::uint64_t index = 0;
    while (round.out.messages < job.messages_max && round.out.elapsed_ns < job.duration_ns) {
      for (std::uint64_t i = 0; i < per_look && round.out.messages < job.messages_max; ++i, ++round.out.messages) {
        char* const at = ring.data() + index * job.bytes;
        std::memcpy(at, from.data(), job.bytes);
        keep_copies();
        if (out_) std::memcpy(to.data(), at, job.bytes);
        keep_copies();
        index = index + 1 == messages ? 0 : index + 1;
      }
      round.out.elapsed_ns = gpusock::clock_ns() - started_ns;
    }
    return round;
  }

 private:
  std::uint64_t ring_bytes_;
  bool out_;
};

}  // namespace

std::unique_ptr<Contestant> make_line_rival() { return std::make_unique<LineRival>(); }
std::unique_ptr<Contestant> make_copy_in_rival(std::uint64_t ring_bytes) {
  return std::make_unique<CopyRival>(ring_bytes, false);
}
std::unique_ptr<Contestant> make_copy_in_out_rival(std::uint64_t ring_bytes) {
  return std::make_unique<CopyRival>(ring_bytes, true);
}

}  // namespace bench
