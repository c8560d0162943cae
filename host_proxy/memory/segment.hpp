#pragma once
/// @file The memory of one connection: two rings and their words, in a memory file that another process can map; or, of
/// rings on a GPU, the words alone.

#include "plain_types/endpoint.hpp"
#include "plain_types/ring_placement.hpp"
#include "host_proxy/base/descriptor.hpp"
#include "host_proxy/memory/platform.hpp"
#include "host_proxy/memory/ring_sizes.hpp"
#include "host_proxy/memory/segment_header.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace gpusock::proxy {

/// The memory of two rings.
struct RingMemories {
  ringbuf::RingMemory tx;
  ringbuf::RingMemory rx;
};

/// Two byte rings of equal capacity, after a header with words. Rings in device memory that no process maps have
/// DeviceWords as well. What is called tx and rx is so for the segment's maker;
/// another process that maps it (p2p) sends on rx.
class Segment {
 public:
  static constexpr std::size_t kHeaderBytes = sizeof(SegmentHeader);
  static std::size_t total_bytes(std::uint64_t ring_bytes) { return kHeaderBytes + 2 * ring_bytes; }

  /// A new one, in host or device memory. Throws Error (ENOMEM, EMFILE).
  Segment(std::shared_ptr<Platform> platform, std::uint64_t ring_bytes, RingPlacement placement = RingPlacement::host);
  /// Another process's, from its descriptor. Throws Error (EPROTO) unless the file has exactly this size, is this
  /// user's, is open to no other user, and cannot shrink (a mapping of a file that shrinks would fault).
  Segment(std::shared_ptr<Platform> platform, Descriptor descriptor, std::uint64_t ring_bytes,
          RingPlacement placement = RingPlacement::host);
  /// One in `memory` of total_bytes(ring_bytes), which is attached and somebody else's, and outlives it
  /// (host_rings.hpp).
  Segment(std::shared_ptr<Platform> platform, std::byte* memory, std::uint64_t ring_bytes);
  /// One whose header is in `memory`, with rings and words in device memory, all of it somebody else's (arenas.hpp).
  /// The words stand at `start` at first.
  struct OnDevice {
    std::byte* rings;
    DeviceWords* words;
    std::uint64_t start;
  };
  Segment(std::shared_ptr<Platform> platform, std::byte* memory, std::uint64_t ring_bytes, const OnDevice& device);
  ~Segment();
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;

  /// -1 once it is given up.
  int descriptor() const { return descriptor_.get(); }
  /// True if it stays mapped when its connection has ended, to be used again: what the platform maps only at first, and
  /// a part of memory that somebody else maps (host rings).
  bool is_kept() const { return borrows_ || !platform_->attaches_any_time(); }
  std::uint64_t ring_bytes() const { return ring_bytes_; }
  RingPlacement placement() const { return placement_; }
  /// True if callers of this kind, on this platform, can use the rings.
  bool reachable_from(const Platform& callers, bool kernels) const;

  /// The device whose callers use it, or whose memory it is.
  Platform& platform() const { return *platform_; }

  /// The rings as the proxy knows them; in device memory the addresses are for the copier and a NIC alone.
  RingMemories proxy_rings() const { return rings_at(proxy_rings_); }
  /// The same rings as callers know them.
  RingMemories callers_rings() const { return rings_at(rings_); }
  SegmentHeader& header() const { return *reinterpret_cast<SegmentHeader*>(base_); }
  /// As kernels reach them; nullptr if all words are in the header.
  DeviceWords* device_words() const { return words_; }
  /// The word that a peer's NIC writes for kernels to poll, as they reach it. Of rings in device memory of its own.
  std::uint64_t* nic_word() const { return nic_word_; }
  /// The same as the proxy knows it, as proxy_rings().
  std::uint64_t* proxy_nic_word() const;
  /// Sets the header's words of p2p to start(), before kernels use them. `at_least`: where start() is to be, unless it
  /// is later already.
  void start_words(std::uint64_t at_least = 0);
  /// Where the words of p2p stand at first: 0, or more than all that device words may hold from connections before.
  std::uint64_t start() const { return start_; }

