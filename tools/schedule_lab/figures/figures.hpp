#pragma once
/// @file Makes figures of a training's results as data and gnuplot scripts.

#include "simulate/training.hpp"
#include "tune/fit.hpp"

#include <string>
#include <string_view>
#include <vector>

namespace param_sync::figures {

/// A figure. NAME.gp draws NAME.svg from NAME.dat, or from a file of the training.
struct Figure {
  std::string name;
  std::string script;
  std::string data;  ///< contents of NAME.dat; empty if the script uses a file of the training
};

inline constexpr const char* kSeriesFile = "param_sync.tsv";  ///< the file that --series writes
inline constexpr const char* kTraceFile = "trace.json";       ///< the file that --trace writes

/// Shows loss and accuracy over time and over bytes. `series` is the text of kSeriesFile. Throws schedule::Error.
Figure loss(const std::string& series);

/// Shows what the layers of each rank did in the last step of a trace. `trace` is the text of kTraceFile. Throws
/// schedule::Error.
Figure layers(std::string_view trace);

/// Shows the efficiency of training in virtual time over numbers of nodes and bandwidths. Ignores the nodes and the
/// network bandwidth of `settings`. Throws schedule::Error if the scheme cannot be made.
Figure efficiency(const models::Model& model, simulate::TrainingSettings settings, const std::vector<int>& nodes,
                  const std::vector<double>& gigabits);

/// Shows predicted against measured times. `about` says in the title what was measured.
Figure predicted(const std::vector<tune::PredictedTime>& times, const std::string& about);

}  // namespace param_sync::figures
