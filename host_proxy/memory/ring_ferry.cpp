#include "host_proxy/memory/ring_ferry.hpp"

#include <algorithm>
#include <cerrno>
#include <utility>

namespace gpusock::proxy {
namespace {

using Atomics = ringbuf::SystemAtomics;

}  // namespace

RingFerry::RingFerry(StagingPool& pool, std::shared_ptr<void> keeper, To to, const Rings& rings, std::uint64_t* filled,
                     std::uint64_t* brought, std::uint64_t start)
    : pool_(pool),
      keeper_(std::move(keeper)),
      to_(to),
      rings_(rings),
      filled_(filled),
      brought_(brought),
      brought_at_(start),
      started_at_(start) {
  pool_.promise_endings();
}

RingFerry::~RingFerry() {
  for (unsigned i = 0; i < count_; ++i) {
    if (flights_[i].copying) pool_.keep_until_ended(flights_[i].copy, keeper_);
  }
  pool_.take_promise_back();
}

bool RingFerry::step() {
  const bool landed = land();
  return take_off() || landed;
}

/// Copies end in any order; the position moves past a byte once all before it are there as well.
bool RingFerry::land() {
  for (unsigned i = 0; i < count_; ++i) {
    Flight& flight = flights_[i];
    if (!flight.copying) continue;
    const Copier::State state = pool_.copier().query(flight.copy);
    if (state == Copier::State::busy) continue;
    flight.copying = false;
    if (state == Copier::State::failed) error_ = EIO;
  }
  const std::uint64_t before = brought_at_;
  while (error_ == 0 && count_ != 0 && !flights_[0].copying) {
    brought_at_ += flights_[0].bytes;
    flights_[0] = flights_[1];
    --count_;
  }
  if (brought_at_ == before) return false;
  Atomics::Ref<std::uint64_t>(*brought_).store(brought_at_, ringbuf::kRelease);  // P1, pairs with C1
  return true;
}

bool RingFerry::take_off() {
  if (error_ != 0) return false;
  const auto filled = Atomics::Ref<std::uint64_t>(*filled_).load(ringbuf::kAcquire);  // C1, pairs with P1
  if (filled - brought_at_ > rings_.host.capacity || filled - brought_at_ < started_at_ - brought_at_) {
    error_ = EPROTO;
    return false;
  }
  bool moved = false;
  while (count_ != flights_.size() && started_at_ != filled) {
    const std::uint64_t wanted = std::min<std::uint64_t>(filled - started_at_, pool_.chunk_bytes());
    const std::uint64_t bytes = rings_.host.spans(started_at_, wanted).first.bytes;  // to the ring's end
    flights_[count_++] = {bytes, start(bytes), true};
    started_at_ += bytes;
    moved = true;
  }
  return moved;
}

Copier::Copy RingFerry::start(std::uint64_t bytes) {
  std::byte* host = rings_.host.spans(started_at_, bytes).first.data;
  const ringbuf::RingSpans device = rings_.device.spans(started_at_, bytes);
  return to_ == To::host ? pool_.copier().to_host(host, device) : pool_.copier().to_device(device, host);
}

}  // namespace gpusock::proxy
