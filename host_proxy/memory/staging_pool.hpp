#pragma once
/// @file The host memory through which a context's device rings are copied: so many chunks, for all of its connections.

#include "host_proxy/memory/copier.hpp"
#include "host_proxy/memory/platform.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace gpusock::proxy {

/// Not thread-safe: the proxy's step uses it.
///
/// Nobody keeps a chunk from others for ever: what is copied into a ring ends by itself, and who only waits for the
/// network gives up what it holds when somebody else has need of it, since the ring still has the bytes.
class StagingPool {
 public:
  /// Whoever may hold chunks that it can do without.
  class Holder {
   public:
    virtual bool give_up_one() = 0;  ///< gives one chunk back, if it holds one of that kind

   protected:
    ~Holder() = default;
  };

  struct Sizes {
    std::size_t chunks = 64;
    std::size_t chunk_bytes = 64 << 10;  ///< a copy's size at most: long enough to be worth starting
  };

  /// Throws Error (ENOMEM).
  StagingPool(std::shared_ptr<Platform> platform, std::unique_ptr<Copier> copier, Sizes sizes);
  ~StagingPool();
  StagingPool(const StagingPool&) = delete;
  StagingPool& operator=(const StagingPool&) = delete;

  Copier& copier() { return *copier_; }
  std::size_t chunk_bytes() const { return sizes_.chunk_bytes; }

  enum class Need { idle, urgent };
  /// A chunk, or nullptr while there is none to be had. Urgent: others give up what they can do without.
  std::byte* take(Need need);
  void give_back(std::byte* chunk) { free_.push_back(chunk); }

  /// Chunks that connections hold now.
  std::size_t held() const;

  /// Takes over a copy of a connection that is gone: the memory is kept until it has ended.
  void keep_until_ended(Copier::Copy copy, std::shared_ptr<void> memory) {
    give_back_after(nullptr, copy, std::move(memory));
  }
  /// The same of a copy that uses a chunk.
  void give_back_after(std::byte* chunk, Copier::Copy copy, std::shared_ptr<void> ring) {
    ending_.push_back({chunk, copy, std::move(ring)});
  }
  /// Takes back what these two were told of, where the copies have ended.
  void collect();

  /// Throws std::bad_alloc, and then has not added it.
  void add(Holder& holder) {
    promise_endings();
    holders_.push_back(&holder);
  }
  void remove(Holder& holder) {
    std::erase(holders_, &holder);
    --promises_;
  }

  /// For whoever may leave copies behind: makes room for them, so that keep_until_ended() and give_back_after() cannot
  /// fail. Until take_promise_back().
  void promise_endings() {
    ending_.reserve(ending_.size() + kCopiesOfOne * (promises_ + 1));
    ++promises_;
  }
  void take_promise_back() { --promises_; }
  static constexpr std::size_t kCopiesOfOne = 4;  ///< copies that one connection's ring has under way, at most

 private:
  struct Ending {
    std::byte* chunk;
    Copier::Copy copy;
    std::shared_ptr<void> ring;
  };

  std::shared_ptr<Platform> platform_;
  Sizes sizes_;
  std::byte* memory_;
  std::vector<std::byte*> free_;
  std::vector<Ending> ending_;  // before the copier: it waits for the copies, then the rings may go
  std::vector<Holder*> holders_;
  std::size_t next_holder_ = 0;
  std::size_t promises_ = 0;
  std::unique_ptr<Copier> copier_;
};

}  // namespace gpusock::proxy