  /// The position at which the next connection that uses the same device words may start: beyond all positions that
  /// these words may hold. `header` belongs to the connection before, which started at `start`.
  static std::uint64_t start_after(SegmentHeader& header, std::uint64_t start);
  /// A start that follows from valid words is never beyond this.
  static constexpr std::uint64_t kStartMax = std::uint64_t{1} << 62;

  /// Uses only `ring_bytes` of each ring's room, until clear().
  void limit(std::uint64_t ring_bytes) { ring_bytes_ = ring_bytes; }

  /// Closes the descriptor when no other process is to map the memory any more; the mapping stays.
  void close_descriptor() { descriptor_.reset(-1); }

  /// Makes a used segment like new. Only while no other process uses it.
  void clear();

 private:
  /// rx is the first: right after the header.
  RingMemories rings_at(std::byte* memory) const {
    return {{memory + room_bytes_, ring_bytes_}, {memory, ring_bytes_}};
  }
  void map();
  void attach();
  void place_rings();
  void place_on_device();
  /// Bytes of the file: without the rings where these cannot be in one.
  std::size_t file_bytes() const;

  std::shared_ptr<Platform> platform_;  // a peer's context may hold the segment longest
  Descriptor descriptor_;
  std::uint64_t ring_bytes_;
  std::uint64_t room_bytes_;  // for each ring: its capacity unless limited
  RingPlacement placement_;
  bool borrows_ = false;              // somebody else's memory
  std::byte* base_ = nullptr;         // the file's memory: the header first
  std::byte* rings_ = nullptr;        // as callers know them
  std::byte* proxy_rings_ = nullptr;  // as the proxy does
  std::byte* own_words_ = nullptr;    // OwnDeviceWords, where rings and words are in device memory of its own
  DeviceWords* words_ = nullptr;      // of p2p, where those are in device memory
  std::uint64_t* nic_word_ = nullptr;
  std::uint64_t start_ = 0;
  bool words_started_ = false;  // since it was made, or cleared
};

class HostRings;

/// The ring memory of one connection.
struct ConnectionRings {
  std::shared_ptr<Segment> callers;  ///< what callers use
  std::shared_ptr<Segment> link;     ///< what the link uses: the same, or host memory that a MirroredLink copies
  /// p2p between two GPUs: the peer's own, in the memory of its GPU. Its rx ring is this side's tx ring. Else nullptr.
  std::shared_ptr<Segment> peers;

  bool are_copied() const { return callers != link; }
  /// The rings as callers know them.
  RingMemories callers_rings() const {
    RingMemories rings = callers->callers_rings();
    if (peers != nullptr) rings.tx = peers->callers_rings().rx;
    return rings;
  }
  /// The link's rings as the proxy knows them.
  RingMemories link_rings() const {
    RingMemories rings = link->proxy_rings();
    if (peers != nullptr) rings.tx = peers->proxy_rings().rx;
    return rings;
  }
};

/// Hands out segments. Where the platform attaches at any time they are made on demand; else a fixed number is made at
/// once (of the shared size), and used again.
class SegmentPool {
 public:
  /// `placement`: where the rings of those callers lie that reach device memory. `automatic`: there on links that use
  /// it without copies (try_take_on_device()), at most kAutomaticBytesMax; then it is no error if there is less.
  SegmentPool(std::shared_ptr<Platform> platform, RingSizes sizes, std::size_t made_at_once,
              RingPlacement placement = RingPlacement::host);

  /// Nobody asked for device memory where placement is automatic: most of it stays the program's.
  static constexpr std::uint64_t kAutomaticBytesMax = 256 << 20;

  enum class Use { own, shared };  ///< shared: another process may be given its descriptor

  /// The capacity of rings for this use; `wanted` bytes where that is not 0.
  std::uint64_t ring_bytes(Use use, std::uint64_t wanted) const {
    return wanted != 0 ? wanted : use == Use::own ? sizes_.own : sizes_.shared;
  }

  /// The largest rings that a segment can have: a fixed number of segments are made of one size.
  std::uint64_t ring_bytes_max() const { return keeps_memory() ? sizes_.shared : ~std::uint64_t{0}; }

