#pragma once
/// @file A rival on raw TCP for many sockets: one thread on each side, which waits for all its sockets by epoll.

#include "contestant.hpp"
#include "options.hpp"

namespace bench {

/// Its connections stay from round to round.
std::unique_ptr<Contestant> make_epoll_rival(const BenchOptions& options);

}  // namespace bench
