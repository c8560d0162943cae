#pragma once
/// @file The memory model: for each word all values that a thread may still read, and for plain memory who accessed it
/// last.
///
/// Views as in the promise-free part of "promising" semantics, which is C++20's model without cycles in (program order,
/// reads from): a load may read any value that is not older than what its thread knows of the word; what a thread knows
/// travels with release stores, read-modify-writes that continue their release sequence, and fences. Covered are stale
/// reads, stores that other threads see in other orders, and the coherence of each word. Not covered is a load that
/// reads what is stored only after it in some order (load buffering, out of thin air); see
/// docs/decisions/013-model-checking.md for why that is no loss here.
///
/// Plain accesses are checked against each other, and against atomic ones of the same bytes, by happens-before.

#include "view.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace gpusock::model {

/// One value of a word's modification order.
struct Message {
  std::uint64_t value = 0;
  Stamp stamp = 0;
  std::uint32_t id = 0;          ///< counts up in the order in which messages came to be
  bool follows_closely = false;  ///< stored by a read-modify-write of the one before it: nothing comes between
  View view;                     ///< what an acquiring reader learns
};

struct Location {
  std::uint64_t* word = nullptr;
  std::vector<Message> messages;                     ///< in modification order
  std::array<std::uint32_t, kThreadsMax> read_at{};  ///< each thread's clock at its last atomic read, 0 for none
  std::array<std::uint32_t, kThreadsMax> written_at{};
};

/// One thread's part of the memory.
struct ThreadMemory {
  View now;       ///< what it knows
  View acquired;  ///< what an acquire fence would add: from relaxed loads
  View released;  ///< what its relaxed stores carry: from its last release fence
};

class Memory {
 public:
  /// Forgets everything: a new execution of so many threads.
  void reset(int threads);

  int locate(std::uint64_t* word);
  int locations() const { return static_cast<int>(locations_used_); }
  Location& location(int which) { return locations_[static_cast<std::size_t>(which)]; }
  const Location& location(int which) const { return locations_[static_cast<std::size_t>(which)]; }
  const ThreadMemory& thread(int which) const { return threads_[static_cast<std::size_t>(which)]; }
  ThreadMemory& thread(int which) { return threads_[static_cast<std::size_t>(which)]; }
  std::uint32_t last_message_id() const { return next_message_id_ - 1; }

  /// Is there a message that this thread may read and that came after message `id`.
  bool can_read_newer_than(int thread, int location, std::uint32_t id) const;
  /// Which messages a load may read (indices; newest first), of those that came after message `id`.
  void readable(int thread, int location, std::uint32_t id, std::vector<int>& result) const;
  /// Where a store may come to stand: behind which messages (newest first).
  void writable(int thread, int location, std::vector<int>& result) const;

  std::uint64_t read(int thread, int location, int message, Order order);
  void write(int thread, int location, int behind, std::uint64_t value, Order order);
  void modify(int thread, int location, int message, std::uint64_t value, Order order);
  void fence(int thread, Order order);

  /// Plain accesses. A race is told in race().
  void plain(int thread, const void* address, std::size_t bytes, bool writes);
  /// Takes over what plain stores have put into words that are atomic elsewhere.
  void adopt_plain_stores();

  const std::string& race() const { return race_; }

 private:
  struct Byte {
    std::uint32_t written_at = 0;  ///< the writer's clock, 0: not written
    std::uint8_t writer = 0;
    std::array<std::uint32_t, kThreadsMax> read_at{};
  };
  struct Cell {  ///< eight bytes
    Byte all;    ///< of each byte, as long as they are accessed together
    int location = -1;
    bool apart = false;  ///< they are not: then
    std::array<Byte, 8> bytes;

    void take_apart() {
      if (!apart) bytes.fill(all);
      apart = true;
    }
  };
  /// The cells that were touched: a hash table that is emptied by counting its executions.
  class Cells {
   public:
    void clear();
    Cell& operator[](std::uintptr_t key);  ///< the reference is good until the next one

   private:
    struct Entry {
      std::uintptr_t key = 0;
      std::uint32_t execution = 0;
      std::uint32_t cell = 0;
    };
    void grow();
    std::vector<Entry> entries_ = std::vector<Entry>(1 << 12);
    std::vector<Cell> cells_;
    std::size_t used_ = 0;
    std::uint32_t execution_ = 1;
  };

  bool happened(int thread, int other, std::uint32_t clock) const {
    return other == thread ||
           clock <= threads_[static_cast<std::size_t>(thread)].now.clock[static_cast<std::size_t>(other)];
  }
  void check_atomic(int thread, Location& location, bool writes);
  void check_atomic(int thread, const Byte& byte, bool writes);
  void plain_cell(int thread, Cell& cell, bool writes);
  void plain_byte(int thread, Byte& byte, bool writes);
  void tell_race(const char* what, int thread, int other);
  Message& insert(Location& location, int behind);
  std::uint32_t tick(int thread);

  std::array<ThreadMemory, kThreadsMax> threads_;
  std::vector<Location> locations_ = std::vector<Location>(kLocationsMax);
  std::size_t locations_used_ = 0;
  Cells cells_;                                    // by address / 8
  std::vector<std::pair<int, int>> plain_stores_;  // location, thread
  std::uint32_t next_message_id_ = 1;
  View fenced_;  // what the last sequentially consistent fence knew
  std::string race_;
  int thread_count_ = 0;
};

}  // namespace gpusock::model
