#include "host_proxy/links/fabric/transport.hpp"

#include "plain_types/error.hpp"
#include "host_proxy/links/fabric/peer_endpoint.hpp"
#include "ringbuf/atomics.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

namespace gpusock::proxy::fabric {
namespace {

using Ref = ringbuf::SystemAtomics::Ref<std::uint64_t>;

std::unique_ptr<FabricRegistration> checked(std::unique_ptr<FabricRegistration> registration, int error) {
  if (registration == nullptr) {
    throw Error(error,
                "registering a connection's rings with the fabric" +
                    std::string(error == ENOMEM ? "; the limit on locked memory may be too low (ulimit -l)" : ""));
  }
  return registration;
}

constexpr std::size_t kGrantWords = sizeof(Grant) / sizeof(std::uint64_t);
static_assert(sizeof(Grant) % sizeof(std::uint64_t) == 0);
/// Credit is sent at the latest when so many fragments were taken since the last credit.
constexpr std::uint64_t kCreditFragments = 8;

}  // namespace

FabricTransport::FabricTransport(std::shared_ptr<PeerEndpoint> peer, std::shared_ptr<Segment> segment, bool sends_grant)
    : peer_(std::move(peer)), sends_grant_(sends_grant) {
  memory_.segment = std::move(segment);
  const RingMemories rings = memory_.segment->proxy_rings();
  SegmentHeader& header = memory_.segment->header();
  int error = 0;
  FabricPort& port = peer_->port();
  memory_.target = checked(
      port.register_memory({reinterpret_cast<std::byte*>(&header.peer_credit), sizeof(Credit) + rings.rx.capacity},
                           FabricAccess::remote_target, error),
      error);
  if (port.registers_sources()) {
    auto* const base = reinterpret_cast<std::byte*>(&header);
    const auto bytes = static_cast<std::size_t>(rings.tx.data + rings.tx.capacity - base);
    memory_.source = checked(port.register_memory({base, bytes}, FabricAccess::local_source, error), error);
  }
  header.peer_credit = {};
  index_ = peer_->add(*this);
}

FabricTransport::~FabricTransport() {
  peer_->remove(index_, std::move(memory_), settled_, std::popcount(busy_) + (credit_busy_ ? 1 : 0));
}

Grant FabricTransport::grant() const {
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

int FabricTransport::take_grant(const Grant& grant) {
  if (open_ || !is_ring_size(grant.ring_bytes) || grant.index >= kConnectionsMax || grant.address_bytes == 0 ||
      grant.address_bytes > grant.address.size()) {
    return EPROTO;
  }
  const int found = peer_->find_address(std::span(grant.address).first(grant.address_bytes), remote_peer_);
  if (found != 0) return found == -ENOMEM ? ENOMEM : EPROTO;
  remote_ = grant;
  peer_ring_bytes_ = grant.ring_bytes;
  open_ = true;
  return 0;
}

std::string FabricTransport::name() const { return "fabric (" + peer_->name() + ")"; }

std::vector<std::uint64_t> FabricTransport::setup_words() const {
  std::vector<std::uint64_t> words(sends_grant_ ? kGrantWords : 0);
  const Grant own = grant();
  if (sends_grant_) std::memcpy(words.data(), &own, sizeof own);
  return words;
}

int FabricTransport::take_word(std::uint64_t word) {
  if (words_taken_ == kGrantWords) return EPROTO;
  std::memcpy(reinterpret_cast<std::byte*>(&remote_) + sizeof word * words_taken_, &word, sizeof word);
  return ++words_taken_ == kGrantWords ? take_grant(remote_) : 0;
}

void FabricTransport::fail(int error, const std::string& reason) {
  set_failure(error, reason);
  note_news();
}

bool FabricTransport::poll() { return std::exchange(news_, false); }

void FabricTransport::note_news() {
  news_ = true;
  wake();
}

std::uint64_t FabricTransport::write_bytes_max() const {
  const bool can_write = open_ && error() == 0 && fragments_sent_ - fragments_acknowledged_ < kFragmentsMax &&
                         (busy_ >> fragments_sent_ % kWindow & 1) == 0 &&
                         fragments_sent_ - fragments_completed_ < kWindow;
  return can_write ? kFragmentBytesMax : 0;
}

int FabricTransport::write(const std::byte* from, std::uint64_t bytes) {
  const auto sequence = static_cast<std::uint32_t>(fragments_sent_ % kWindow);
  FabricWrite fragment;
  fragment.from = from;
  fragment.bytes = bytes;
  fragment.address = remote_.memory_address + sizeof(Credit) + (sent_ & (peer_ring_bytes_ - 1));
  fragment.data = CompletionData{remote_.index, sequence, static_cast<std::uint32_t>(bytes)}.pack();
  const int result = start(fragment, sequence);
  if (result != 0) return result;
  busy_ |= 1u << sequence;
  sent_lengths_[sequence] = static_cast<std::uint32_t>(bytes);
  ++fragments_sent_;
  sent_ += bytes;
  return 0;
}

int FabricTransport::start(FabricWrite write, std::uint32_t operation) {
  write.source = memory_.source.get();
  write.peer = remote_peer_;
  write.key = remote_.memory_key;
  write.token = std::uint64_t{index_} << 8 | operation;
  return peer_->write(write, *this);
}

void FabricTransport::on_written(std::uint32_t operation) {
  if (operation == kCreditOperation) {
    credit_busy_ = false;
  } else {
    busy_ &= ~(1u << (operation % kWindow));
  }
  for (; fragments_completed_ != fragments_sent_ && (busy_ >> fragments_completed_ % kWindow & 1) == 0;
       ++fragments_completed_)
    completed_ += sent_lengths_[fragments_completed_ % kWindow];
  note_news();
}

bool FabricTransport::is_credit_due(std::uint64_t) {
  return fragments_taken_ - fragments_credited_ >= kCreditFragments;
}

int FabricTransport::send_credit(std::uint64_t consumed) {
  if (!open_ || credit_busy_) return -EAGAIN;
  Credit& own = memory_.segment->header().own_credit;
  own = {consumed, fragments_taken_};
  FabricWrite credit;
  credit.from = &own;
  credit.bytes = sizeof(Credit);
  credit.address = remote_.memory_address;
  credit.data = CompletionData{remote_.index, 0, 0}.pack();
  credit.delivered = true;
  const int result = start(credit, kCreditOperation);
  if (result != 0) return result;
  credited_ = consumed;
  fragments_credited_ = fragments_taken_;
  credit_busy_ = true;
  ++credits_sent_;
  return 0;
}

void FabricTransport::on_arrived(const CompletionData& data) {
  if (error() != 0) return;
  if (data.bytes == 0) {
    read_credit();
    return;
  }
  const std::uint64_t number = fragments_taken_ + ((data.sequence - fragments_taken_) & (kWindow - 1));
  if (number - fragments_credited_ >= kFragmentsMax || lengths_[data.sequence] != 0 || data.bytes > kFragmentBytesMax) {
    fail(EPROTO, "the peer sent an invalid fragment: number " + std::to_string(number) + " of " +
                     std::to_string(data.bytes) + " bytes when " + std::to_string(fragments_credited_) +
                     " were acknowledged");
    return;
  }
  lengths_[data.sequence] = data.bytes;
  take_fragments();
  note_news();
}

/// Takes the fragments that follow the last one taken. A fragment never passes the end of the ring.
void FabricTransport::take_fragments() {
  const std::uint64_t ring = memory_.segment->ring_bytes();
  while (const std::uint64_t bytes = std::exchange(lengths_[fragments_taken_ % kWindow], 0)) {
    const std::uint64_t room = std::min(credited_ + ring - arrived_, ring - (arrived_ & (ring - 1)));
    if (bytes > room) {
      fail(EPROTO,
           "the peer wrote " + std::to_string(bytes) + " bytes where there was room for " + std::to_string(room));
      return;
    }
    arrived_ += bytes;
    ++fragments_taken_;
  }
}

void FabricTransport::read_credit() {
  Credit* words = &memory_.segment->header().peer_credit;
  const Credit now{Ref(words->consumed).load(ringbuf::kAcquire), Ref(words->fragments).load(ringbuf::kAcquire)};
  if (now.consumed > sent_ || now.fragments > fragments_sent_) {
    fail(EPROTO, "the peer acknowledged more than was sent to it");
    return;
  }
  peer_consumed_ = std::max(peer_consumed_, now.consumed);
  fragments_acknowledged_ = std::max(fragments_acknowledged_, now.fragments);
  ++credits_arrived_;
  note_news();
}

}  // namespace gpusock::proxy::fabric
