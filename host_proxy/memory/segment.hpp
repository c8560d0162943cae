#pragma once
/// @file The memory of one connection: two rings and their words, in a memory file that another process can map. If the
/// rings are in the memory of a GPU, the file has only the words.

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

/// Two byte rings of equal capacity, after a header with words. Rings in a GPU's memory have DeviceWords as well. The
/// names tx and rx are those of the segment's maker; another process that maps it (p2p) sends on rx.
class Segment {
 public:
  static constexpr std::size_t kHeaderBytes = sizeof(SegmentHeader);
  static std::size_t total_bytes(std::uint64_t ring_bytes) { return kHeaderBytes + 2 * ring_bytes; }

  /// A new segment, in host or device memory. Throws Error (ENOMEM, EMFILE).
  Segment(std::shared_ptr<Platform> platform, std::uint64_t ring_bytes, RingPlacement placement = RingPlacement::host);
  /// The segment of another process, from its descriptor. Throws Error (EPROTO) unless the file has exactly this size,
  /// is this user's, is open to no other user, and cannot shrink (a mapping of a file that shrinks would fault).
  Segment(std::shared_ptr<Platform> platform, Descriptor descriptor, std::uint64_t ring_bytes,
          RingPlacement placement = RingPlacement::host);
  /// A segment in `memory` of total_bytes(ring_bytes), which is attached, belongs to another object, and outlives the
  /// segment (host_rings.hpp).
  Segment(std::shared_ptr<Platform> platform, std::byte* memory, std::uint64_t ring_bytes);
  /// A segment whose header is in `memory`, with rings and words in device memory; all of it belongs to another object
  /// (arenas.hpp). At first the words are at `start`.
  struct OnDevice {
    std::byte* rings;
    DeviceWords* words;
    std::uint64_t start;
  };
  Segment(std::shared_ptr<Platform> platform, std::byte* memory, std::uint64_t ring_bytes, const OnDevice& device);
  ~Segment();
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;

  /// The memory file; -1 once it is closed.
  int descriptor() const { return descriptor_.get(); }
  /// True if the segment stays mapped after its connection, to be used again: if the platform attaches memory only at
  /// the start, or if the segment is a part of memory that another object maps (host rings).
  bool is_kept() const { return borrows_ || !platform_->attaches_any_time(); }
  std::uint64_t ring_bytes() const { return ring_bytes_; }
  RingPlacement placement() const { return placement_; }
  /// True if callers of this kind, on this platform, can use the rings.
  bool reachable_from(const Platform& callers, bool kernels) const;

  /// The device whose callers use it, or whose memory it is.
  Platform& platform() const { return *platform_; }

  /// The rings as the proxy knows them. Addresses in device memory are only for the copier and a NIC.
  RingMemories proxy_rings() const { return rings_at(proxy_rings_); }
  /// The same rings as callers know them.
  RingMemories callers_rings() const { return rings_at(rings_); }
  SegmentHeader& header() const { return *reinterpret_cast<SegmentHeader*>(base_); }
  /// The words in device memory, as kernels reach them; nullptr if all words are in the header.
  DeviceWords* device_words() const { return words_; }
  /// The word that a peer's NIC writes for kernels to poll, as they reach it; nullptr if the memory is borrowed.
  std::uint64_t* nic_word() const { return nic_word_; }
  /// The same word as the proxy knows it; see proxy_rings().
  std::uint64_t* proxy_nic_word() const;
  /// Raises start() to `at_least` if it is less. Then sets the header's words of p2p to start(), before kernels use
  /// them.
  void start_words(std::uint64_t at_least = 0);
  /// Where the words of p2p start: 0, or beyond all that device words may hold from connections before.
  std::uint64_t start() const { return start_; }

  /// The position at which the next connection that uses the same device words may start: beyond all positions that
  /// these words may hold. `header` belongs to the connection before, which started at `start`.
  static std::uint64_t start_after(SegmentHeader& header, std::uint64_t start);
  /// A start that follows from valid words is never beyond this.
  static constexpr std::uint64_t kStartMax = std::uint64_t{1} << 62;

  /// Uses only `ring_bytes` of each ring's room, until clear().
  void limit(std::uint64_t ring_bytes) { ring_bytes_ = ring_bytes; }

  /// Closes the descriptor; the mapping stays. Call it when no other process is to map the memory any more.
  void close_descriptor() { descriptor_.reset(-1); }

  /// Makes a used segment like new. Only while no other process uses it.
  void clear();

 private:
  /// The rx ring comes first, right after the header.
  RingMemories rings_at(std::byte* memory) const {
    return {{memory + room_bytes_, ring_bytes_}, {memory, ring_bytes_}};
  }
  void map();
  void attach();
  void place_rings();
  void place_on_device();
  /// Bytes of the file, without the rings if these cannot be in a file.
  std::size_t file_bytes() const;

  std::shared_ptr<Platform> platform_;  // a peer's context may hold the segment longest
  Descriptor descriptor_;
  std::uint64_t ring_bytes_;
  std::uint64_t room_bytes_;  // for each ring: its capacity unless limited
  RingPlacement placement_;
  bool borrows_ = false;              // the memory belongs to another object
  std::byte* base_ = nullptr;         // the file's memory: the header first
  std::byte* rings_ = nullptr;        // as callers know them
  std::byte* proxy_rings_ = nullptr;  // as the proxy knows them
  std::byte* own_words_ = nullptr;    // OwnDeviceWords, if rings and words are in device memory of its own
  DeviceWords* words_ = nullptr;      // the words of p2p, if they are in device memory
  std::uint64_t* nic_word_ = nullptr;
  std::uint64_t start_ = 0;
  bool words_started_ = false;  // start_words() was called since it was made, or cleared
};

