#include "param_sync/schedule/schemes.hpp"

#include "param_sync/schedule/check_price.hpp"
#include "param_sync/schedule/factors.hpp"
#include "param_sync/schedule/generators.hpp"
#include "param_sync/schedule/topology.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace param_sync::schedule {
namespace {

struct Scheme {
  const char* name;
  Schedule (*make)(const Request&, int chunks);
  int (*chunks)(const Request&);
};

int one_for_each(const Request& request) { return request.nodes; }
int pipeline(const Request&) { return 16; }

int chunks_of_hierarchy(const Request& request) {
  const int groups = (request.nodes + request.group_size - 1) / request.group_size;
  return std::min(request.nodes, request.group_size) * groups;
}

const Scheme kSchemes[] = {
    {"ps", [](const Request& r, int chunks) { return parameter_server(r.nodes, chunks, r.slots); },
     [](const Request& r) { return 16 * r.nodes; }},
    {"mesh", [](const Request& r, int chunks) { return mesh(r.nodes, chunks); }, one_for_each},
    {"ring", [](const Request& r, int chunks) { return ring(r.nodes, chunks); }, one_for_each},
    {"ring:segmented", [](const Request& r, int chunks) { return segmented_ring(r.nodes, chunks, r.lanes); },
     [](const Request& r) { return 4 * r.nodes; }},
    {"chain", [](const Request& r, int chunks) { return chain(r.nodes, chunks); }, pipeline},
    {"rhd", [](const Request& r, int chunks) { return halving_doubling(r.nodes, chunks); }, one_for_each},
    {"butterfly", [](const Request& r, int chunks) { return butterfly(r.nodes, chunks); },
     [](const Request&) { return 1; }},
    {"tree:binary", [](const Request& r, int chunks) { return binary_tree(r.nodes, chunks); }, pipeline},
    {"tree:double-binary", [](const Request& r, int chunks) { return double_binary_tree(r.nodes, chunks); }, pipeline},
    {"splitstream", [](const Request& r, int chunks) { return split_stream(r.nodes, chunks, r.stripes); },
     [](const Request& r) { return 4 * r.stripes; }},
    {"hierarchical", [](const Request& r, int chunks) { return hierarchical(r.nodes, chunks, r.group_size); },
     chunks_of_hierarchy},
    {"byteps", [](const Request& r, int chunks) { return byteps(r.nodes, chunks, r.summation_nodes); },
     [](const Request& r) { return 16 * r.nodes; }},
    {"ps:even", [](const Request& r, int chunks) { return even_parameter_server(r.nodes, chunks, r.slots); },
     one_for_each},
    {"blink", [](const Request& r, int chunks) { return blink(*r.topology, chunks); },
     [](const Request&) { return 512; }},
};

const Scheme kFactorSchemes[] = {
    {"sfb", [](const Request& r, int chunks) { return factor_broadcast(r.nodes, chunks); }, one_for_each},
    {"adam-fc", [](const Request& r, int chunks) { return factor_server(r.nodes, chunks, r.owner); }, pipeline},
};

template <class Schemes>
std::vector<std::string> names_of(const Schemes& schemes) {
  std::vector<std::string> all;
  for (const Scheme& scheme : schemes) all.emplace_back(scheme.name);
  return all;
}

const Scheme& find(const std::string& name) {
  for (const Scheme& scheme : kSchemes) {
    if (name == scheme.name) return scheme;
  }
  for (const Scheme& scheme : kFactorSchemes) {
    if (name == scheme.name) return scheme;
  }
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

bool has_slots(const std::string& scheme) { return scheme == "ps" || scheme == "ps:even"; }

int default_chunks(const std::string& scheme, const Request& request) { return find(scheme).chunks(request); }

Schedule generate(const std::string& name, const Request& request) {
  const Scheme& scheme = find(name);
  require(request.nodes >= 1 && request.nodes <= kNodesMax,
          fmt::format("{} nodes, not 1 to {}", request.nodes, kNodesMax));
  require(request.group_size >= 1, "a group has at least one node");
  require(request.stripes >= 1 && request.stripes <= 64, "splitstream has 1 to 64 stripes");
  require(request.lanes >= 1 && request.lanes <= 64, "ring:segmented has 1 to 64 lanes");
  if (name == "byteps") {
    require(request.summation_nodes >= 0 && request.summation_nodes <= request.nodes,
            fmt::format("byteps has no use for {} summation nodes where there are {} workers: give it 0 to {}",
                        request.summation_nodes, request.nodes, request.nodes));
    require(request.nodes + request.summation_nodes <= kNodesMax, fmt::format("more than {} ranks", kNodesMax));
  }
  require(
      request.slots == 0 || (has_slots(name) && request.slots > 0 && request.slots < request.nodes),
      fmt::format("{} slots for the {} nodes that send to an owner of ps or ps:even: give it no more slots than that",
                  request.slots, request.nodes - 1));
  require(request.owner >= 0 && (request.owner < request.nodes || name != "adam-fc"),
          fmt::format("adam-fc has ranks 0 to {}, not {}", request.nodes - 1, request.owner));
  if (name == "blink") {
    require(request.topology != nullptr, "blink needs a topology");
    require(request.topology->nodes() == request.nodes,
            fmt::format("the topology has {} nodes, not {}", request.topology->nodes(), request.nodes));
  }
  const int chunks = request.chunks != 0 ? request.chunks : scheme.chunks(request);
  require(chunks >= 1 && chunks <= kChunksMax, fmt::format("{} chunks, not 1 to {}", chunks, kChunksMax));
  const int ranks = request.nodes + (name == "byteps" ? request.summation_nodes : 0);
  require_affordable(least_price_of_check(ranks, chunks));  // making it takes as much memory as checking it
  return scheme.make(request, chunks);
}

}  // namespace param_sync::schedule
