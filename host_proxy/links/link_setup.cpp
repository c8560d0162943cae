#include "host_proxy/links/link_setup.hpp"

#include "host_proxy/links/mirrored_link.hpp"

namespace gpusock::proxy {
namespace {

table::RingPair rings_of(const ProxySlots& slots, std::uint32_t slot, const RingMemories& memory) {
  return slots.rings(slot, memory.tx, memory.rx);
}

std::unique_ptr<Link> make(LinkSetup& setup, const ProxySlots& slots, std::uint32_t slot, DeviceCopies* copies,
                           std::unique_ptr<ByteStream>& stream, LinkEvents& events) {
  const ConnectionRings& rings = setup.rings();
  table::RingPair callers = rings_of(slots, slot, rings.callers_rings());
  table::RingPair link = rings_of(slots, slot, rings.link_rings());
  setup.use_own_words(link);
  if (!rings.are_copied()) setup.use_own_words(callers);
  slots.view().setups[slot].rings = callers;
  if (!rings.are_copied()) return setup.make_link(link, std::move(stream), events);
  const table::RingPair device = rings_of(slots, slot, rings.callers->proxy_rings());
  auto mirrored = std::make_unique<MirroredLink>(*copies, rings, device, link, *stream, events);
  mirrored->set_link(setup.make_link(mirrored->rings(), std::move(stream), mirrored->events()));
  return mirrored;
}

}  // namespace

std::unique_ptr<Link> establish_link(LinkSetup& setup, ProxySlots& slots, std::uint32_t slot, DeviceCopies* copies,
                                     std::unique_ptr<ByteStream> stream, LinkEvents& events) {
  try {
    auto link = make(setup, slots, slot, copies, stream, events);
    slots.view().setups[slot].link_needs_proxy = link->moves_bytes() ? 1 : 0;
    return link;
  } catch (...) {
    if (stream != nullptr) stream->reset_on_close();  // the peer must not take it for an orderly end
    throw;
  }
}

}  // namespace gpusock::proxy
