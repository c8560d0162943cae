#pragma once
/// @file The schemes by name.

#include "param_sync/schedule/schedule.hpp"

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
  int slots = 0;            ///< ps, ps:even: at most so many nodes send to one owner at a time; 0: any number
  int owner = 0;            ///< adam-fc: the server's rank
  const Topology* topology = nullptr;  ///< blink
};

/// True if the scheme uses Request::slots.
bool has_slots(const std::string& scheme);

/// Those that sum tensors: all-reduces and parameter servers. Each is complete in itself.
const std::vector<std::string>& scheme_names();

/// Those that move factors of gradients (factors.hpp): "sfb", whose result is all_gather, and "adam-fc". generate()
/// makes them as well.
const std::vector<std::string>& factor_scheme_names();

/// So many chunks that each rank has a part, and pipelines have something to fill them.
int default_chunks(const std::string& scheme, const Request& request);

/// Throws Error where the scheme cannot be made from the request: it says why.
Schedule generate(const std::string& scheme, const Request& request);

}  // namespace param_sync::schedule
