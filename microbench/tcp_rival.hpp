#pragma once
/// @file The rival of link=tcp: raw sockets between two host threads, non-blocking and spinning, with TCP_NODELAY.

#include "contestant.hpp"

namespace bench {

std::unique_ptr<Contestant> make_tcp_rival();

}  // namespace bench