class HostRings;

/// The ring memory of one connection.
struct ConnectionRings {
  std::shared_ptr<Segment> callers;  ///< what callers use
  std::shared_ptr<Segment> link;     ///< what the link uses: the same, or host memory that a MirroredLink copies
  /// p2p between two GPUs: the peer's segment, in its GPU's memory, whose rx ring is this side's tx ring. Else nullptr.
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

/// Hands out segments. If the platform attaches memory at any time, they are made on demand. Otherwise a fixed number
/// (of the shared size) is made at once, and used again.
class SegmentPool {
 public:
  /// Callers that reach device memory have their rings where `placement` says. With `automatic`, rings lie there on
  /// links that use it without copies (try_take_on_device()), at most kAutomaticBytesMax; less is no error.
  SegmentPool(std::shared_ptr<Platform> platform, RingSizes sizes, std::size_t made_at_once,
              RingPlacement placement = RingPlacement::host);

  /// With automatic placement rings take at most so much device memory: the program did not ask for it, and needs it.
  static constexpr std::uint64_t kAutomaticBytesMax = 256 << 20;

  enum class Use { own, shared };  ///< shared: another process may be given its descriptor

  /// The capacity of rings for this use: `wanted` bytes, unless that is 0.
  std::uint64_t ring_bytes(Use use, std::uint64_t wanted) const {
    return wanted != 0 ? wanted : use == Use::own ? sizes_.own : sizes_.shared;
  }

  /// The largest rings that a segment can have. A fixed number of segments have all one size.
  std::uint64_t ring_bytes_max() const { return keeps_memory() ? sizes_.shared : ~std::uint64_t{0}; }

  Platform& platform() const { return *platform_; }

  /// Where to put rings that kernels, or host threads, use on any link: in device memory if that was chosen and these
  /// callers reach it.
  RingPlacement placement_for(bool kernels) const {
    const bool reach = kernels || platform_->device_memory_is_mappable();
    return reach && placement_ == RingPlacement::device ? RingPlacement::device : RingPlacement::host;
  }
  /// True if these callers may share rings in device memory with another context's kernels, if each side reaches the
  /// other.
  bool uses_device_memory(bool kernels) const {
    return kernels && placement_ != RingPlacement::host && !platform_->device_memory_is_mappable();
  }
  /// How much of a device's memory may be used for rings that kernels of other processes share.
  std::uint64_t arena_bytes_max() const {
    return placement_ == RingPlacement::automatic ? kAutomaticBytesMax : ~std::uint64_t{0};
  }
  /// Where to put memory that is offered to a peer that may not reach device memory.
  RingPlacement placement_for_any_peer(bool kernels) const {
    return platform_->device_memory_is_mappable() ? placement_for(kernels) : RingPlacement::host;
  }

  /// A segment with rings of this capacity, or nullptr if there is none (logged). Its last owner gives it back.
  std::shared_ptr<Segment> take(Use use, std::uint64_t ring_bytes, RingPlacement placement = RingPlacement::host);

  /// If placement is automatic: a segment in device memory for a link that carries bytes there without copies. Returns
  /// nullptr if these callers do not reach such memory, or none is free.
  std::shared_ptr<Segment> try_take_on_device(std::uint64_t ring_bytes, bool kernels);
  /// The same for p2p between kernels, also if placement is device memory.
  std::shared_ptr<Segment> try_take_between_kernels(std::uint64_t ring_bytes, bool kernels);

  /// As take(), for this process alone. Throws Error (ENOBUFS) if there is none.
  std::shared_ptr<Segment> require(std::uint64_t ring_bytes, RingPlacement placement);
  /// Rings of `wanted` bytes (0: the default) for a link that reaches only host memory. Throws Error (ENOBUFS).
  ConnectionRings take_rings(std::uint64_t wanted, bool kernels);

  /// True if no segment is in use, and no context that used one is still giving it back.
  bool has_all() const { return shelf_.use_count() == 1 && (host_rings_ == nullptr || host_rings_.use_count() == 1); }

  /// Sets the host rings that this context shares with other processes, for the pool's life. host_rings(): nullptr if
  /// none.
  void use_host_rings(std::shared_ptr<HostRings> rings) { host_rings_ = std::move(rings); }
  HostRings* host_rings() const { return host_rings_.get(); }
  /// Notes why there are no host rings, for messages that say why a connection does not use p2p.
  void have_no_host_rings(std::string why) { why_no_host_rings_ = std::move(why); }
  const std::string& why_no_host_rings() const { return why_no_host_rings_; }

  /// False while take_rings() would find no free segment among a fixed number.
  bool has_room(bool kernels) const;

  /// Call it when no other process will map the segment: an open connection then costs no descriptor besides its
  /// stream's.
  void end_sharing(Segment& segment) const;

  /// True if memory is made once and used again, so that it stays mapped.
  bool keeps_memory() const { return !platform_->attaches_any_time(); }

  /// Maps another process's segment; nullptr if that is impossible (logged). Takes over the descriptor.
  std::shared_ptr<Segment> map(int descriptor, std::uint64_t ring_bytes);

 private:
  struct Shelf {  // lives as long as the pool and all segments; a peer's context gives back on its own thread
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
