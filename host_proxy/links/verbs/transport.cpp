#include "host_proxy/links/verbs/transport.hpp"

#include "rdma/visibility.hpp"

#include <algorithm>
#include <cerrno>

namespace gpusock::proxy::verbs {
namespace {

/// The most bytes of a write; it is also at most a quarter of the tx ring. Its space comes back only when all of it is
/// complete, and callers fill the rest of the ring meanwhile.
constexpr std::uint64_t kWriteBytesMax = 1 << 20;
/// The most requests of a write: its bytes, and the position in two words.
constexpr std::uint32_t kRequestsPerWriteMax = 3;
/// Credit for less than a quarter of the ring is sent after this many looks at it: by then no more is expected for now,
/// and a caller that waits for a whole ring of bytes must not wait for a peer that lacks this credit.
constexpr int kLooks = 8;

}  // namespace

VerbsTransport::VerbsTransport(Parts parts, std::shared_ptr<Activity> activity, const table::RingPair& rings)
    : parts_(std::move(parts)),
      words_(parts_.segment->header()),
      activity_(std::move(activity)),
      rx_start_(rings.rx.start),
      commits_(rings.rx.host_committed() == &words_.rx_committed.value),
      inline_bytes_(parts_.segment->placement() == RingPlacement::host ? parts_.pair->inline_bytes() : 0) {
  peer_ring_bytes_ = parts_.peer.ring_bytes;
  parts_.pair->set_on_progress([this] { take_completions(); });
}

int VerbsTransport::take_word(std::uint64_t word) {
  peer_start_ = word;
  open_ = true;
  return 0;
}

bool VerbsTransport::poll() {
  const std::uint64_t consumed = rdma::load_word_of_nic(words_.tx_consumed.value);
  if (consumed - peer_consumed_ > sent_ - peer_consumed_) {
    set_failure(EPROTO, "the peer gave credit for bytes that were not sent");
  } else {
    peer_consumed_ = consumed;
  }
  if (parts_.pair->failed() && error() == 0) set_failure(ECONNRESET, "the queue pair broke: " + parts_.pair->failure());
  return false;  // words that the NIC has written move nothing by themselves
}

void VerbsTransport::abandon() {
  if (pending_count_ != 0) --activity_->busy;
  pending_count_ = 0;
}

/// Called in the maker's poll() when the queue pair has completions.
void VerbsTransport::take_completions() {
  const bool was_busy = pending_count_ != 0;
  for (; pending_count_ != 0; --pending_count_, ++first_pending_) {
    const Pending& oldest = pending_[first_pending_ % pending_.size()];
    if (static_cast<std::int32_t>(parts_.pair->completed() - oldest.request) < 0) break;
    completed_ = oldest.end;
  }
  if (was_busy && pending_count_ == 0) --activity_->busy;
  wake();
}

std::uint64_t VerbsTransport::write_bytes_max() const {
  const bool has_room = parts_.pair->room() >= requests_per_write() && pending_count_ != pending_.size();
  return has_room ? std::min(kWriteBytesMax, parts_.segment->ring_bytes() / 4) : 0;
}

int VerbsTransport::write(const std::byte* from, std::uint64_t bytes) {
  const PeerMemory& peer = parts_.peer;
  const std::uint64_t position = peer_start_ + sent_ + bytes;
  const std::uint64_t for_kernels = position + peer.kernels_word_bias;
  std::array<rdma::Write, kRequestsPerWriteMax> writes;
  writes[0] = {from,
               static_cast<std::uint32_t>(bytes),
               parts_.tx.local_key(),
               peer.ring_address + (sent_ & (peer.ring_bytes - 1)),
               peer.ring_key,
               bytes <= inline_bytes_};
  // In this order (V6): the peer's kernels can know of all bytes that its proxy knows of.
  if (peer.has_kernels_word != 0)
    writes[1] = {&for_kernels, sizeof for_kernels, 0, peer.kernels_word_address, peer.kernels_word_key, true};
  const std::uint32_t count = requests_per_write();
  writes[count - 1] = write_of_word(position, kArrivedAt);
  if (const int error = parts_.pair->post({writes.data(), count}, true); error != 0) return error;
  sent_ += bytes;
  if (pending_count_ == 0) ++activity_->busy;
  pending_[(first_pending_ + pending_count_++) % pending_.size()] = {parts_.pair->posted(), sent_};
  return 0;
}

rdma::Write VerbsTransport::write_of_word(const std::uint64_t& value, std::uint64_t at) const {
  return {&value, sizeof value, 0, parts_.peer.words_address + at, parts_.peer.words_key, true};
}

std::uint64_t VerbsTransport::arrived() const { return rdma::load_word_of_nic(words_.rx_committed.value) - rx_start_; }

int VerbsTransport::make_visible() {
  const bool on_device = parts_.segment->placement() == RingPlacement::device;
  return on_device ? parts_.segment->platform().flush_nic_writes() : 0;  // V4; nothing to do where V3 holds
}

bool VerbsTransport::is_credit_due(std::uint64_t bytes) {
  looks_ = bytes == 0 ? 0 : looks_ + 1;
  return looks_ >= kLooks;
}

int VerbsTransport::send_credit(std::uint64_t consumed) {
  const rdma::Write write = write_of_word(consumed, kCreditAt);
  if (const int error = parts_.pair->post({&write, 1}, false); error != 0) return error;
  credited_ = consumed;
  looks_ = 0;
  return 0;
}

}  // namespace gpusock::proxy::verbs
