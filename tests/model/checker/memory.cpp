#include "memory.hpp"

#include <cstdio>
#include <cstdlib>

namespace gpusock::model {
namespace {

constexpr Stamp kStampStep = 1 << 16;

std::uintptr_t cell_of(const void* address) { return reinterpret_cast<std::uintptr_t>(address) / 8; }

}  // namespace

void Memory::Cells::clear() {
  ++execution_;
  used_ = 0;
}

Memory::Cell& Memory::Cells::operator[](std::uintptr_t key) {
  const std::size_t mask = entries_.size() - 1;
  std::size_t at = (key * 0x9e3779b97f4a7c15u >> 40) & mask;
  while (entries_[at].execution == execution_ && entries_[at].key != key) at = (at + 1) & mask;
  Entry& entry = entries_[at];
  if (entry.execution == execution_) return cells_[entry.cell];
  if (2 * used_ >= entries_.size()) {
    grow();
    return (*this)[key];
  }
  entry = {key, execution_, static_cast<std::uint32_t>(used_++)};
  if (used_ > cells_.size()) cells_.resize(2 * used_);
  Cell& fresh = cells_[entry.cell];
  fresh.all = {};
  fresh.location = -1;
  fresh.apart = false;
  return fresh;
}

void Memory::Cells::grow() {
  std::vector<Entry> before(2 * entries_.size());
  before.swap(entries_);
  for (const Entry& entry : before) {
    if (entry.execution != execution_) continue;
    std::size_t at = (entry.key * 0x9e3779b97f4a7c15u >> 40) & (entries_.size() - 1);
    while (entries_[at].execution == execution_) at = (at + 1) & (entries_.size() - 1);
    entries_[at] = entry;
  }
}

void Memory::reset(int threads) {
  for (std::size_t i = 0; i < locations_used_; ++i) {
    locations_[i].messages.clear();
    locations_[i].read_at = {};
    locations_[i].written_at = {};
  }
  locations_used_ = 0;
  cells_.clear();
  plain_stores_.clear();
  next_message_id_ = 1;
  fenced_ = {};
  race_.clear();
  thread_count_ = threads;
  for (int i = 0; i < kThreadsMax; ++i) {
    threads_[static_cast<std::size_t>(i)] = {};
    threads_[static_cast<std::size_t>(i)].now.clock[static_cast<std::size_t>(i)] = 1;
  }
}

int Memory::locate(std::uint64_t* word) {
  Cell& cell = cells_[cell_of(word)];
  if (cell.location >= 0) return cell.location;
  if (locations_used_ == kLocationsMax) {
    std::fprintf(stderr, "the model checker: more than %d words are accessed atomically; raise kLocationsMax\n",
                 kLocationsMax);
    std::abort();
  }
  cell.location = static_cast<int>(locations_used_++);
  Location& fresh = location(cell.location);
  fresh.word = word;
  insert(fresh, -1).value = *word;  // from before the threads, or stored plainly: then a race check stands before any
                                    // reader
  return cell.location;
}

Message& Memory::insert(Location& location, int behind) {
  const auto at = location.messages.begin() + behind + 1;
  Stamp stamp = kStampStep;
  if (at != location.messages.begin()) {
    const Stamp before = (at - 1)->stamp;
    stamp = at == location.messages.end() ? before + kStampStep : before + (at->stamp - before) / 2;
    if (stamp == before) {
      std::fprintf(stderr, "the model checker: too many stores between two others; raise kStampStep\n");
      std::abort();
    }
  }
  Message& message = *location.messages.insert(at, Message{});
  message.stamp = stamp;
  message.id = next_message_id_++;
  return message;
}

bool Memory::can_read_newer_than(int thread, int which, std::uint32_t id) const {
  const Stamp oldest = threads_[static_cast<std::size_t>(thread)].now.seen[static_cast<std::size_t>(which)];
  for (const Message& message : locations_[static_cast<std::size_t>(which)].messages) {
    if (message.id > id && message.stamp >= oldest) return true;
  }
  return false;
}

void Memory::readable(int thread, int which, std::uint32_t id, std::vector<int>& result) const {
  const Stamp oldest = threads_[static_cast<std::size_t>(thread)].now.seen[static_cast<std::size_t>(which)];
  const auto& messages = locations_[static_cast<std::size_t>(which)].messages;
  result.clear();
  for (int i = static_cast<int>(messages.size()) - 1; i >= 0 && messages[static_cast<std::size_t>(i)].stamp >= oldest;
       --i) {
    if (messages[static_cast<std::size_t>(i)].id > id) result.push_back(i);
  }
}

void Memory::writable(int thread, int which, std::vector<int>& result) const {
  const Stamp oldest = threads_[static_cast<std::size_t>(thread)].now.seen[static_cast<std::size_t>(which)];
  const auto& messages = locations_[static_cast<std::size_t>(which)].messages;
  result.clear();
  for (int i = static_cast<int>(messages.size()) - 1; i >= 0 && messages[static_cast<std::size_t>(i)].stamp >= oldest;
       --i) {
    const bool closed = i + 1 < static_cast<int>(messages.size()) &&
                        messages[static_cast<std::size_t>(i) + 1].follows_closely;
    if (!closed) result.push_back(i);
  }
}

std::uint32_t Memory::tick(int thread) {
  return threads_[static_cast<std::size_t>(thread)].now.clock[static_cast<std::size_t>(thread)]++;
}

std::uint64_t Memory::read(int thread, int which, int index, Order order) {
  Location& from = location(which);
  check_atomic(thread, from, false);
  const Message& message = from.messages[static_cast<std::size_t>(index)];
  ThreadMemory& reader = this->thread(thread);
  Stamp& seen = reader.now.seen[static_cast<std::size_t>(which)];
  seen = std::max(seen, message.stamp);
  (acquires(order) ? reader.now : reader.acquired).join(message.view, locations());
  from.read_at[static_cast<std::size_t>(thread)] = tick(thread);
  return message.value;
}

void Memory::write(int thread, int which, int behind, std::uint64_t value, Order order) {
  Location& to = location(which);
  check_atomic(thread, to, true);
  ThreadMemory& writer = this->thread(thread);
  Message& message = insert(to, behind);
  message.value = value;
  writer.now.seen[static_cast<std::size_t>(which)] = message.stamp;
  message.view = releases(order) ? writer.now : writer.released;
  message.view.seen[static_cast<std::size_t>(which)] = message.stamp;
  to.written_at[static_cast<std::size_t>(thread)] = tick(thread);
  *to.word = to.messages.back().value;
}

void Memory::modify(int thread, int which, int index, std::uint64_t value, Order order) {
  Location& at = location(which);
  const View before = at.messages[static_cast<std::size_t>(index)].view;
  read(thread, which, index, order);
  write(thread, which, index, value, order);
  Message& message = at.messages[static_cast<std::size_t>(index) + 1];
  message.follows_closely = true;
  message.view.join(before, locations());  // it continues the release sequence
}

void Memory::fence(int thread, Order order) {
  ThreadMemory& at = this->thread(thread);
  const int count = locations();
  if (acquires(order)) at.now.join(at.acquired, count);
  if (order == Order::seq_cst) {
    at.now.join(fenced_, count);
    fenced_ = at.now;
  }
  if (releases(order)) at.released = at.now;
  tick(thread);
}

void Memory::check_atomic(int thread, Location& at, bool writes) {
  const Cell& cell = cells_[cell_of(at.word)];
  if (!cell.apart) return check_atomic(thread, cell.all, writes);
  for (const Byte& byte : cell.bytes) check_atomic(thread, byte, writes);
}

void Memory::check_atomic(int thread, const Byte& byte, bool writes) {
  if (byte.written_at != 0 && !happened(thread, byte.writer, byte.written_at)) {
    return tell_race("an atomic access of what is stored plainly", thread, byte.writer);
  }
  for (int other = 0; writes && other < thread_count_; ++other) {
    const std::uint32_t clock = byte.read_at[static_cast<std::size_t>(other)];
    if (clock != 0 && !happened(thread, other, clock))
      return tell_race("an atomic store to what is read plainly", thread, other);
  }
}

void Memory::plain(int thread, const void* address, std::size_t bytes, bool writes) {
  auto at = reinterpret_cast<std::uintptr_t>(address);
  for (const std::uintptr_t end = at + bytes; at < end;) {
    Cell& cell = cells_[at / 8];
    plain_cell(thread, cell, writes);
    if (at % 8 == 0 && end - at >= 8 && (!cell.apart || writes)) {
      if (cell.apart) {  // becomes one again behind this store
        for (Byte& byte : cell.bytes) plain_byte(thread, byte, true);
        cell.all = cell.bytes[0];
        cell.apart = false;
      } else {
        plain_byte(thread, cell.all, writes);
      }
      at += 8;
      continue;
    }
    cell.take_apart();
    do {
      plain_byte(thread, cell.bytes[at % 8], writes);
      ++at;
    } while (at < end && at % 8 != 0);
  }
}

/// The cell as a word that is atomic elsewhere.
void Memory::plain_cell(int thread, Cell& cell, bool writes) {
  if (cell.location < 0) return;
  const Location& word = location(cell.location);
  for (int other = 0; other < thread_count_; ++other) {
    const std::uint32_t stored = word.written_at[static_cast<std::size_t>(other)],
                        read = word.read_at[static_cast<std::size_t>(other)];
    if (!happened(thread, other, stored)) tell_race("a plain access of what is stored atomically", thread, other);
    if (writes && !happened(thread, other, read)) tell_race("a plain store to what is read atomically", thread, other);
  }
  if (writes) plain_stores_.emplace_back(cell.location, thread);
}

void Memory::plain_byte(int thread, Byte& byte, bool writes) {
  const std::uint32_t now = threads_[static_cast<std::size_t>(thread)].now.clock[static_cast<std::size_t>(thread)];
  if (byte.written_at != 0 && !happened(thread, byte.writer, byte.written_at)) {
    tell_race(writes ? "a plain store over a plain store" : "a plain read of a plain store", thread, byte.writer);
  }
  if (!writes) {
    byte.read_at[static_cast<std::size_t>(thread)] = now;
    return;
  }
  for (int other = 0; other < thread_count_; ++other) {
    if (!happened(thread, other, byte.read_at[static_cast<std::size_t>(other)]))
      tell_race("a plain store to what is read plainly", thread, other);
  }
  byte = {now, static_cast<std::uint8_t>(thread), {}};
}

void Memory::adopt_plain_stores() {
  for (const auto& [which, thread] : plain_stores_) {
    Location& at = location(which);
    if (at.messages.back().value == *at.word) continue;  // the other stores of this access, or the same value
    Message& message = insert(at, static_cast<int>(at.messages.size()) - 1);
    message.value = *at.word;
    threads_[static_cast<std::size_t>(thread)].now.seen[static_cast<std::size_t>(which)] = message.stamp;
  }
  plain_stores_.clear();
}

void Memory::tell_race(const char* what, int thread, int other) {
  if (!race_.empty()) return;
  char text[160];
  std::snprintf(text, sizeof text, "data race: %s: thread %d, and thread %d before it without order", what, thread,
                other);
  race_ = text;
}

}  // namespace gpusock::model
