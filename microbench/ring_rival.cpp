// The rival of link=p2p for bandwidth between two processors: memcpy through a bare ring.
#include "memory_rivals.hpp"

#include "host_side.hpp"
#include "sides.cuh"
#include "spin.hpp"

#include <algorithm>
#include <cstring>

namespace bench {
namespace {

/// Bytes and two positions, each on cache lines of its own.
///
///   label  operation                   order    partner  data protected
///   R1     sender: store committed     release  R2       the bytes before it
///   R2     receiver: load committed    acquire  R1       as R1
///   R3     receiver: store consumed    release  R4       the receiver's reads before it
///   R4     sender: load consumed       acquire  R3       as R3
struct BareRing {
  explicit BareRing(std::uint64_t ring_bytes) : bytes(ring_bytes, 1) {}

  std::vector<char> bytes;
  alignas(128) std::uint64_t committed = 0;
  alignas(128) std::uint64_t consumed = 0;
  alignas(128) std::uint64_t ended = 0;
};

/// A wire (wire.cuh) on two bare rings.
class RingWire {
 public:
  RingWire(BareRing& out, BareRing& in, std::uint64_t deadline_ns) : out_(out), in_(in), deadline_ns_(deadline_ns) {}

  std::int64_t send(const gpusock::ThisThread&, const void* data, std::uint64_t bytes) {
    Spin spin(deadline_ns_);
    for (std::uint64_t done = 0; done < bytes;) {
      const std::uint64_t free = out_.bytes.size() -
                                 (sent_ - Ref(out_.consumed).load(cuda::memory_order_acquire));  // R4
      const std::uint64_t part = std::min({bytes - done, free, to_end(out_, sent_)});
      std::memcpy(out_.bytes.data() + sent_ % out_.bytes.size(), static_cast<const char*>(data) + done, part);
      sent_ += part;
      done += part;
      Ref(out_.committed).store(sent_, cuda::memory_order_release);  // R1
      if (part == 0 && !spin.turn()) return -ETIMEDOUT;
    }
    return static_cast<std::int64_t>(bytes);
  }

  std::int64_t receive_some(const gpusock::ThisThread&, void* data, std::uint64_t bytes) {
    Spin spin(deadline_ns_);
    for (;;) {
      const bool ended = Ref(in_.ended).load(cuda::memory_order_acquire) != 0;
      const std::uint64_t there = Ref(in_.committed).load(cuda::memory_order_acquire) - received_;  // R2
      if (there != 0) {
        const std::uint64_t part = std::min({bytes, there, to_end(in_, received_)});
        std::memcpy(data, in_.bytes.data() + received_ % in_.bytes.size(), part);
        received_ += part;
        Ref(in_.consumed).store(received_, cuda::memory_order_release);  // R3
        return static_cast<std::int64_t>(part);
      }
      if (ended) return 0;
      if (!spin.turn()) return -ETIMEDOUT;
    }
  }

  std::int64_t receive(const gpusock::ThisThread& thread, void* data, std::uint64_t bytes) {
    std::uint64_t done = 0;
    while (done < bytes) {
      const std::int64_t got = receive_some(thread, static_cast<char*>(data) + done, bytes - done);
      if (got < 0) return got;
      if (got == 0) break;
      done += static_cast<std::uint64_t>(got);
    }
    return static_cast<std::int64_t>(done);
  }

  void end_sending(const gpusock::ThisThread&) { Ref(out_.ended).store(1, cuda::memory_order_release); }
  void close(const gpusock::ThisThread& thread) { end_sending(thread); }

 private:
  using Ref = cuda::atomic_ref<std::uint64_t, cuda::thread_scope_system>;

  static std::uint64_t to_end(const BareRing& ring, std::uint64_t position) {
    return ring.bytes.size() - position % ring.bytes.size();
  }

  BareRing& out_;
  BareRing& in_;
  std::uint64_t deadline_ns_;
  std::uint64_t sent_ = 0;
  std::uint64_t received_ = 0;
};

class RingRival final : public Contestant {
 public:
  explicit RingRival(std::uint64_t ring_bytes) : ring_bytes_(ring_bytes != 0 ? ring_bytes : kDefaultRingBytes) {}

  std::string name() const override { return "memcpy between"; }
  std::string description() const override {
    return "memcpy into a bare ring and out of it, two host threads that spin";
  }

  Round run(const Job& job) override {
    BareRing there(ring_bytes_), back(ring_bytes_);
    const std::uint64_t deadline_ns = gpusock::clock_ns() + job.limit_ns;
    return run_on_two_threads(
        job,
        [&](const Memory& memory) {
          RingWire wire(back, there, deadline_ns);
          play_answerer(gpusock::this_thread(), wire, job, false, memory);
        },
        [&](const Memory& memory) {
          RingWire wire(there, back, deadline_ns);
          play_asker(gpusock::this_thread(), wire, job, true, memory);
        });
  }

 private:
  static constexpr std::uint64_t kDefaultRingBytes = 2 << 20;

  std::uint64_t ring_bytes_;
};

}  // namespace

std::unique_ptr<Contestant> make_ring_rival(std::uint64_t ring_bytes) {
  return std::make_unique<RingRival>(ring_bytes);
}

}  // namespace bench
