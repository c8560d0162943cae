#include "host_proxy/links/p2p/p2p_link.hpp"

namespace gpusock::proxy {
namespace {

using Ref = ringbuf::SystemAtomics::Ref<std::uint64_t>;

}  // namespace

void P2pLink::end_sending() {
  // Relaxed: T2 ordered it, and the peer reads after C1.
  control_.say_ended(Ref(*rings_.tx.committed).load(ringbuf::kRelaxed));
}

Link::Traffic P2pLink::traffic() const {
  return {Ref(*rings_.tx.committed).load(ringbuf::kRelaxed),  // relaxed, as the next: counters for people
          Ref(*rings_.rx.consumed).load(ringbuf::kRelaxed)};
}

}  // namespace gpusock::proxy
