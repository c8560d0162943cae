#pragma once
/// @file The figures of a folder with a training's results, as data and gnuplot scripts.

#include "simulate/training.hpp"
#include "tune/fit.hpp"

#include <string>
#include <string_view>
#include <vector>

namespace param_sync::figures {

/// NAME.gp draws NAME.svg from NAME.dat, or from a file of the training.
struct Figure {
  std::string name;
  std::string script;
  std::string data;  ///< empty: it uses another file
};

inline constexpr const char* kSeriesFile = "param_sync.tsv";  ///< of --series
inline constexpr const char* kTraceFile = "trace.json";       ///< of --trace

/// Loss and accuracy over time and over bytes. `series`: what kSeriesFile holds. Throws schedule::Error.
Figure loss(const std::string& series);

/// What the layers of each rank did in the last step of a trace. `trace`: what kTraceFile holds. Throws
/// schedule::Error.
Figure layers(std::string_view trace);

/// The efficiency of training over numbers of nodes and bandwidths, in virtual time. Of `settings`, nodes and the
/// network's bandwidth are not used. Throws schedule::Error where the scheme cannot be made.
Figure efficiency(const models::Model& model, simulate::TrainingSettings settings, const std::vector<int>& nodes,
                  const std::vector<double>& gigabits);

/// Predicted against measured times. `about`: what was measured, for the title.
Figure predicted(const std::vector<tune::PredictedTime>& times, const std::string& about);

}  // namespace param_sync::figures
