#include "host_proxy/links/mirrored_link.hpp"

#include "plain_types/error.hpp"
#include "host_proxy/base/log.hpp"

#include <string>
#include <utility>

namespace gpusock::proxy {
namespace {

/// There are several iterations, as a copy that starts in one may have ended in the next. There are few, so that one
/// connection does not keep the step from the others.
constexpr int kIterationsPerCall = 8;

/// The rings that the link works on: it has words of its own in place of those that callers use.
table::RingPair with_own_words(table::RingPair host, const table::RingPair& callers, std::uint64_t& tx_committed,
                               std::uint64_t& rx_committed) {
  host.tx.committed = &tx_committed;
  if (host.rx.committed == callers.rx.committed) host.rx.committed = &rx_committed;
  return host;
}

}  // namespace

MirroredLink::MirroredLink(DeviceCopies& copies, const ConnectionRings& memory, const table::RingPair& callers,
                           const table::RingPair& host, ByteStream& stream, LinkEvents& events)
    : stream_(stream),
      events_(events),
      tx_committed_(host.tx.start),
      rx_committed_(host.rx.start),
      polls_(host.rx.committed != callers.rx.committed),
      host_(with_own_words(host, callers, tx_committed_, rx_committed_)),
      out_(copies, std::make_shared<ConnectionRings>(memory), RingMirror::To::host, {callers.tx.memory, host.tx.memory},
           callers.tx.committed, host_.tx.committed, nullptr, host.tx.start),
      in_(copies, std::make_shared<ConnectionRings>(memory), RingMirror::To::device,
          {callers.rx.memory, host.rx.memory}, host_.rx.committed, callers.rx.committed, callers.rx.bar_word,
          host.rx.start) {}

bool MirroredLink::progress() {
  int iterations = 0;
  while (iterations < kIterationsPerCall && move()) ++iterations;
  return iterations != 0;
}

/// Does one iteration: the copies in both directions, and the link's progress between them.
bool MirroredLink::move() {
  if (failed_) return false;
  bool moved = out_.step();
  if (end_wanted_ && !end_sent_ && out_.idle()) {
    link_->end_sending();
    end_sent_ = moved = true;
  }
  moved |= link_->progress();
  moved |= in_.step();
  if (out_.error() != 0 || in_.error() != 0) {
    fail(out_.error() != 0 ? out_.error() : in_.error());
    return true;
  }
  pass_on_events();
  return moved;
}

void MirroredLink::end_receiving() {
  read_shut_down_ = true;
  link_->end_receiving();
}

bool MirroredLink::watches_memory() const {
  return !failed_ && (out_.busy() || in_.busy() || polls_ || link_->watches_memory());
}

/// Reports an end, or a failure, to callers once they can receive all bytes before it.
void MirroredLink::pass_on_events() {
  if (final_ && (read_shut_down_ || static_cast<std::int64_t>(in_.position() - *final_) >= 0)) {
    events_.on_ended(*final_);
    final_.reset();
  }
  if (links_error_ != 0 && in_.idle()) {
    failed_ = true;
    events_.on_failed(links_error_);
  }
}

/// Fails for a reason that the network does not know. Resets the connection, so that the peer does not see an orderly
/// end.
void MirroredLink::fail(int error) {
  failed_ = true;
  log_warn("a connection with rings in device memory ended: " + describe_errno(error));
  stream_.reset_on_close();
  events_.on_failed(error);
}

}  // namespace gpusock::proxy
