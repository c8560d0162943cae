#pragma once
/// @file A server of inference requests: its settings, and how it runs.

#include "layout/layout.hpp"
#include "layout/sample_shape.hpp"

#include "gpusock/endpoint.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace param_sync::serving {

struct ServerSettings {
  std::string where;                          ///< as the user wrote it
  gpusock::Endpoint listen_at;                ///< plain TCP
  std::optional<gpusock::Endpoint> training;  ///< whose weights are taken; nothing: `weights`
  std::string from;                           ///< its address as the user wrote it
  std::vector<float> weights;                 ///< of a file
  std::uint64_t pause_ns = 0;                 ///< between two questions to the training
  unsigned blocks = 1;
  unsigned clients = 64;           ///< of all blocks at the same time
  unsigned cohort = 32;            ///< the most requests that are computed together
  std::uint64_t objective_ns = 0;  ///< the most time for a request; 0: any
  std::uint64_t stale_ns = 0;      ///< the greatest age of weights; 0: any
  std::string json_file;           ///< empty: none
};

/// Serves until SIGINT or SIGTERM, then prints what it has served. Returns the program's exit status: 1 if serving has
/// failed. Throws gpusock::Error, and what examples' servers throw if they cannot listen.
int run_server(const ServerSettings& settings, const Layout& layout, const SampleShape& sample);

}  // namespace param_sync::serving
