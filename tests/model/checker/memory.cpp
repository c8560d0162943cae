#include "memory.hpp"

#include <cstdio>
#include <cstdlib>

namespace gpusock::model {
namespace {

constexpr Stamp kStampStep = 1 << 16;

std::uintptr_t cell_of(const void* address) { return reinterpret_cast<std::uintptr_t>(address) / 8; }

}  // namespace

void Memory::reset(int threads) {
  for (std::size_t i = 0; i < locations_used_; ++i) {
    locations_[i].messages.clear();
    locations_[i].read_at = {};
    locations_[i].written_at = {};
  }
  locations_used_ = 0;
  cells_.clear();
  unsettled_.clear();
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
    std::fprintf(stderr, "the model checker: more than %d words are accessed atomically; raise kLocationsMax\n", kLocationsMax);
    std::abort();
  }
  cell.location = static_cast<int>(locations_used_++);
  Location& fresh = location(cell.location);
  fresh.word = word;
  insert(fresh, -1).value = *word;  // from before the threads, or stored plainly: then a race check stands before any reader
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
  for (int i = static_cast<int>(messages.size()) - 1; i >= 0 && messages[static_cast<std::size_t>(i)].stamp >= oldest; --i) {
    if (messages[static_cast<std::size_t>(i)].id > id) result.push_back(i);
  }
}

void Memory::writable(int thread, int which, std::vector<int>& result) const {
  const Stamp oldest = threads_[static_cast<std::size_t>(thread)].now.seen[static_cast<std::size_t>(which)];
  const auto& messages = locations_[static_cast<std::size_t>(which)].messages;
  result.clear();
  for (int i = static_cast<int>(messages.size()) - 1; i >= 0 && messages[static_cast<std::size_t>(i)].stamp >= oldest; --i) {
    const bool closed = i + 1 < static_cast<int>(messages.size()) && messages[static_cast<std::size_t>(i) + 1].follows_closely;
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
  for (const Byte& byte : cell.bytes) {
    if (byte.written_at != 0 && !happened(thread, byte.writer, byte.written_at)) {
      return tell_race("an atomic access of what is stored plainly", thread, byte.writer);
    }
    for (int other = 0; writes && other < thread_count_; ++other) {
      const std::uint32_t clock = byte.read_at[static_cast<std::size_t>(other)];
      if (clock != 0 && !happened(thread, other, clock)) return tell_race("an atomic store to what is read plainly", thread, other);
    }
  }
}

void Memory::plain(int thread, const void* address, std::size_t bytes, bool writes) {
  const auto* at = static_cast<const unsigned char*>(address);
  const std::uint32_t now = threads_[static_cast<std::size_t>(thread)].now.clock[static_cast<std::size_t>(thread)];
  Cell* cell = nullptr;
  for (std::size_t i = 0; i < bytes; ++i) {
    const auto where = reinterpret_cast<std::uintptr_t>(at + i);
    if (cell == nullptr || where % 8 == 0) {
      cell = &cells_[where / 8];
      if (cell->location >= 0) {
        const Location& word = location(cell->location);
        for (int other = 0; other < thread_count_; ++other) {
          const std::uint32_t stored = word.written_at[static_cast<std::size_t>(other)], read = word.read_at[static_cast<std::size_t>(other)];
          if (!happened(thread, other, stored)) tell_race("a plain access of what is stored atomically", thread, other);
          if (writes && !happened(thread, other, read)) tell_race("a plain store to what is read atomically", thread, other);
        }
        if (writes) unsettled_.emplace_back(cell->location, thread);
      }
    }
    Byte& byte = cell->bytes[where % 8];
    if (byte.written_at != 0 && !happened(thread, byte.writer, byte.written_at)) {
      tell_race(writes ? "a plain store over a plain store" : "a plain read of a plain store", thread, byte.writer);
    }
    if (!writes) {
      byte.read_at[static_cast<std::size_t>(thread)] = now;
      continue;
    }
    for (int other = 0; other < thread_count_; ++other) {
      if (!happened(thread, other, byte.read_at[static_cast<std::size_t>(other)])) tell_race("a plain store to what is read plainly", thread, other);
    }
    byte = {now, static_cast<std::uint8_t>(thread), {}};
  }
}

void Memory::settle() {
  for (const auto& [which, thread] : unsettled_) {
    Location& at = location(which);
    if (at.messages.back().value == *at.word) continue;  // the other stores of this access, or the same value
    Message& message = insert(at, static_cast<int>(at.messages.size()) - 1);
    message.value = *at.word;
    threads_[static_cast<std::size_t>(thread)].now.seen[static_cast<std::size_t>(which)] = message.stamp;
  }
  unsettled_.clear();
}

void Memory::tell_race(const char* what, int thread, int other) {
  if (!race_.empty()) return;
  char text[160];
  std::snprintf(text, sizeof text, "data race: %s: thread %d, and thread %d before it without order", what, thread, other);
  race_ = text;
}

}  // namespace gpusock::model
