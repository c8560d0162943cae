#pragma once
/// @file The schemes by name, and what programs need to know of each: one table (schemes.cpp).

#include "param_sync/schedule/schedule.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace param_sync::schedule {

class Topology;

/// What a scheme is made for. Schemes that do not use a setting ignore it.
struct Request {
  int nodes = 4;            ///< those that have data
  int chunks = 0;           ///< 0: default_chunks()
  int group_size = 4;       ///< hierarchical
  int stripes = 4;          ///< splitstream
  int lanes = 2;            ///< ring:segmented
  int summation_nodes = 0;  ///< byteps
  int credits = 0;          ///< ps, ps:even: at most so many nodes send to one owner at a time; 0: any number
  int owner = 0;            ///< adam-fc: the server's rank
  const Topology* topology = nullptr;  ///< blink
};

/// What only some schemes use of a Request.
enum class Setting : std::uint8_t { group_size, stripes, lanes, summation_nodes, credits, owner, topology };

/// True if the scheme uses the setting. False where there is no such scheme, as for all predicates here.
bool uses(const std::string& scheme, Setting setting);

/// The schemes that use it, in the order of scheme_names() and factor_scheme_names().
std::vector<std::string> schemes_with(Setting setting);

/// True if the scheme uses Request::credits.
bool has_credits(const std::string& scheme);

/// True if the scheme has no default for one of its settings that means something on any network: groups, links, or
/// ranks that only sum.
bool needs_settings(const std::string& scheme);

/// What a scheme moves.
enum class Moves : std::uint8_t {
  sums,              ///< gradients, and sums of them to all: an all-reduce
  weights,           ///< gradients to owners, which send weights back: a parameter server
  factors_to_all,    ///< factors of gradients
  factors_to_owner,  ///< factors of gradients, and weights back
};

/// True if the scheme moves this.
bool moves(const std::string& scheme, Moves what);

/// True if the scheme is one of factor_scheme_names().
bool moves_factors(const std::string& scheme);

/// Those that sum tensors: all-reduces and parameter servers. Each is complete in itself.
const std::vector<std::string>& scheme_names();

/// Those that move factors of gradients (factors.hpp): "sfb", whose result is all_gather, and "adam-fc". generate()
/// makes them as well.
const std::vector<std::string>& factor_scheme_names();

/// So many chunks that each rank has a part, and pipelines have something to fill them.
int default_chunks(const std::string& scheme, const Request& request);

/// Numbers of chunks that are worth a try, where the size of the data is open.
std::vector<int> chunks_to_try(const std::string& scheme, const Request& request);

/// Throws Error where the scheme cannot be made from the request: it says why.
Schedule generate(const std::string& scheme, const Request& request);

}  // namespace param_sync::schedule
