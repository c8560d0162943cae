#include "host_proxy/links/fabric/channel.hpp"

#include "gpusock/error.hpp"
#include "host_proxy/base/log.hpp"
#include "host_proxy/links/fabric/peer.hpp"
#include "ringbuf/atomics.hpp"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <string>

namespace gpusock::proxy::fabric {
namespace {

using Ref = ringbuf::SystemAtomics::Ref<std::uint64_t>;

std::unique_ptr<Registration> checked(std::unique_ptr<Registration> registration, int error) {
  if (registration == nullptr) {
    throw Error(error,
                "registering a connection's rings with the fabric" +
                    std::string(error == ENOMEM ? "; the limit on locked memory may be too low (ulimit -l)" : ""));
  }
  return registration;
}

}  // namespace

FabricChannel::FabricChannel(std::shared_ptr<FabricPeer> peer, std::shared_ptr<Segment> segment)
    : peer_(std::move(peer)) {
  memory_.segment = std::move(segment);
  const RingMemories rings = memory_.segment->proxy_rings();
  SegmentHeader& header = memory_.segment->header();
  int error = 0;
  FabricPort& port = peer_->port();
  const MemoryPlace place{};
  memory_.target = checked(
      port.register_memory({reinterpret_cast<std::byte*>(&header.peer_credit), sizeof(Credit) + rings.rx.capacity},
                           Access::remote_target, place, error),
      error);
  if (port.registers_sources()) {
    auto* const base = reinterpret_cast<std::byte*>(&header);
    const auto bytes = static_cast<std::size_t>(rings.tx.data + rings.tx.capacity - base);
    memory_.source = checked(port.register_memory({base, bytes}, Access::local_source, place, error), error);
  }
  header.peer_credit = {};
  index_ = peer_->add(*this);
}

FabricChannel::~FabricChannel() {
  peer_->remove(index_, std::move(memory_), settled_, std::popcount(busy_) + (credit_busy_ ? 1 : 0));
}

Grant FabricChannel::grant() const {
  Grant grant;
  const auto address = peer_->port().address();
  grant.index = static_cast<std::uint16_t>(index_);
  grant.address_bytes = static_cast<std::uint16_t>(std::min(address.size(), grant.address.size()));
  grant.ring_bytes = memory_.segment->ring_bytes();
  grant.memory_address = memory_.target->address();
  grant.memory_key = memory_.target->key();
  std::copy_n(address.begin(), grant.address_bytes, grant.address.begin());
  return grant;
}

int FabricChannel::take_grant(const Grant& grant) {
  const bool size_ok = std::has_single_bit(grant.ring_bytes) && grant.ring_bytes >= kRingBytesMin &&
                       grant.ring_bytes <= kRingBytesMax;
  if (granted_ || !size_ok || grant.index >= kConnectionsMax || grant.address_bytes == 0 ||
      grant.address_bytes > grant.address.size()) {
    return EPROTO;
  }
  const int found = peer_->find_address(std::span(grant.address).first(grant.address_bytes), remote_peer_);
  if (found != 0) return found == -ENOMEM ? ENOMEM : EPROTO;
  remote_ = grant;
  granted_ = true;
  return 0;
}

void FabricChannel::fail(int error, const std::string& reason) {
  if (error_ != 0) return;
  error_ = error;
  try_log(LogLevel::warn, [&] {
    return "a fabric connection (" + peer_->name() + ") ended: " + (reason.empty() ? std::strerror(error) : reason);
  });
  wake();
}

bool FabricChannel::take_news() {
  const bool news = news_;
  news_ = false;
  return news;
}

void FabricChannel::wake() {
  news_ = true;
  retry();
}

bool FabricChannel::can_send() const {
  return granted_ && error_ == 0 && chunks_sent_ - peers_.chunks < kChunksMax &&
         (busy_ >> chunks_sent_ % kWindow & 1) == 0 && chunks_sent_ - chunks_given_back_ < kWindow;
}

int FabricChannel::send(const std::byte* from, std::uint64_t bytes, std::uint64_t index) {
  const auto sequence = static_cast<std::uint32_t>(chunks_sent_ % kWindow);
  Write chunk;
  chunk.from = from;
  chunk.bytes = bytes;
  chunk.address = remote_.memory_address + sizeof(Credit) + index;
  chunk.data = CompletionData{remote_.index, sequence, static_cast<std::uint32_t>(bytes)}.pack();
  const int result = write(chunk, sequence);
  if (result != 0) return result;
  busy_ |= 1u << sequence;
  sent_lengths_[sequence] = static_cast<std::uint32_t>(bytes);
  ++chunks_sent_;
  bytes_sent_ += bytes;
  return 0;
}

int FabricChannel::write(Write write, std::uint32_t operation) {
  write.source = memory_.source.get();
  write.peer = remote_peer_;
  write.key = remote_.memory_key;
  write.token = std::uint64_t{index_} << 8 | operation;
  return peer_->write(write, *this);
}

std::uint64_t FabricChannel::give_back() {
  const auto sequence = static_cast<std::uint32_t>(chunks_given_back_ % kWindow);
  if (chunks_given_back_ == chunks_sent_ || (busy_ >> sequence & 1) != 0) return 0;
  ++chunks_given_back_;
  return sent_lengths_[sequence];
}

void FabricChannel::take_chunk() {
  lengths_[chunks_taken_ % kWindow] = 0;
  ++chunks_taken_;
}

int FabricChannel::send_credit(std::uint64_t consumed) {
  Credit& own = memory_.segment->header().own_credit;
  own = {consumed, chunks_taken_};
  Write credit;
  credit.from = &own;
  credit.bytes = sizeof(Credit);
  credit.address = remote_.memory_address;
  credit.data = CompletionData{remote_.index, 0, 0}.pack();
  credit.delivered = true;
  const int result = write(credit, kCreditOperation);
  if (result != 0) return result;
  credited_ = {consumed, chunks_taken_};
  credit_busy_ = true;
  ++credits_sent_;
  return 0;
}

void FabricChannel::on_arrived(const CompletionData& data) {
  if (error_ != 0) return;
  if (data.bytes == 0) {
    read_credit();
    return;
  }
  const std::uint64_t number = chunks_taken_ + ((data.sequence - chunks_taken_) & (kWindow - 1));
  if (number - credited_.chunks >= kChunksMax || lengths_[data.sequence] != 0 || data.bytes > kChunkBytesMax) {
    fail(EPROTO, "the peer wrote what it was not allowed to: chunk " + std::to_string(number) + " of " +
                     std::to_string(data.bytes) + " bytes when " + std::to_string(credited_.chunks) +
                     " were acknowledged");
    return;
  }
  lengths_[data.sequence] = data.bytes;
  wake();
}

void FabricChannel::read_credit() {
  Credit* words = &memory_.segment->header().peer_credit;
  const Credit now{Ref(words->consumed).load(ringbuf::kAcquire), Ref(words->chunks).load(ringbuf::kAcquire)};
  if (now.consumed > bytes_sent_ || now.chunks > chunks_sent_) {
    fail(EPROTO, "the peer acknowledged more than was sent to it");
    return;
  }
  peers_ = {std::max(peers_.consumed, now.consumed), std::max(peers_.chunks, now.chunks)};
  ++credits_arrived_;
  wake();
}

void FabricChannel::on_written(std::uint32_t operation) {
  if (operation == kCreditOperation) {
    credit_busy_ = false;
  } else {
    busy_ &= ~(1u << (operation % kWindow));
  }
  wake();
}

}  // namespace gpusock::proxy::fabric
