#include "gpusock/context/kernel_memory.hpp"

#include <algorithm>
#include <new>

namespace gpusock::detail {

KernelMemory::~KernelMemory() { free_all(freed_); }

void* KernelMemory::allocate(Kind kind, std::size_t bytes) {
  void* memory = kind == Kind::mapped ? device_.allocate_mapped(bytes) : device_.allocate(bytes);
  if (memory == nullptr) return nullptr;
  try {
    const std::lock_guard lock(mutex_);
    allocated_.emplace(memory, Piece{kind, bytes, launches_, 0});
  } catch (const std::bad_alloc&) {
    free_all({{memory, {kind}}});
    throw Error(ENOMEM, "allocating " + std::to_string(bytes) + " bytes for kernels");
  }
  return memory;
}

void KernelMemory::free(void* memory) noexcept {
  Pieces unused;
  {
    const std::lock_guard lock(mutex_);
    auto piece = allocated_.extract(memory);  // moved from map to map: nothing is allocated
    if (piece.empty()) return;
    piece.mapped().freed_after = launches_;
    if (forget_idle_streams() || refused_) take_unused(unused);
    (in_use(piece.mapped()) ? freed_ : unused).insert(std::move(piece));
  }
  free_or_keep(std::move(unused));
}

void KernelMemory::free_unused() noexcept {
  Pieces unused;
  {
    const std::lock_guard lock(mutex_);
    if (forget_idle_streams() || refused_) take_unused(unused);
  }
  free_or_keep(std::move(unused));
}

std::uint64_t KernelMemory::device_bytes() const {
  const std::lock_guard lock(mutex_);
  std::uint64_t bytes = 0;
  for (const auto& [memory, piece] : allocated_) bytes += piece.kind == Kind::device ? piece.bytes : 0;
  return bytes;
}

void KernelMemory::add(DeviceStream& stream) {
  const std::lock_guard lock(mutex_);
  streams_.emplace(&stream, Running{});
}

void KernelMemory::remove(DeviceStream& stream) noexcept {
  Pieces unused;
  {
    const std::lock_guard lock(mutex_);
    streams_.erase(&stream);
    forget_idle_streams();
    take_unused(unused);
  }
  free_or_keep(std::move(unused));
}

/// Called after the launch was queued, so that all counted launches of an idle stream have ended. Until it returns, its
/// caller still owns what the launch uses.
void KernelMemory::note_launch(DeviceStream& stream) noexcept {
  const std::lock_guard lock(mutex_);
  Running& running = streams_.find(&stream)->second;
  running.last = ++launches_;
  if (running.first == 0) running.first = running.last;
  may_run_.store(true, std::memory_order_relaxed);  // relaxed, as below: a hint
}

std::vector<DeviceStream*> KernelMemory::streams() const {
  const std::lock_guard lock(mutex_);
  std::vector<DeviceStream*> all;
  for (const auto& [stream, running] : streams_) all.push_back(stream);
  return all;
}

/// Forgets the launches of idle streams, which have ended. Returns true if there were any.
bool KernelMemory::forget_idle_streams() {
  bool any = false;
  for (auto& [stream, running] : streams_) {
    if (running.last == 0 || !stream->idle()) continue;
    running = {};
    any = true;
  }
  const bool may_run = std::any_of(streams_.begin(), streams_.end(),
                                   [](const auto& each) { return each.second.last != 0; });
  may_run_.store(may_run, std::memory_order_relaxed);
  return any;
}

bool KernelMemory::in_use(const Piece& piece) const {
  return std::any_of(streams_.begin(), streams_.end(), [&](const auto& stream) {
    const Running& running = stream.second;
    if (running.last == 0) return false;
    return running.first <= piece.freed_after && running.last > piece.allocated_after;
  });
}

void KernelMemory::take_unused(Pieces& unused) {
  refused_ = false;
  for (auto next = freed_.begin(); next != freed_.end();) {
    const auto piece = next++;
    if (!in_use(piece->second)) unused.insert(freed_.extract(piece));
  }
}

/// Frees these pieces; keeps those that cannot be freed without waiting. Called without the lock: freeing calls the
/// driver.
void KernelMemory::free_or_keep(Pieces pieces) noexcept {
  std::erase_if(pieces, [this](const auto& piece) {
    return device_.free_without_waiting(piece.first, piece.second.kind == Kind::mapped);
  });
  if (pieces.empty()) return;
  const std::lock_guard lock(mutex_);
  freed_.merge(pieces);  // nothing is allocated
  refused_ = true;
}

void KernelMemory::free_all(const Pieces& pieces) noexcept {
  for (const auto& [memory, piece] : pieces) {
    if (piece.kind == Kind::mapped) {
      device_.free_mapped(memory);
    } else {
      device_.free(memory);
    }
  }
}

}  // namespace gpusock::detail