  Platform& platform() const { return *platform_; }

  /// Where rings are to be that kernels, or host threads, use on any link. In device memory where that was chosen and
  /// they reach it.
  RingPlacement placement_for(bool kernels) const {
    const bool reach = kernels || platform_->device_memory_is_mappable();
    return reach && placement_ == RingPlacement::device ? RingPlacement::device : RingPlacement::host;
  }
  /// True if these callers may use rings in device memory with kernels of another context, if each reaches the other's.
  bool uses_device_memory(bool kernels) const {
    return kernels && placement_ != RingPlacement::host && !platform_->device_memory_is_mappable();
  }
  /// How much of a device's memory is to be used for rings that other processes' kernels share.
  std::uint64_t arena_bytes_max() const {
    return placement_ == RingPlacement::automatic ? kAutomaticBytesMax : ~std::uint64_t{0};
  }
  /// Where the memory is to be that a peer is offered who may not reach device memory.
  RingPlacement placement_for_any_peer(bool kernels) const {
    return platform_->device_memory_is_mappable() ? placement_for(kernels) : RingPlacement::host;
  }

  /// A segment with rings of this capacity, or nullptr if there is none (logged). Its last owner gives it back.
  std::shared_ptr<Segment> take(Use use, std::uint64_t ring_bytes, RingPlacement placement = RingPlacement::host);

  /// Where placement is automatic: a segment in device memory for a link that carries bytes there without copies.
  /// nullptr if these callers do not reach such memory, or none is free.
  std::shared_ptr<Segment> try_take_on_device(std::uint64_t ring_bytes, bool kernels);
  /// The same for p2p between kernels, also where placement is device memory.
  std::shared_ptr<Segment> try_take_between_kernels(std::uint64_t ring_bytes, bool kernels);

  /// As take(), of this process's own use. Throws Error (ENOBUFS).
  std::shared_ptr<Segment> require(std::uint64_t ring_bytes, RingPlacement placement);
  /// Rings of `wanted` bytes (0: the default) for a link that reaches host memory alone. Throws Error (ENOBUFS).
  ConnectionRings take_rings(std::uint64_t wanted, bool kernels);

  /// True if no segment is in use, and no context that used one is still giving it back.
  bool has_all() const { return shelf_.use_count() == 1 && (host_rings_ == nullptr || host_rings_.use_count() == 1); }

  /// What other processes' contexts use with this one; nullptr if nothing. For life.
  void use_host_rings(std::shared_ptr<HostRings> rings) { host_rings_ = std::move(rings); }
  HostRings* host_rings() const { return host_rings_.get(); }
  /// It has none, and why: for those who ask why a connection does not use p2p.
  void have_no_host_rings(std::string why) { why_no_host_rings_ = std::move(why); }
  const std::string& why_no_host_rings() const { return why_no_host_rings_; }

  /// False while take_rings() has none of a fixed number.
  bool has_room(bool kernels) const;

  /// Nobody else will map it: an open connection costs no descriptor besides its stream's.
  void settle(Segment& segment) const;

  /// True if memory is made once and used again, so that it stays mapped.
  bool keeps_memory() const { return !platform_->attaches_any_time(); }

  /// Maps another process's; nullptr where that cannot be done (logged). Takes the descriptor over.
  std::shared_ptr<Segment> map(int descriptor, std::uint64_t ring_bytes);

 private:
  struct Shelf {  // outlives the pool as long as a segment does; a peer's context gives back on its own thread
    std::mutex mutex;
    std::vector<std::unique_ptr<Segment>> free[2];  // in host memory, in device memory
  };

  void make_at_once(std::size_t count, RingPlacement where);
  Segment* take_from_shelf(bool on_device);
  std::shared_ptr<Segment> take_kept(std::uint64_t ring_bytes, bool on_device);

  std::shared_ptr<Platform> platform_;
  RingSizes sizes_;
  RingPlacement placement_;
  std::shared_ptr<Shelf> shelf_;
  std::shared_ptr<HostRings> host_rings_;
  std::string why_no_host_rings_ = "off";
};

}  // namespace gpusock::proxy
