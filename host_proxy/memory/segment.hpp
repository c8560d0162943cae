#pragma once
/// @file The memory of one connection: two rings and their words, in a memory file that another process can map; or, of
/// rings on a GPU, the words alone.

#include "gpusock/endpoint.hpp"
#include "gpusock/ring_placement.hpp"
#include "host_proxy/base/descriptor.hpp"
#include "host_proxy/memory/platform.hpp"
#include "host_proxy/memory/ring_sizes.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

namespace gpusock::proxy {

using gpusock::kRingBytesMax;
using gpusock::kRingBytesMin;

/// Two byte rings of equal capacity with their four words. Ring 0 carries bytes from the segment's maker to its peer,
/// ring 1 the other way. On the tcp link only the bytes are used; the words are the board's.
class Segment {
 public:
  static constexpr std::size_t kHeaderBytes = 4096;
  static std::size_t total_bytes(std::uint64_t ring_bytes) { return kHeaderBytes + 2 * ring_bytes; }

  /// A new one, in host or device memory. Throws Error (ENOMEM, EMFILE).
  Segment(std::shared_ptr<Platform> platform, std::uint64_t ring_bytes, RingPlacement placement = RingPlacement::host);
  /// Another process's, from its descriptor (taken over). Throws Error (EPROTO) unless it is exactly such a file that
  /// cannot shrink, of this user and for nobody else: a mapping of a file that shrinks would fault.
  Segment(std::shared_ptr<Platform> platform, int descriptor, std::uint64_t ring_bytes,
          RingPlacement placement = RingPlacement::host);
  /// The same; the descriptor is the caller's still where there is no memory for the segment.
  Segment(std::shared_ptr<Platform> platform, Descriptor& descriptor, std::uint64_t ring_bytes,
          RingPlacement placement);
  ~Segment();
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;

  int descriptor() const { return descriptor_; }
  /// Does it stay mapped, to be used again.
  bool is_kept() const { return !platform_->attaches_any_time(); }
  std::uint64_t ring_bytes() const { return ring_bytes_; }
  RingPlacement placement() const { return placement_; }
  /// Can callers of this kind, on this platform, use the rings.
  bool reachable_from(const Platform& callers, bool kernels) const;

  /// The device whose callers use it, or whose memory it is.
  Platform& platform() const { return *platform_; }

  /// A ring as the proxy knows it; in device memory its addresses are for the copier and a network card alone.
  ringbuf::RingMemory ring(int which) const { return {proxy_rings_ + which * room_bytes_, ring_bytes_}; }
  /// The same ring as callers know it.
  ringbuf::RingMemory callers_ring(int which) const { return {rings_ + which * room_bytes_, ring_bytes_}; }
  std::uint64_t* committed(int which) const { return word(2 * which); }
  std::uint64_t* consumed(int which) const { return word(2 * which + 1); }

  /// Uses only so much of each ring's room, until clear().
  void limit(std::uint64_t ring_bytes) { ring_bytes_ = ring_bytes; }

  /// Gives the descriptor up once nobody else is to map the memory; the mapping stays.
  void close_descriptor();

  /// Makes a used segment like new. Only when nobody else maps it.
  void clear();

 private:
  std::uint64_t* word(int which) const {
    return reinterpret_cast<std::uint64_t*>(base_ + which * ringbuf::kWordStride);
  }
  void map();
  void unmap() noexcept;
  void place_rings();
  /// Bytes of the file: without the rings where these cannot be in one.
  std::size_t file_bytes() const;

  std::shared_ptr<Platform> platform_;  // a peer's context may hold the segment longest
  int descriptor_;
  std::uint64_t ring_bytes_;
  std::uint64_t room_bytes_;  // for each ring: its capacity unless limited
  RingPlacement placement_;
  std::byte* base_ = nullptr;         // the file's memory: the header first
  std::byte* rings_ = nullptr;        // as callers know them
  std::byte* proxy_rings_ = nullptr;  // as the proxy does
};

/// Hands out segments. Where the platform attaches at any time they are made on demand; else a fixed number is made at
/// once (of the shared size), and used again.
class SegmentPool {
 public:
  SegmentPool(std::shared_ptr<Platform> platform, RingSizes sizes, std::size_t made_at_once,
              RingPlacement placement = RingPlacement::host);

  enum class Use { own, shared };  ///< shared: another process may be given its descriptor

  /// The capacity of rings for this use; `wanted` bytes where that is not 0.
  std::uint64_t ring_bytes(Use use, std::uint64_t wanted) const {
    return wanted != 0 ? wanted : use == Use::own ? sizes_.own : sizes_.shared;
  }

  Platform& platform() const { return *platform_; }

  /// Where rings are to be that kernels, or host threads, use. In device memory where that was chosen and they reach
  /// it.
  RingPlacement placement_for(bool kernels) const {
    return kernels || platform_->device_memory_is_mappable() ? placement_ : RingPlacement::host;
  }

  /// A segment with rings of this capacity, or nullptr when there is none to be had (logged). It goes back by itself.
  std::shared_ptr<Segment> take(Use use, std::uint64_t ring_bytes, RingPlacement placement = RingPlacement::host);

  /// True if no segment is in use, and no context that used one is still giving it back.
  bool has_all() const { return shelf_.use_count() == 1; }

  /// False while all segments of a fixed number are in use.
  bool has_room(RingPlacement placement) const;

  /// Can callers of this context use a segment of this process.
  bool can_use(const Segment& segment, bool kernels) const { return segment.reachable_from(*platform_, kernels); }

  /// Nobody else will map it: an open connection costs no descriptor besides its stream's.
  void settle(Segment& segment) const;

  /// Is memory made once and used again, so that it never stops being mapped.
  bool keeps_memory() const { return !platform_->attaches_any_time(); }

  /// Maps another process's; nullptr where that cannot be done (logged). Takes the descriptor over.
  std::shared_ptr<Segment> map(int descriptor, std::uint64_t ring_bytes);

 private:
  struct Shelf {  // outlives the pool as long as a segment does; a peer's context gives back on its own thread
    std::mutex mutex;
    std::vector<std::unique_ptr<Segment>> free[2];  // in host memory, in device memory
  };

  Segment* take_from_shelf(bool on_device);

  std::shared_ptr<Platform> platform_;
  RingSizes sizes_;
  RingPlacement placement_;
  std::shared_ptr<Shelf> shelf_;
};

}  // namespace gpusock::proxy
