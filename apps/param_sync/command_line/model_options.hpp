#pragma once
/// @file The options that choose the model, and the data that it is for. All commands that have a model take them.

#include "settings/config.hpp"

#include "program/arguments.hpp"

#include <string>

namespace param_sync {

inline constexpr const char* kHiddenNotGiven = "not given";  ///< an empty --hidden means: no hidden layers

/// Adds --model, --hidden and --batch-norm. `hidden` gets the text; pass it to the functions below after parsing.
void add_model_options(gpusock::program::Arguments& arguments, Config& config, std::string& hidden);

/// Says what does not go with --model; empty if all does.
std::string problem_of_model_options(const std::string& hidden, const Config& config);

/// Puts the widths into `config`, if they were given.
void take_hidden(const std::string& hidden, Config& config);

}  // namespace param_sync
