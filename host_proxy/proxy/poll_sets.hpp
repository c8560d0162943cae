#pragma once
/// @file The proxy's half of poll sets: tells the group that waits on a set which of its sockets have changed.

#include "socket_table/socket_table.hpp"

#include <cstdint>
#include <list>
#include <vector>

namespace gpusock::proxy {

/// The cost depends on the sockets that change, not on those that are watched. No call allocates memory.
class PollSets {
 public:
  PollSets(const table::TableView& view, const table::PollSetView& sets);

  /// Call it when callers have changed which set watches the socket of this slot and generation.
  void watch(std::uint32_t slot, std::uint32_t generation);

  /// Call it when the words of a slot's connection may have changed: writes an entry if they have.
  void look(std::uint32_t slot, std::uint32_t generation);

  /// Call it when the slot's socket may have become ready in a way that its words do not show: writes an entry.
  void note_change(std::uint32_t slot, std::uint32_t generation);

  /// Writes the entries for which there was no room before, and those of slots whose earlier entry was not taken yet.
  /// True if it wrote any.
  bool write_queued();

  /// True if an entry waits for callers to take earlier ones.
  bool waits_for_callers() const { return !busy_.empty(); }

  /// Slots looked at so far, for tests.
  std::uint64_t looks() const { return looks_; }

 private:
  struct Set {
    ringbuf::ByteProducer<> ring;
    std::uint64_t taken = 0;         // the ring's position up to which callers had taken entries at the last look
    std::list<std::uint32_t> queue;  // slots whose entries are still to be written
    bool busy = false;               // it is in busy_
    std::uint64_t tried_at = 0;      // `taken` when the queue's first slots could not be written
  };
  struct Watched {
    std::int32_t set = 0;  // 0: none
    std::uint32_t generation = 0;
    std::uint64_t word = 0;  // as callers wrote it
    bool queued = false;
    std::uint64_t words = 0;                     // what its words were when they were last looked at
    std::uint64_t entry_end = 0;                 // the ring's position after its last entry
    std::list<std::uint32_t>::iterator in_list;  // of its set's queue, or of idle_
  };

  bool is_watched(std::uint32_t slot, std::uint32_t generation) const;
  std::uint64_t words_of(std::uint32_t slot) const;
  bool is_open(std::int32_t set) const;
  bool has_bar(std::uint32_t set) const;
  Set& set_of(std::uint32_t slot) { return sets_[table::index_of_set(watched_[slot].set)]; }
  static void look_at_callers(Set& set);
  bool try_write(Set& set, std::uint32_t slot);
  void enqueue(std::uint32_t slot);
  void dequeue(std::uint32_t slot);
  bool write_queued(Set& set);

  table::TableView view_;
  table::PollSetView shared_;
  std::vector<Set> sets_;
  std::vector<Watched> watched_;     // by slot
  std::list<std::uint32_t> idle_;    // the slots that are in no queue: moving one to a queue allocates nothing
  std::vector<std::uint32_t> busy_;  // sets with slots in their queues
  std::uint64_t looks_ = 0;
};

}  // namespace gpusock::proxy
