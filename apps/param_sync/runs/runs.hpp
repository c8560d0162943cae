#pragma once
/// @file The ways to run: each takes the settings, runs to the end, and returns the program's exit status.
/// All throw gpusock::Error, NodeFailure or Interrupted.

#include "settings/config.hpp"
#include "report/report.hpp"
#include "gpusock/endpoint.hpp"

#include <optional>
#include <string>

namespace param_sync {

/// Runs one node; the others are other processes. Addresses come from --peers, or through --control-fd.
int run_rank(const Config& config);

/// Runs a node that joins others, which train (--join).
int run_joined(const Config& config);

/// Runs one of the nodes that a launcher has started.
int run_launched(Config config);

/// Runs all nodes as threads and contexts of this process.
int run_in_process(const Config& config);

/// Runs the reference without sockets.
int run_serial(const Config& config);

/// Starts one process for each node on this machine, and waits for them.
int run_cluster(const Config& config, const std::string& program);

/// Prints the summary and writes the files that were asked for. Returns 1 if the nodes' weights differ, else 0.
int tell_results(const RunReport& run);

/// Prints where rank 0 publishes its weights, if it does.
void tell_where_published(const std::optional<gpusock::Endpoint>& at);

/// "cpu" or "cuda": the device that the kernels were built for.
std::string device_name();

}  // namespace param_sync
