#include "host_proxy/memory/segment.hpp"

#include "plain_types/error.hpp"
#include "host_proxy/base/log.hpp"
#include "host_proxy/base/signals.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <string>
#include <utility>

namespace gpusock::proxy {
namespace {

/// How far a connection's words start beyond the last known words of the connection before. It is more than a call that
/// came too late may have added.
constexpr std::uint64_t kStartsApart = 1 << 30;

Descriptor make_memory_file(std::size_t bytes) {
  const FileSizeSignalBlocked blocked;
  Descriptor file(memfd_create("gpusock", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!file) throw Error(errno, "memfd_create for a connection's rings; see ulimit -n");
  if (fchmod(file.get(), 0600) != 0 || ftruncate(file.get(), static_cast<off_t>(bytes)) != 0 ||
      fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    const int error = errno;
    throw Error(error, "sizing a connection's rings to " + std::to_string(bytes) + " bytes" +
                           (error == EFBIG ? "; see ulimit -f" : ""));
  }
  return file;
}

}  // namespace

Segment::Segment(std::shared_ptr<Platform> platform, std::uint64_t ring_bytes, RingPlacement placement)
    : platform_(std::move(platform)), ring_bytes_(ring_bytes), room_bytes_(ring_bytes), placement_(placement) {
  descriptor_ = make_memory_file(file_bytes());
  map();
}

Segment::Segment(std::shared_ptr<Platform> platform, Descriptor descriptor, std::uint64_t ring_bytes,
                 RingPlacement placement)
    : platform_(std::move(platform)),
      descriptor_(std::move(descriptor)),
      ring_bytes_(ring_bytes),
      room_bytes_(ring_bytes),
      placement_(placement) {
  struct stat facts {};
  const int seals = fcntl(descriptor_.get(), F_GET_SEALS);
  const bool known = fstat(descriptor_.get(), &facts) == 0;
  const bool is_private = known && facts.st_uid == geteuid() && (facts.st_mode & 0077) == 0;
  if (!is_ring_size(ring_bytes) || !is_private || facts.st_size != static_cast<off_t>(total_bytes(ring_bytes)) ||
      seals < 0 || (seals & F_SEAL_SHRINK) == 0) {
    throw Error(EPROTO, "the peer's shared memory has another size, owner or mode than agreed");
  }
  map();
}

Segment::Segment(std::shared_ptr<Platform> platform, std::byte* memory, std::uint64_t ring_bytes)
    : platform_(std::move(platform)),
      ring_bytes_(ring_bytes),
      room_bytes_(ring_bytes),
      placement_(RingPlacement::host),
      borrows_(true),
      base_(memory),
      rings_(memory + kHeaderBytes),
      proxy_rings_(rings_) {}

Segment::Segment(std::shared_ptr<Platform> platform, std::byte* memory, std::uint64_t ring_bytes,
                 const OnDevice& device)
    : platform_(std::move(platform)),
      ring_bytes_(ring_bytes),
      room_bytes_(ring_bytes),
      placement_(RingPlacement::device),
      borrows_(true),
      base_(memory),
      rings_(device.rings),
      proxy_rings_(platform_->proxy_address(rings_)),
      words_(device.words),
      start_(device.start) {}

std::size_t Segment::file_bytes() const {
  const bool in_file = placement_ == RingPlacement::host || platform_->device_memory_is_mappable();
  return in_file ? total_bytes(room_bytes_) : kHeaderBytes;
}

bool Segment::reachable_from(const Platform& callers, bool kernels) const {
  if (placement_ == RingPlacement::host || platform_->device_memory_is_mappable()) return true;
  return kernels && callers.reaches_device_memory_of(*platform_);
}

void Segment::map() {
  const std::size_t bytes = file_bytes();
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor_.get(), 0);
  if (memory == MAP_FAILED) {
    throw Error(errno, "mapping a connection's rings of " + std::to_string(bytes) + " bytes");
  }
  base_ = static_cast<std::byte*>(memory);
  try {
    attach();
  } catch (...) {
    munmap(base_, bytes);
    throw;
  }
}

void Segment::attach() {
  platform_->attach(base_, file_bytes());
  try {
    place_rings();
  } catch (...) {
    platform_->detach(base_, file_bytes());
    throw;
  }
}

void Segment::place_rings() {
  rings_ = base_ + kHeaderBytes;
  nic_word_ = &header().nic_committed.value;
  if (file_bytes() == kHeaderBytes) place_on_device();
  proxy_rings_ = placement_ == RingPlacement::device ? platform_->proxy_address(rings_) : rings_;
}

/// Allocates rings and words separately. A GPU gives its memory out in pieces of 2 MiB. Rings fill such pieces, and
/// words beside them would need one more; the GPU puts small allocations together.
void Segment::place_on_device() {
  std::byte* const rings = platform_->allocate_device(2 * room_bytes_);
  std::byte* words = nullptr;
  try {
    words = platform_->allocate_device(sizeof(OwnDeviceWords));
    platform_->zero_device(words, sizeof(OwnDeviceWords));
  } catch (...) {
    if (words != nullptr) platform_->free_device(words);
    platform_->free_device(rings);
    throw;
  }
  rings_ = rings;
  own_words_ = words;
  words_ = &reinterpret_cast<OwnDeviceWords*>(words)->shared;
  nic_word_ = &reinterpret_cast<OwnDeviceWords*>(words)->nic_committed.value;
  start_ = kStartsApart;
}

std::uint64_t* Segment::proxy_nic_word() const {
  if (words_ == nullptr) return nic_word_;  // in the header, which is the proxy's memory as well
  return reinterpret_cast<std::uint64_t*>(platform_->proxy_address(reinterpret_cast<std::byte*>(nic_word_)));
}

Segment::~Segment() {
  if (borrows_) return;
  if (own_words_ != nullptr) {
    platform_->free_device(own_words_);
    platform_->free_device(rings_);
  }
  platform_->detach(base_, file_bytes());
  munmap(base_, file_bytes());
}

void Segment::clear() {
  if (device_words() != nullptr && words_started_) start_ = start_after(header(), start_);
  std::memset(base_, 0, kHeaderBytes);
  words_started_ = false;
  ring_bytes_ = room_bytes_;
}

std::uint64_t Segment::start_after(SegmentHeader& words, std::uint64_t start) {
  for (SegmentHeader::Word* word : {&words.rx_committed, &words.tx_committed, &words.tx_consumed, &words.rx_consumed}) {
    // Relaxed: all who wrote it have closed (T2).
    start = std::max(start, ringbuf::SystemAtomics::Ref<std::uint64_t>(word->value).load(ringbuf::kRelaxed));
  }
  return std::min(start, kStartMax) + kStartsApart;
}

void Segment::start_words(std::uint64_t at_least) {
  start_ = std::max(start_, at_least);
  SegmentHeader& words = header();
  for (SegmentHeader::Word* word : {&words.rx_committed, &words.tx_consumed, &words.rx_consumed, &words.tx_committed}) {
    word->value = start_;
  }
  words_started_ = true;
}

SegmentPool::SegmentPool(std::shared_ptr<Platform> platform, RingSizes sizes, std::size_t made_at_once,
                         RingPlacement placement)
    : platform_(std::move(platform)), sizes_(sizes), placement_(placement), shelf_(std::make_shared<Shelf>()) {
  make_at_once(made_at_once, RingPlacement::host);
  if (placement == RingPlacement::host) return;
  const std::size_t affordable = static_cast<std::size_t>(kAutomaticBytesMax / (2 * sizes.shared));
  const std::size_t count = placement == RingPlacement::device ? made_at_once : std::min(made_at_once, affordable);
  try {
    make_at_once(count, RingPlacement::device);
  } catch (const Error& error) {
    if (placement == RingPlacement::device) throw;
    log_warn("rings in device memory for only " + std::to_string(shelf_->free[true].size()) + " of " +
             std::to_string(made_at_once) +
             " connections (GPUSOCK_RING=auto), the others' are in host memory: " + error.what());
  }
}

void SegmentPool::make_at_once(std::size_t count, RingPlacement where) {
  auto& free = shelf_->free[where == RingPlacement::device];
  free.reserve(count);
  while (free.size() < count) free.push_back(std::make_unique<Segment>(platform_, sizes_.shared, where));
}

std::shared_ptr<Segment> SegmentPool::take(Use use, std::uint64_t ring_bytes, RingPlacement placement) {
  if (platform_->attaches_any_time()) {
    try {
      auto segment = std::make_shared<Segment>(platform_, ring_bytes, placement);
      if (use == Use::own) end_sharing(*segment);
      return segment;
    } catch (const Error& error) {
      log_error(error.what());
      return nullptr;
    }
  }
  if (ring_bytes > sizes_.shared) {
    log_error("no rings of " + std::to_string(ring_bytes) + " bytes: this device's ring memory was set up for " +
              std::to_string(sizes_.shared) + "; raise Options::ring_bytes");
    return nullptr;
  }
  auto segment = take_kept(ring_bytes, placement == RingPlacement::device);
  if (segment == nullptr) log_error("all ring memory is in use; raise Options::connections_max");
  return segment;
}

std::shared_ptr<Segment> SegmentPool::try_take_on_device(std::uint64_t ring_bytes, bool kernels) {
  return placement_ == RingPlacement::automatic ? try_take_between_kernels(ring_bytes, kernels) : nullptr;
}

std::shared_ptr<Segment> SegmentPool::try_take_between_kernels(std::uint64_t ring_bytes, bool kernels) {
  const bool may = uses_device_memory(kernels) && keeps_memory();
  return may && ring_bytes <= sizes_.shared ? take_kept(ring_bytes, true) : nullptr;
}

std::shared_ptr<Segment> SegmentPool::take_kept(std::uint64_t ring_bytes, bool on_device) {
  Segment* segment = take_from_shelf(on_device);
  if (segment == nullptr) return nullptr;
  segment->limit(ring_bytes);
  return {segment, [shelf = shelf_, on_device](Segment* used) {
            used->clear();
            const std::lock_guard shelf_lock(shelf->mutex);
            shelf->free[on_device].emplace_back(used);  // it was there before, so there is room
          }};
}

std::shared_ptr<Segment> SegmentPool::require(std::uint64_t ring_bytes, RingPlacement placement) {
  auto segment = take(Use::own, ring_bytes, placement);
  if (segment == nullptr) throw Error(ENOBUFS, "no memory for another connection's rings");
  return segment;
}

ConnectionRings SegmentPool::take_rings(std::uint64_t wanted, bool kernels) {
  const std::uint64_t bytes = ring_bytes(Use::own, wanted);
  ConnectionRings rings;
  rings.link = require(bytes, RingPlacement::host);
  const RingPlacement placement = placement_for(kernels);
  rings.callers = placement == RingPlacement::host ? rings.link : require(bytes, placement);
  return rings;
}

bool SegmentPool::has_room(bool kernels) const {
  if (!keeps_memory()) return true;
  const bool on_device = placement_for(kernels) == RingPlacement::device;
  const std::lock_guard lock(shelf_->mutex);
  return !shelf_->free[false].empty() && (!on_device || !shelf_->free[true].empty());
}

Segment* SegmentPool::take_from_shelf(bool on_device) {
  const std::lock_guard lock(shelf_->mutex);
  auto& free = shelf_->free[on_device];
  if (free.empty()) return nullptr;
  Segment* segment = free.back().release();
  free.pop_back();
  return segment;
}

void SegmentPool::end_sharing(Segment& segment) const {
  if (!keeps_memory()) segment.close_descriptor();
}

std::shared_ptr<Segment> SegmentPool::map(int number, std::uint64_t ring_bytes) {
  Descriptor descriptor(number);
  if (!platform_->attaches_any_time()) {
    log_info("this device cannot map another process's rings while kernels run");
    return nullptr;
  }
  try {
    auto segment = std::make_shared<Segment>(platform_, std::move(descriptor), ring_bytes, placement_);
    end_sharing(*segment);
    return segment;
  } catch (const Error& error) {
    log_warn(error.what());
    return nullptr;
  }
}

}  // namespace gpusock::proxy
