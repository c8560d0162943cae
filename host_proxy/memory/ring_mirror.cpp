#include "host_proxy/memory/ring_mirror.hpp"

#include <algorithm>
#include <cerrno>
#include <utility>

namespace gpusock::proxy {
namespace {

using Atomics = ringbuf::SystemAtomics;

}  // namespace

RingMirror::RingMirror(DeviceCopies& copies, std::shared_ptr<void> memory, To to, const Rings& rings,
                       std::uint64_t* source_committed, std::uint64_t* target_committed, std::uint64_t* target_bar_word,
                       std::uint64_t start)
    : copies_(copies),
      memory_(std::move(memory)),
      to_(to),
      rings_(rings),
      source_committed_(source_committed),
      target_committed_(target_committed),
      target_bar_word_(target_bar_word),
      copied_to_(start),
      started_to_(start) {
  copies_.add_ring();
}

RingMirror::~RingMirror() {
  for (unsigned i = 0; i < count_; ++i) {
    if (pending_[i].copying) copies_.keep_until_ended(pending_[i].copy, memory_);
  }
  copies_.remove_ring();
}

bool RingMirror::step() {
  const bool finished = finish_copies();
  return start_copies() || finished;
}

/// Copies end in any order. The position moves past a byte once all bytes before it have been copied as well.
bool RingMirror::finish_copies() {
  for (unsigned i = 0; i < count_; ++i) {
    Pending& pending = pending_[i];
    if (!pending.copying) continue;
    const Copier::State state = copies_.copier().query(pending.copy);
    if (state == Copier::State::busy) continue;
    pending.copying = false;
    if (state == Copier::State::failed) error_ = EIO;
  }
  const std::uint64_t before = copied_to_;
  while (error_ == 0 && count_ != 0 && !pending_[0].copying) {
    copied_to_ += pending_[0].bytes;
    pending_[0] = pending_[1];
    --count_;
  }
  if (copied_to_ == before) return false;
  Atomics::Ref<std::uint64_t>(*target_committed_).store(copied_to_, ringbuf::kRelease);  // P1, pairs with C1
  if (target_bar_word_ != nullptr) ringbuf::bar_write(target_bar_word_, copied_to_);
  return true;
}

bool RingMirror::start_copies() {
  if (error_ != 0) return false;
  const auto committed = Atomics::Ref<std::uint64_t>(*source_committed_).load(ringbuf::kAcquire);  // C1, pairs with P1
  if (committed - copied_to_ > rings_.host.capacity || committed - copied_to_ < started_to_ - copied_to_) {
    error_ = EPROTO;
    return false;
  }
  bool moved = false;
  while (count_ != pending_.size() && started_to_ != committed) {
    const std::uint64_t wanted = std::min(committed - started_to_, copies_.copy_bytes_max());
    const std::uint64_t bytes = rings_.host.spans(started_to_, wanted).first.bytes;  // to the ring's end
    pending_[count_++] = {bytes, start(bytes), true};
    started_to_ += bytes;
    moved = true;
  }
  return moved;
}

Copier::Copy RingMirror::start(std::uint64_t bytes) {
  std::byte* host = rings_.host.spans(started_to_, bytes).first.data;
  const ringbuf::RingSpans device = rings_.device.spans(started_to_, bytes);
  return to_ == To::host ? copies_.copier().to_host(host, device) : copies_.copier().to_device(device, host);
}

}  // namespace gpusock::proxy
