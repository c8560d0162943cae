#include "host_proxy/links/p2p/p2p_link.hpp"

namespace gpusock::proxy {
namespace {

using Ref = ringbuf::SystemAtomics::Ref<std::uint64_t>;

}  // namespace

void P2pLink::end_sending() {
  control_.say_ended(Ref(*segment_->committed(side_)).load(ringbuf::kRelaxed));  // relaxed: T2 ordered it; the peer
                                                                                 // reads behind C1
}

Link::Traffic P2pLink::traffic() const {
  return {Ref(*segment_->committed(side_)).load(ringbuf::kRelaxed),      // relaxed: counters for people
          Ref(*segment_->consumed(1 - side_)).load(ringbuf::kRelaxed)};  // relaxed: counters for people
}

}  // namespace gpusock::proxy
