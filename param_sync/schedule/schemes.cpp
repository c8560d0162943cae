#include "param_sync/schedule/schemes.hpp"

#include "param_sync/schedule/check_price.hpp"
#include "param_sync/schedule/factors.hpp"
#include "param_sync/schedule/topology.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

namespace param_sync::schedule {

// The generators of the schemes. Each file says what its generator does. generate() has checked the arguments. Chunks
// that do not divide evenly are shared out so that the parts of two ranks differ by one chunk at most; a part may be
// empty.
Schedule mesh(int nodes, int chunks);                                // mesh.cpp
Schedule ring(int nodes, int chunks);                                // ring.cpp
Schedule segmented_ring(int nodes, int chunks, int lanes);           // ring.cpp
Schedule chain(int nodes, int chunks);                               // chain.cpp
Schedule halving_doubling(int nodes, int chunks);                    // recursive.cpp
Schedule butterfly(int nodes, int chunks);                           // recursive.cpp
Schedule binary_tree(int nodes, int chunks);                         // tree.cpp
Schedule double_binary_tree(int nodes, int chunks);                  // tree.cpp
Schedule split_stream(int nodes, int chunks, int stripes);           // tree.cpp
Schedule hierarchical(int nodes, int chunks, int group_size);        // hierarchical.cpp
Schedule parameter_server(int nodes, int chunks, int credits);       // server.cpp
Schedule even_parameter_server(int nodes, int chunks, int credits);  // server.cpp
Schedule byteps(int workers, int chunks, int summation_nodes);       // server.cpp
Schedule blink(const Topology& topology, int chunks);                // blink.cpp

namespace {

/// A row of the tables. A new scheme is a row, its generator's declaration above, and a file with the generator.
struct Scheme {
  const char* name;
  Schedule (*make)(const Request&, int chunks);
  int (*chunks)(const Request&);
  std::vector<Setting> settings = {};
  Moves moves = Moves::sums;
  std::vector<int> (*chunks_to_try)(const Request&) = nullptr;  ///< none: chunks(request) alone

