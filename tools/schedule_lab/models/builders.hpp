#pragma once
/// @file Functions that make the models, and layers that several models have.

#include "models/model.hpp"

namespace param_sync::models {

Model vgg16();
Model vgg19_22k();
Model resnet50();
Model gpt2();

/// Returns a layer with `outputs` x `inputs` weights and a bias for each output, which each sample uses once.
Layer fully_connected(const std::string& name, int outputs, int inputs);

}  // namespace param_sync::models
