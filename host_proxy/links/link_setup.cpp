#include "host_proxy/links/link_setup.hpp"

#include "host_proxy/links/mirrored_link.hpp"

namespace gpusock::proxy {
namespace {

table::RingPair rings_of(const ProxySlots& slots, std::uint32_t slot, const RingMemories& memory) {
  return slots.rings(slot, memory.tx, memory.rx);
}

std::unique_ptr<Link> make(LinkSetup& setup, const ProxySlots& slots, const LinkCallers& by, DeviceCopies* copies,
                           std::unique_ptr<ByteStream>& stream, LinkEvents& events) {
  const ConnectionRings& rings = setup.rings();
  table::RingPair callers = rings_of(slots, by.slot, rings.callers_rings());
  table::RingPair link = rings_of(slots, by.slot, rings.link_rings());
  setup.use_own_words(link);
  if (!rings.are_copied()) setup.use_own_words(callers);
  // The callers' rings as the proxy reaches them, to write what callers poll; the link's rings, unless copied.
  table::RingPair device = rings.are_copied() ? rings_of(slots, by.slot, rings.callers->proxy_rings()) : link;
  if (by.are_kernels) slots.use_device_words(callers, device);
  slots.view().setups[by.slot].rings = callers;
  if (!rings.are_copied()) return setup.make_link(device, std::move(stream), events);
  link.tx.bar_word = device.tx.bar_word;  // the link gives space back in both rings
  auto mirrored = std::make_unique<MirroredLink>(*copies, rings, device, link, *stream, events);
  mirrored->set_link(setup.make_link(mirrored->rings(), std::move(stream), mirrored->events()));
  return mirrored;
}

}  // namespace

std::unique_ptr<Link> establish_link(LinkSetup& setup, ProxySlots& slots, LinkCallers callers, DeviceCopies* copies,
                                     std::unique_ptr<ByteStream> stream, LinkEvents& events) {
  try {
    auto link = make(setup, slots, callers, copies, stream, events);
    slots.view().setups[callers.slot].link_needs_proxy = link->moves_bytes() ? 1 : 0;
    if (!link->moves_bytes()) slots.note_direct_link();
    return link;
  } catch (...) {
    if (stream != nullptr) stream->reset_on_close();  // the peer must not take it for an orderly end
    throw;
  }
}

}  // namespace gpusock::proxy
