#pragma once
/// @file The rivals of link=p2p. They show what the processors' memory itself can do.

#include "contestant.hpp"

namespace bench {

/// Latency: two host threads pass a message back and forth through shared cache lines, with one flag word each way.
std::unique_ptr<Contestant> make_line_rival();

/// Bandwidth: memcpy of messages into a buffer of the ring's size, one after the other, on one host thread.
std::unique_ptr<Contestant> make_copy_in_rival(std::uint64_t ring_bytes);

/// Bandwidth: as before, and out of the buffer again, on one host thread: a ring needs at least these copies.
std::unique_ptr<Contestant> make_copy_in_out_rival(std::uint64_t ring_bytes);

/// Bandwidth: as before, but one host thread copies in and another one out: what two processors can exchange.
std::unique_ptr<Contestant> make_ring_rival(std::uint64_t ring_bytes);

}  // namespace bench
