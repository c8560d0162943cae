#pragma once
/// @file A node of a cluster as its parent sees it: a process, and the channel to it.

#include "settings/config.hpp"
#include "report/report.hpp"
#include "runs/control.hpp"

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace param_sync {

/// Killed, if it still runs, when this goes.
struct NodeProcess {
  pid_t pid;
  ProcessChannel control;
  std::string listening;              ///< where, once it has told
  std::optional<NodeReport> report;   ///< once it has ended well
  std::vector<std::uint32_t> widths;  ///< of its model's layers; comes with the report
  bool lost_a_node = false;           ///< and waits until the others have seen that too
  bool reported_progress = false;     ///< when it lost that
  bool channel_ended = false;
  bool exited = false;                                              ///< and has been waited for
  std::optional<std::chrono::steady_clock::time_point> stopped_at;  ///< by a signal; nothing: it runs

  NodeProcess(pid_t process, int fd) : pid(process), control(fd) {}
  NodeProcess(NodeProcess&& other) noexcept;
  NodeProcess& operator=(NodeProcess&&) = delete;
  ~NodeProcess();
};

/// Starts `program` as node `rank` of `config`. Throws gpusock::Error.
NodeProcess start_node(const Config& config, const std::string& program, int rank);

}  // namespace param_sync
