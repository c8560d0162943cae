#pragma once
/// @file The rival of sockets: raw TCP.

#include "contestant.hpp"
#include "options.hpp"

namespace bench {

/// Listens at the options' host.
std::unique_ptr<Answerer> make_tcp_answerer(const BenchOptions& options);
std::unique_ptr<Asker> make_tcp_asker(Question question);

}  // namespace bench
