#include "host_proxy/table/proxy_slots.hpp"

#include <utility>

namespace gpusock::proxy {
namespace {

using Ref = ringbuf::SystemAtomics::Ref<std::uint64_t>;
using ringbuf::kRelaxed;
using ringbuf::kRelease;

}  // namespace

ProxySlots::ProxySlots(TableMemory& table)
    : table_(table),
      view_(table.view(SideKind::host)),
      slots_(table.slots()),
      free_{table.free_queue(SideKind::host), table.free_queue(SideKind::device)} {
  for (std::uint32_t slot = 0; slot < count(); ++slot) grant(slot);
}

SideKind ProxySlots::opener(std::uint32_t slot) const {
  return table_.has_device_side() && slot >= table_.opened_by(SideKind::device) && slot < table_.accepted()
             ? SideKind::device
             : SideKind::host;
}

void ProxySlots::grant(std::uint32_t slot) {
  // A slot's positions go on where its last connection ended: its callers' words are read here and never reset.
  // Relaxed, both: T2 of the close ordered them.
  const std::uint64_t tx_start = Ref(view_.tx_committed[slot]).load(kRelaxed);
  const std::uint64_t rx_start = Ref(view_.rx_consumed[slot]).load(kRelaxed);
  set(slot, &table::ProxyWords::tx_freed, tx_start);
  set(slot, &table::ProxyWords::rx_arrived, rx_start);
  publish(slot, table::Phase::idle);
  if (slot >= table_.accepted()) {
    accept_pool_.push_back(slot);
  } else {
    free_[static_cast<int>(opener(slot))].push(handle(slot));
  }
}

/// Changes one of the proxy's words; publish() tells callers.
void ProxySlots::set(std::uint32_t slot, std::uint64_t table::ProxyWords::*which, std::uint64_t value) {
  std::uint64_t& word = view_.proxy_words[slot].*which;
  Ref(word).store(value, kRelaxed);  // relaxed, as the next: T3, or X1 of the status, publishes it
  if (std::uint64_t* const bar_word = table_.bar_address_for(slot, &word)) Ref(*bar_word).store(value, kRelaxed);
}

void ProxySlots::set_final(std::uint32_t slot, std::uint64_t position) {
  set(slot, &table::ProxyWords::rx_final, position);
}

std::optional<std::uint32_t> ProxySlots::take_for_accept() {
  if (accept_pool_.empty()) return std::nullopt;
  const std::uint32_t slot = accept_pool_.back();
  accept_pool_.pop_back();
  return slot;
}

void ProxySlots::publish(std::uint32_t slot, table::Phase phase, int error, std::uint8_t flags) {
  const table::Status status{slots_[slot].generation, static_cast<std::uint16_t>(error), phase, flags};
  Ref word(view_.proxy_words[slot].status);
  std::uint64_t& wanted = slots_[slot].status;
  std::uint64_t before = std::exchange(wanted, status.pack() | (wanted & table::kStatusCanceled));
  while (!word.compare_exchange_strong(before, wanted, kRelease, kRelaxed)) {  // T3, pairs with T4
    wanted |= before & table::kStatusCanceled;                                 // TableMemory::cancel() has added it
  }
  if (std::uint64_t* const bar_word = table_.bar_address_for(slot, &view_.proxy_words[slot].status)) {
    ringbuf::bar_write(bar_word, wanted);
  }
}

void ProxySlots::release(std::uint32_t slot) {
  slots_[slot].generation = table::next_generation(table::next_generation(slots_[slot].generation));
  slots_[slot].connection = nullptr;
  slots_[slot].listener = nullptr;
  slots_[slot].block = -1;
  grant(slot);
}

table::RingPair ProxySlots::rings(std::uint32_t slot, ringbuf::RingMemory tx, ringbuf::RingMemory rx) const {
  table::ProxyWords& words = view_.proxy_words[slot];
  tx.origin = Ref(words.tx_freed).load(kRelaxed);    // relaxed: own word. A connection's first byte is a ring's first
  rx.origin = Ref(words.rx_arrived).load(kRelaxed);  // relaxed: own word
  return {{tx, &view_.tx_committed[slot], &words.tx_freed, tx.origin},
          {rx, &words.rx_arrived, &view_.rx_consumed[slot], rx.origin}};
}

void ProxySlots::use_device_words(table::RingPair& callers, table::RingPair& link) const {
  if (!table_.has_device_words()) return;
  const auto move = [this](std::uint64_t*& word, std::uint64_t*& copy, std::uint64_t*& bar_word) {
    bar_word = table_.bar_address(word);
    if (bar_word == nullptr) return;  // a link's own word
    copy = word;
    word = table_.for_kernels(word);
  };
  move(callers.tx.consumed, callers.tx.consumed_copy, link.tx.bar_word);
  move(callers.rx.committed, callers.rx.committed_copy, link.rx.bar_word);
}

}  // namespace gpusock::proxy
