#pragma once
/// @file The rivals of link=p2p: what the processors' memory itself can do.

#include "contestant.hpp"

namespace bench {

/// Latency: a message handed to and fro between two host threads through shared lines, with one flag word each way.
std::unique_ptr<Contestant> make_line_rival();

/// Bandwidth: memcpy of messages into a buffer of the ring's size, one after the other, on one host thread.
std::unique_ptr<Contestant> make_copy_in_rival(std::uint64_t ring_bytes);

/// Bandwidth: as before, and out of it again: what a ring cannot do without, on one host thread.
std::unique_ptr<Contestant> make_copy_in_out_rival(std::uint64_t ring_bytes);

/// Bandwidth: as before, but in on one host thread and out on another: what two processors can exchange.
std::unique_ptr<Contestant> make_ring_rival(std::uint64_t ring_bytes);

}  // namespace bench