  bool uses(Setting setting) const { return std::find(settings.begin(), settings.end(), setting) != settings.end(); }
};

int one_for_each(const Request& request) { return request.nodes; }
int pipeline(const Request&) { return 16; }
int sixteen_for_each(const Request& request) { return 16 * request.nodes; }

int chunks_of_hierarchy(const Request& request) {
  const int groups = (request.nodes + request.group_size - 1) / request.group_size;
  return std::min(request.nodes, request.group_size) * groups;
}

std::vector<int> pipelines(const Request&) { return {4, 16, 64}; }
std::vector<int> some_for_each(const Request& request) {
  return {2 * request.nodes, 4 * request.nodes, 8 * request.nodes};
}

const Scheme kSchemes[] = {
    {.name = "ps",
     .make = [](const Request& r, int chunks) { return parameter_server(r.nodes, chunks, r.credits); },
     .chunks = sixteen_for_each,
     .settings = {Setting::credits},
     .moves = Moves::weights},
    {.name = "mesh",
     .make = [](const Request& r, int chunks) { return mesh(r.nodes, chunks); },
     .chunks = one_for_each},
    {.name = "ring",
     .make = [](const Request& r, int chunks) { return ring(r.nodes, chunks); },
     .chunks = one_for_each},
    {.name = "ring:segmented",
     .make = [](const Request& r, int chunks) { return segmented_ring(r.nodes, chunks, r.lanes); },
     .chunks = [](const Request& r) { return 4 * r.nodes; },
     .settings = {Setting::lanes},
     .chunks_to_try = some_for_each},
    {.name = "chain", .make = [](const Request& r, int chunks) { return chain(r.nodes, chunks); }, .chunks = pipeline},
    {.name = "rhd",
     .make = [](const Request& r, int chunks) { return halving_doubling(r.nodes, chunks); },
     .chunks = one_for_each},
    {.name = "butterfly",
     .make = [](const Request& r, int chunks) { return butterfly(r.nodes, chunks); },
     .chunks = [](const Request&) { return 1; }},
    {.name = "tree:binary",
     .make = [](const Request& r, int chunks) { return binary_tree(r.nodes, chunks); },
     .chunks = pipeline,
     .chunks_to_try = pipelines},
    {.name = "tree:double-binary",
     .make = [](const Request& r, int chunks) { return double_binary_tree(r.nodes, chunks); },
     .chunks = pipeline,
     .chunks_to_try = pipelines},
    {.name = "splitstream",
     .make = [](const Request& r, int chunks) { return split_stream(r.nodes, chunks, r.stripes); },
     .chunks = [](const Request& r) { return 4 * r.stripes; },
     .settings = {Setting::stripes},
     .chunks_to_try = pipelines},
    {.name = "hierarchical",
     .make = [](const Request& r, int chunks) { return hierarchical(r.nodes, chunks, r.group_size); },
     .chunks = chunks_of_hierarchy,
     .settings = {Setting::group_size}},
    {.name = "byteps",
     .make = [](const Request& r, int chunks) { return byteps(r.nodes, chunks, r.summation_nodes); },
     .chunks = sixteen_for_each,
     .settings = {Setting::summation_nodes}},
    {.name = "ps:even",
     .make = [](const Request& r, int chunks) { return even_parameter_server(r.nodes, chunks, r.credits); },
     .chunks = one_for_each,
     .settings = {Setting::credits},
     .moves = Moves::weights},
    {.name = "blink",
     .make = [](const Request& r, int chunks) { return blink(*r.topology, chunks); },
     .chunks = [](const Request&) { return 512; },
     .settings = {Setting::topology}},
};

const Scheme kFactorSchemes[] = {
    {.name = "sfb",
     .make = [](const Request& r, int chunks) { return factor_broadcast(r.nodes, chunks); },
     .chunks = one_for_each,
     .moves = Moves::factors_to_all},
    {.name = "adam-fc",
     .make = [](const Request& r, int chunks) { return factor_server(r.nodes, chunks, r.owner); },
     .chunks = pipeline,
     .settings = {Setting::owner},
     .moves = Moves::factors_to_owner},
};

template <class Schemes>
std::vector<std::string> names_of(const Schemes& schemes) {
  std::vector<std::string> all;
  for (const Scheme& scheme : schemes) all.emplace_back(scheme.name);
  return all;
}

/// Returns nullptr if there is no such scheme.
const Scheme* try_find(const std::string& name) {
  for (const Scheme& scheme : kSchemes) {
    if (name == scheme.name) return &scheme;
  }
  for (const Scheme& scheme : kFactorSchemes) {
    if (name == scheme.name) return &scheme;
  }
  return nullptr;
}

const Scheme& find(const std::string& name) {
  if (const Scheme* scheme = try_find(name)) return *scheme;
  throw Error(fmt::format("there is no scheme \"{}\"; there are: {}, {}", name, fmt::join(scheme_names(), ", "),
                          fmt::join(factor_scheme_names(), ", ")));
}

void require(bool right, const std::string& why) {
  if (!right) throw Error(why);
}

}  // namespace

const std::vector<std::string>& scheme_names() {
  static const std::vector<std::string> names = names_of(kSchemes);
  return names;
}

const std::vector<std::string>& factor_scheme_names() {
  static const std::vector<std::string> names = names_of(kFactorSchemes);
  return names;
}

bool uses(const std::string& name, Setting setting) {
  const Scheme* scheme = try_find(name);
  return scheme != nullptr && scheme->uses(setting);
}

std::vector<std::string> schemes_with(Setting setting) {
  std::vector<std::string> all;
  for (const auto* names : {&scheme_names(), &factor_scheme_names()}) {
    std::copy_if(names->begin(), names->end(), std::back_inserter(all),
                 [setting](const std::string& name) { return uses(name, setting); });
  }
  return all;
}

bool has_credits(const std::string& scheme) { return uses(scheme, Setting::credits); }

bool needs_settings(const std::string& scheme) {
  return uses(scheme, Setting::group_size) || uses(scheme, Setting::summation_nodes) || uses(scheme, Setting::topology);
}

bool moves(const std::string& name, Moves what) {
  const Scheme* scheme = try_find(name);
  return scheme != nullptr && scheme->moves == what;
}

bool moves_factors(const std::string& scheme) {
  return moves(scheme, Moves::factors_to_all) || moves(scheme, Moves::factors_to_owner);
}

int default_chunks(const std::string& scheme, const Request& request) { return find(scheme).chunks(request); }

std::vector<int> chunks_to_try(const std::string& name, const Request& request) {
  const Scheme& scheme = find(name);
  if (scheme.chunks_to_try == nullptr) return {scheme.chunks(request)};
  return scheme.chunks_to_try(request);
}

Schedule generate(const std::string& name, const Request& request) {
  const Scheme& scheme = find(name);
  require(request.nodes >= 1 && request.nodes <= kNodesMax,
          fmt::format("{} nodes, not 1 to {}", request.nodes, kNodesMax));
  require(request.group_size >= 1, "a group has at least one node");
  require(request.stripes >= 1 && request.stripes <= 64, "splitstream has 1 to 64 stripes");
  require(request.lanes >= 1 && request.lanes <= 64, "ring:segmented has 1 to 64 lanes");
  if (scheme.uses(Setting::summation_nodes)) {
    require(request.summation_nodes >= 0 && request.summation_nodes <= request.nodes,
            fmt::format("{} has no use for {} summation nodes where there are {} workers: give it 0 to {}", name,
                        request.summation_nodes, request.nodes, request.nodes));
    require(request.nodes + request.summation_nodes <= kNodesMax, fmt::format("more than {} ranks", kNodesMax));
  }
  require(
      request.credits == 0 || (scheme.uses(Setting::credits) && request.credits > 0 && request.credits < request.nodes),
      fmt::format("{} credits for the {} nodes that send to an owner of {}: give it no more credits than that",
                  request.credits, request.nodes - 1, fmt::join(schemes_with(Setting::credits), " or ")));
  require(request.owner >= 0 && (request.owner < request.nodes || !scheme.uses(Setting::owner)),
          fmt::format("{} has ranks 0 to {}, not {}", name, request.nodes - 1, request.owner));
  if (scheme.uses(Setting::topology)) {
    require(request.topology != nullptr, fmt::format("{} needs a topology", name));
    require(request.topology->nodes() == request.nodes,
            fmt::format("the topology has {} nodes, not {}", request.topology->nodes(), request.nodes));
  }
  const int chunks = request.chunks != 0 ? request.chunks : scheme.chunks(request);
  require(chunks >= 1 && chunks <= kChunksMax, fmt::format("{} chunks, not 1 to {}", chunks, kChunksMax));
  const int ranks = request.nodes + (scheme.uses(Setting::summation_nodes) ? request.summation_nodes : 0);
  require_affordable(least_price_of_check(ranks, chunks));  // making it takes as much memory as checking it
  return scheme.make(request, chunks);
}

}  // namespace param_sync::schedule
