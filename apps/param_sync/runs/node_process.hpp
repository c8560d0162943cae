#pragma once
/// @file A node of a cluster as its parent sees it: a process, and the control socket to it.

#include "layout/sample_shape.hpp"
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

/// The destructor kills the process if it still runs, and waits until the operating system has freed it.
struct NodeProcess {
  pid_t pid;
  ControlSocket control;
  std::string listening;             ///< its address, after it has told that
  std::optional<NodeReport> report;  ///< set after it has trained to its end
  SampleShape sample;                ///< of its data; it comes with the report
  bool lost_a_node = false;          ///< true while it waits until the others have seen the loss, too
  bool reported_progress = false;    ///< true if it reported its progress with that loss
  bool control_ended = false;
  bool given_up = false;  ///< true if it was stopped, and killed when the others had ended without it
  bool exited = false;    ///< true once it is seen that it has ended
  std::optional<std::chrono::steady_clock::time_point> stopped_at;  ///< when a signal stopped it; nothing: it runs

  NodeProcess(pid_t process, int fd) : pid(process), control(fd) {}
  NodeProcess(NodeProcess&& other) noexcept;
  NodeProcess& operator=(NodeProcess&&) = delete;
  ~NodeProcess();
};

/// Starts `program` as node `rank` of `config`. Throws gpusock::Error.
NodeProcess start_node(const Config& config, const std::string& program, int rank);

}  // namespace param_sync
