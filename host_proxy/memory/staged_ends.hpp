#pragma once
/// @file The proxy's ends of rings in device memory: two chunks of staging memory for each direction, so that one is
/// copied while the other is on the network.
///
/// The rings' words move as if the link used the bytes in their place: space is given back when its bytes were handed
/// to the network, and bytes have arrived when their copy into the ring has ended. Copies may end in any order; bytes
/// keep theirs.

#include "host_proxy/memory/ring_ends.hpp"
#include "host_proxy/memory/staging_pool.hpp"

#include <array>
#include <memory>

namespace gpusock::proxy {

/// At most two chunks, the older one first.
template <class Chunk>
class ChunkPair {
 public:
  bool empty() const { return count_ == 0; }
  bool full() const { return count_ == 2; }
  Chunk& front() { return chunks_[0]; }
  const Chunk& front() const { return chunks_[0]; }
  Chunk& back() { return chunks_[count_ - 1]; }
  bool any_copying() const { return (count_ > 0 && chunks_[0].copying) || (count_ > 1 && chunks_[1].copying); }
  void push(const Chunk& chunk) { chunks_[count_++] = chunk; }
  void pop_front() {
    chunks_[0] = chunks_[1];
    --count_;
  }
  void pop_back() { --count_; }
  void clear() { count_ = 0; }
  Chunk* begin() { return chunks_.data(); }
  Chunk* end() { return chunks_.data() + count_; }

 private:
  std::array<Chunk, 2> chunks_{};
  unsigned count_ = 0;
};

class StagedSource final : public RingSource, private StagingPool::Holder {
 public:
  /// `keeper` keeps the ring's memory; `pool` outlives this.
  StagedSource(ringbuf::ByteConsumer<> ring, std::shared_ptr<void> keeper, StagingPool& pool);
  ~StagedSource() override;

  std::uint64_t ready(bool wanted) override;
  ringbuf::RingSpans spans(std::uint64_t bytes) const override;
  void release(std::uint64_t bytes) override;
  void stop() override;
  std::uint64_t position() const override { return ring_.position(); }
  bool drained() const override { return committed_ == 0; }
  bool watches() const override { return error_ == 0 && (starved_ || chunks_.any_copying()); }
  bool moved() const override { return moved_; }
  int error() const override { return error_; }

 private:
  struct Chunk {
    std::byte* memory;
    std::uint64_t bytes;
    std::uint64_t sent;
    Copier::Copy copy;
    bool copying;
  };

  void take_finished();
  void start_copies(bool wanted);
  bool give_up_one() override;

  ringbuf::ByteConsumer<> ring_;
  std::shared_ptr<void> keeper_;
  StagingPool& pool_;
  ChunkPair<Chunk> chunks_;
  std::uint64_t committed_ = 0;  // and not released, as last seen
  std::uint64_t staged_ = 0;     // of these, in the chunks
  bool starved_ = false;         // there was no chunk to be had
  bool moved_ = false;
  int error_ = 0;
};

class StagedSink final : public RingSink, private StagingPool::Holder {
 public:
  StagedSink(ringbuf::ByteProducer<> ring, std::shared_ptr<void> keeper, StagingPool& pool);
  ~StagedSink() override;

  std::uint64_t room() override;
  ringbuf::RingSpans spans(std::uint64_t bytes) const override { return {{open_, bytes}, {}}; }
  void commit(std::uint64_t bytes) override;
  void stop() override;
  std::uint64_t position() const override { return ring_.position(); }
  bool unread() override { return staged_ != 0 || ring_.writable() != ring_.memory().capacity; }
  bool drained() const override { return staged_ == 0 || error_ != 0; }
  bool full() const override { return full_; }
  bool watches() const override { return error_ == 0 && (starved_ || !chunks_.empty()); }
  bool moved() const override { return moved_; }
  int error() const override { return error_; }

 private:
  struct Chunk {
    std::byte* memory;
    std::uint64_t bytes;
    Copier::Copy copy;
    bool copying;
  };

  void take_finished();
  bool give_up_one() override;

  ringbuf::ByteProducer<> ring_;
  std::shared_ptr<void> keeper_;
  StagingPool& pool_;
  ChunkPair<Chunk> chunks_;
  std::byte* open_ = nullptr;  // a chunk for what is read next
  std::uint64_t staged_ = 0;   // bytes in the chunks
  bool full_ = false;
  bool starved_ = false;
  bool moved_ = false;
  int error_ = 0;
};

}  // namespace gpusock::proxy
