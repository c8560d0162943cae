#include "host_proxy/memory/staged_ends.hpp"

#include <algorithm>
#include <cerrno>
#include <utility>

namespace gpusock::proxy {
namespace {

using Need = StagingPool::Need;

/// The chunks of a connection that has no more use for them.
template <class Chunks>
void leave(Chunks& chunks, StagingPool& pool, const std::shared_ptr<void>& keeper) {
  for (const auto& chunk : chunks) {
    if (chunk.copying) {
      pool.give_back_after(chunk.memory, chunk.copy, keeper);
    } else {
      pool.give_back(chunk.memory);
    }
  }
  chunks.clear();
}

/// Asks how the copies stand, each until it has ended; true if one has. Sets `error` where one failed.
template <class Chunks>
bool query(Chunks& chunks, Copier& copier, int& error) {
  bool ended = false;
  for (auto& chunk : chunks) {
    if (!chunk.copying) continue;
    const Copier::State state = copier.query(chunk.copy);
    if (state == Copier::State::busy) continue;
    chunk.copying = false;
    ended = true;
    if (state == Copier::State::failed) error = EIO;
  }
  return ended;
}

}  // namespace

StagedSource::StagedSource(ringbuf::ByteConsumer<> ring, std::shared_ptr<void> keeper, StagingPool& pool)
    : ring_(ring), keeper_(std::move(keeper)), pool_(pool) {
  pool_.add(*this);
}

StagedSource::~StagedSource() {
  StagedSource::stop();
  pool_.remove(*this);
}

void StagedSource::stop() { leave(chunks_, pool_, keeper_); }

std::uint64_t StagedSource::ready(bool wanted) {
  moved_ = query(chunks_, pool_.copier(), error_);
  if (error_ != 0) return 0;
  const std::uint64_t committed = ring_.readable();
  if (committed == kRingCorrupt) return kRingCorrupt;
  committed_ = committed;
  start_copies(wanted);
  return chunks_.empty() || chunks_.front().copying ? 0 : chunks_.front().bytes - chunks_.front().sent;
}

void StagedSource::start_copies(bool wanted) {
  starved_ = false;
  while (!chunks_.full() && staged_ < committed_) {
    const Need need = wanted && chunks_.empty() ? Need::urgent : Need::idle;
    std::byte* memory = pool_.take(need);
    if (memory == nullptr) {
      starved_ = need == Need::urgent;
      return;
    }
    const std::uint64_t bytes = std::min<std::uint64_t>(committed_ - staged_, pool_.chunk_bytes());
    const auto copy = pool_.copier().to_host(memory, ring_.memory().spans(ring_.position() + staged_, bytes));
    chunks_.push({memory, bytes, 0, copy, true});
    staged_ += bytes;
    moved_ = true;
  }
}

ringbuf::RingSpans StagedSource::spans(std::uint64_t bytes) const {
  return {{chunks_.front().memory + chunks_.front().sent, bytes}, {}};
}

void StagedSource::release(std::uint64_t bytes) {
  Chunk& chunk = chunks_.front();
  ring_.release(bytes);
  chunk.sent += bytes;
  staged_ -= bytes;
  committed_ -= bytes;
  if (chunk.sent < chunk.bytes) return;
  pool_.give_back(chunk.memory);
  chunks_.pop_front();
}

/// The later chunk, if it is not being copied: the ring has its bytes still.
bool StagedSource::give_up_one() {
  if (chunks_.empty() || chunks_.back().copying) return false;
  staged_ -= chunks_.back().bytes - chunks_.back().sent;
  pool_.give_back(chunks_.back().memory);
  chunks_.pop_back();
  return true;
}

StagedSink::StagedSink(ringbuf::ByteProducer<> ring, std::shared_ptr<void> keeper, StagingPool& pool)
    : ring_(ring), keeper_(std::move(keeper)), pool_(pool) {
  pool_.add(*this);
}

StagedSink::~StagedSink() {
  StagedSink::stop();
  pool_.remove(*this);
}

void StagedSink::stop() {
  leave(chunks_, pool_, keeper_);
  give_up_one();
}

std::uint64_t StagedSink::room() {
  take_finished();
  starved_ = false;
  const std::uint64_t writable = ring_.writable();
  if (writable == kRingCorrupt) return kRingCorrupt;
  const std::uint64_t left = writable - staged_;
  full_ = left == 0;
  if (full_ || error_ != 0 || chunks_.full()) return 0;
  if (open_ == nullptr) open_ = pool_.take(Need::urgent);
  starved_ = open_ == nullptr;
  return starved_ ? 0 : std::min<std::uint64_t>(left, pool_.chunk_bytes());
}

/// What was copied has arrived, as far as nothing before it is still on its way.
void StagedSink::take_finished() {
  moved_ = query(chunks_, pool_.copier(), error_);
  while (!chunks_.empty() && !chunks_.front().copying && error_ == 0) {
    ring_.commit(chunks_.front().bytes);
    staged_ -= chunks_.front().bytes;
    pool_.give_back(chunks_.front().memory);
    chunks_.pop_front();
  }
}

void StagedSink::commit(std::uint64_t bytes) {
  const auto copy = pool_.copier().to_device(ring_.memory().spans(ring_.position() + staged_, bytes), open_);
  chunks_.push({open_, bytes, copy, true});
  staged_ += bytes;
  open_ = nullptr;
}

/// The chunk for what is read next, where nothing has been read.
bool StagedSink::give_up_one() {
  if (open_ == nullptr) return false;
  pool_.give_back(open_);
  open_ = nullptr;
  return true;
}

}  // namespace gpusock::proxy
