#include "host_proxy/links/p2p/p2p_link.hpp"

namespace gpusock::proxy {
namespace {

using Ref = ringbuf::SystemAtomics::Ref<std::uint64_t>;

}  // namespace

void P2pLink::end_sending() {
  // Relaxed: T2 ordered it, and the peer reads after C1.
  control_.say_ended(Ref(*rings_.tx.host_committed()).load(ringbuf::kRelaxed));
}

Link::Traffic P2pLink::traffic() const {
  // Relaxed, both: counters for people.
  return {Ref(*rings_.tx.host_committed()).load(ringbuf::kRelaxed) - rings_.tx.start,
          Ref(*rings_.rx.host_consumed()).load(ringbuf::kRelaxed) - rings_.rx.start};
}

}  // namespace gpusock::proxy
