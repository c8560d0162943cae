#include "host_proxy/proxy/poll_sets.hpp"

#include <cstring>
#include <utility>

namespace gpusock::proxy {
namespace {

std::uint64_t glance_at(const std::uint64_t* word) {
  // Relaxed: only compared. These words are this thread's own, or a network card's.
  return ringbuf::SystemAtomics::Ref<std::uint64_t>(*const_cast<std::uint64_t*>(word)).load(ringbuf::kRelaxed);
}

}  // namespace

PollSets::PollSets(const table::TableView& view, const table::PollSetView& sets)
    : view_(view), shared_(sets), sets_(sets.count), watched_(view.slots) {
  for (std::uint32_t set = 0; set < sets.count; ++set) {
    // Words of sets of the host's own callers are in host memory only.
    std::uint64_t* const bar_word = has_bar(set) ? &sets.bar_words[set].published : nullptr;
    sets_[set].ring = {sets.ring(set), &sets.words[set].published, &sets.taken[set], 0, {bar_word, true}};
  }
  for (std::uint32_t slot = 0; slot < view.slots; ++slot) watched_[slot].in_list = idle_.insert(idle_.end(), slot);
  busy_.reserve(sets.count);
}

void PollSets::watch(std::uint32_t slot, std::uint32_t generation) {
  const std::uint64_t word = glance_at(&shared_.watches[slot]);  // T2 ordered it
  Watched& watched = watched_[slot];
  if (watched.generation == generation && watched.word == word) return;  // an option was set
  if (watched.queued) dequeue(slot);
  watched.generation = generation;
  watched.word = word;
  const std::int32_t set = table::WatchWord::unpack(word).set;
  watched.set = set > 0 && table::index_of_set(set) < shared_.count ? set : 0;
  if (watched.set == 0) return;
  watched.words = words_of(slot);
  watched.entry_end = set_of(slot).taken;  // it has no entry in this set's ring
  note_change(slot, generation);           // for changes before the watch
}

void PollSets::look(std::uint32_t slot, std::uint32_t generation) {
  if (!is_watched(slot, generation)) return;
  ++looks_;
  const std::uint64_t words = words_of(slot);
  if (words == watched_[slot].words) return;
  watched_[slot].words = words;
  note_change(slot, generation);
}

void PollSets::note_change(std::uint32_t slot, std::uint32_t generation) {
  if (!is_watched(slot, generation) || watched_[slot].queued) return;
  if (!is_open(watched_[slot].set)) {
    watched_[slot].set = 0;
    return;
  }
  Set& set = set_of(slot);
  look_at_callers(set);
  if (!try_write(set, slot)) enqueue(slot);
}

bool PollSets::write_queued() {
  bool wrote = false;
  for (std::size_t i = 0; i < busy_.size();) {
    Set& set = sets_[busy_[i]];
    wrote |= write_queued(set);
    if (set.queue.empty()) {
      set.busy = false;
      busy_[i] = busy_.back();
      busy_.pop_back();
    } else {
      ++i;
    }
  }
  return wrote;
}

bool PollSets::write_queued(Set& set) {
  if (set.queue.empty()) return false;
  look_at_callers(set);
  if (set.taken == set.tried_at && is_open(watched_[set.queue.front()].set)) return false;
  set.tried_at = set.taken;
  bool wrote = false;
  for (auto next = set.queue.begin(); next != set.queue.end();) {
    const std::uint32_t slot = *next++;
    const bool open = is_open(watched_[slot].set);
    if (open && !try_write(set, slot)) continue;
    dequeue(slot);
    if (!open) watched_[slot].set = 0;
    wrote |= open;
  }
  return wrote;
}

bool PollSets::is_watched(std::uint32_t slot, std::uint32_t generation) const {
  return watched_[slot].set != 0 && watched_[slot].generation == generation;
}

bool PollSets::is_open(std::int32_t set) const {
  // Callers wrote it before they told of a watch (T1).
  return glance_at(&shared_.words[table::index_of_set(set)].generation) == table::generation_of_set(set);
}

/// A number that changes whenever a word does that may make the socket ready: none of these words ever goes back.
std::uint64_t PollSets::words_of(std::uint32_t slot) const {
  const table::RingPair& rings = view_.setups[slot].rings;  // a listener has none
  const std::uint32_t events = table::WatchWord::unpack(watched_[slot].word).events;
  std::uint64_t words = glance_at(&view_.proxy_words[slot].status);
  if ((events & table::kWatchIn) != 0 && rings.rx.committed != nullptr) words += glance_at(rings.rx.host_committed());
  if ((events & table::kWatchOut) != 0 && rings.tx.consumed != nullptr) words += glance_at(rings.tx.host_consumed());
  return words;
}

/// Looks how far callers have taken the ring's entries.
void PollSets::look_at_callers(Set& set) {
  const std::uint64_t capacity = set.ring.memory().capacity, room = set.ring.writable();
  if (room <= capacity) set.taken = set.ring.position() - (capacity - room);  // else the callers' word is invalid
}

/// True if the callers of this set poll its words in their device's memory.
bool PollSets::has_bar(std::uint32_t set) const { return shared_.bar_words != nullptr && !shared_.is_own(set); }

/// Writes the slot's entry. False if there is no room for it, or the last one was not taken yet.
bool PollSets::try_write(Set& set, std::uint32_t slot) {
  const bool is_full = set.ring.position() - set.taken == set.ring.memory().capacity;
  if (is_full || static_cast<std::int64_t>(watched_[slot].entry_end - set.taken) > 0) return false;
  const table::SetEntry entry = slot;
  std::byte* const at = set.ring.spans(sizeof entry).first.data;
  std::memcpy(at, &entry, sizeof entry);
  if (has_bar(static_cast<std::uint32_t>(&set - sets_.data()))) {
    const auto index = reinterpret_cast<table::SetEntry*>(at) - shared_.entries;
    // Relaxed: X1 publishes it.
    ringbuf::SystemAtomics::Ref<table::SetEntry>(shared_.bar_entries[index]).store(entry, ringbuf::kRelaxed);
  }
  set.ring.commit(sizeof entry);
  watched_[slot].entry_end = set.ring.position();
  return true;
}

void PollSets::enqueue(std::uint32_t slot) {
  Set& set = set_of(slot);
  if (set.queue.empty()) set.tried_at = set.taken;
  set.queue.splice(set.queue.end(), idle_, watched_[slot].in_list);
  watched_[slot].queued = true;
  if (!std::exchange(set.busy, true)) busy_.push_back(static_cast<std::uint32_t>(&set - sets_.data()));
}

void PollSets::dequeue(std::uint32_t slot) {
  idle_.splice(idle_.end(), set_of(slot).queue, watched_[slot].in_list);
  watched_[slot].queued = false;
}

}  // namespace gpusock::proxy
