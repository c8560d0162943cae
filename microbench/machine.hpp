#pragma once
/// @file What the figures were measured on.

#include <fmt/format.h>

#include <string>

namespace bench {

struct MachineFacts {
  std::string device_kind;  ///< "cpu" (the CPU device) or "gpu"
  std::string device_name;  ///< the GPU's name, or the processor's
  std::string cpu_model;
  unsigned cores = 0;  ///< that this process may run on
  std::string kernel;  ///< name, release and architecture
  std::string compiler;
  double load = 0;   ///< average of the last minute, before measuring: above 0 others were busy too
  std::string date;  ///< UTC, ISO 8601
};

/// A sentence for those who read the figures, if half of the processors were busy before; else nothing.
inline std::string warning_of_load(double load, unsigned cores) {
  if (load < 0.5 * cores) return {};
  return fmt::format("the machine was busy before (load {:.2f} on {} cores): on an idle one the figures are better",
                     load, cores);
}

/// Reads them. `gpu`: which, in a build for GPUs.
MachineFacts read_machine_facts(int gpu);

}  // namespace bench
