#pragma once
/// @file The machine on which the figures were measured.

#include <fmt/format.h>

#include <string>

namespace bench {

struct MachineFacts {
  std::string device_kind;  ///< "cpu" (the CPU device) or "gpu"
  std::string device_name;  ///< the GPU's name, or the processor's
  std::string cpu_model;
  unsigned cores = 0;  ///< on which this process may run
  std::string kernel;  ///< name, release and architecture
  std::string compiler;
  double load = 0;   ///< average of the last minute before measuring: above 0, other programs were busy
  std::string date;  ///< UTC, ISO 8601
};

/// A warning for readers of the figures, if half of the processors or more were busy before; else empty.
inline std::string warning_of_load(double load, unsigned cores) {
  if (load < 0.5 * cores) return {};
  return fmt::format("the machine was busy before (load {:.2f} on {} cores): on an idle one the figures are better",
                     load, cores);
}

/// Reads the facts. `gpu` is the number of the GPU, in a build for GPUs.
MachineFacts read_machine_facts(int gpu);

}  // namespace bench
