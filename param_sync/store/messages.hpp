#pragma once
/// @file The messages between workers and servers of a store. All are whole words of 4 bytes. A connection carries one
/// worker's requests, and the answers to them in the same order.

#include "gpusock/types.hpp"

#include <cstdint>

namespace param_sync::store {

/// The first message of both ends of a connection.
struct Hello {
  static constexpr std::uint64_t kMagic = 0x31304572'6f745370;  ///< "pStorE01"
  static constexpr std::uint64_t kPatienceNs = 5'000'000'000;   ///< a connecting rank sends its hello within this time
  std::uint64_t magic = kMagic;                                 ///< says that it is a hello
  std::uint64_t settings = 0;                                   ///< a hash of what all ranks must share
  std::int32_t rank = -1;                                       ///< the sender's
  std::int32_t connection = -1;                                 ///< which of the worker's connections it is
};

/// What a worker asks for.
enum class RequestKind : std::uint32_t {
  push = 0x48535550,          ///< "PUSH": a range
  pull = 0x4c4c5550,          ///< "PULL"
  push_rows = 0x52485350,     ///< "PSHR": rows of a range, by their numbers
  pull_rows = 0x524c4c50,     ///< "PLLR"
  push_keys = 0x4b485350,     ///< "PSHK": rows of a range of keys, by their keys
  pull_keys = 0x4b4c4c50,     ///< "PLLK"
  pull_after = 0x41464c50,    ///< "PLFA": a range, after pushes that the request names
  push_again = 0x41485350,    ///< "PSHA": the rows of this worker's request before, of this range
  pull_again = 0x414c4c50,    ///< "PLLA"
  pull_replica = 0x524c4c52,  ///< "RLLR": a range with its states, which the worker keeps
  replicated = 0x44504552     ///< "REPD": the worker has the replica of this range that it has pulled last
};

/// A worker's message. If it moves rows by their numbers, these follow, 4 bytes each; or their keys, 8 bytes each. Then
/// the floats of a push follow. `replicated` has no answer. Keys ascend, and so do the numbers of rows that are pushed.
/// Of `pull_after`, a number of 8 bytes follows for each rank: how many of its pushes the weights must contain.
struct Request {
  RequestKind kind = RequestKind::push;  ///< what it asks for
  std::uint32_t range = 0;               ///< number of the range
  std::uint64_t clock = 0;               ///< how many pushes of this range the worker has made before; with a clock
                                         ///< that is kDropsLate, the version that it has
  std::uint64_t floats = 0;              ///< floats of the range; of requests with rows: how many rows
  /// True if it is of a kind that is known.
  GPUSOCK_FN bool is_known() const {
    return is_push() || has_rows() || kind == RequestKind::pull || kind == RequestKind::pull_after || is_of_replica();
  }
  /// True if it is about a replica that the worker keeps.
  GPUSOCK_FN bool is_of_replica() const { return kind == RequestKind::pull_replica || kind == RequestKind::replicated; }
  /// True if it moves some rows of a range.
  GPUSOCK_FN bool has_rows() const { return names_rows() || is_again(); }
  /// True if what names its rows follows.
  GPUSOCK_FN bool names_rows() const {
    return has_keys() || kind == RequestKind::push_rows || kind == RequestKind::pull_rows;
  }
  /// True if keys follow.
  GPUSOCK_FN bool has_keys() const { return kind == RequestKind::push_keys || kind == RequestKind::pull_keys; }
  /// How many words of 4 bytes each number, or key, has that follows; 0: none follows.
  GPUSOCK_FN unsigned name_words() const {
    if (has_keys() || kind == RequestKind::pull_after) return 2;
    return names_rows() ? 1 : 0;
  }
  /// True if it moves the rows that the worker has named before.
  GPUSOCK_FN bool is_again() const { return kind == RequestKind::push_again || kind == RequestKind::pull_again; }
  /// True if it pushes.
  GPUSOCK_FN bool is_push() const {
    return kind == RequestKind::push || kind == RequestKind::push_rows || kind == RequestKind::push_keys ||
           kind == RequestKind::push_again;
  }
};

/// What a server answers.
enum class AnswerKind : std::uint32_t {
  values = 0x534c4156,  ///< "VALS"
  lost = 0x54534f4c     ///< "LOST"
};

/// A server's answer to a pull. Of `values`, a word of 8 bytes for each rank follows (how many of its pushes the values
/// contain at least), and then the floats.
struct Answer {
  AnswerKind kind = AnswerKind::values;  ///< what it answers
  std::uint32_t range = 0;               ///< number of the range
  std::uint64_t lost = 0;                ///< of AnswerKind::lost: the rank whose push cannot come any more
  std::uint64_t floats = 0;              ///< floats that follow
};

/// What a worker that fails tells the workers of all other ranks, on connections that carry nothing else. It comes
/// before the worker's other connections end, or soon after.
struct LastWord {
  static constexpr std::uint64_t kMagic = 0x31306477'6f745370;  ///< "pStowd01"
  std::uint64_t magic = kMagic;                                 ///< says that it is a word
  std::int32_t lost = -1;                                       ///< the rank that it has lost; -1: it does not know
  std::int32_t error = 0;                                       ///< ENOSPC: it has no room for a key; or 0
};

static_assert(sizeof(LastWord) == 16 && sizeof(Request) == 24 && sizeof(Answer) == 24 && sizeof(Hello) == 24);

}  // namespace param_sync::store
