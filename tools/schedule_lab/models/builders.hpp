#pragma once
/// @file The models, each made by a function; and layers that several have.

#include "models/model.hpp"

namespace param_sync::models {

Model vgg16();
Model vgg19_22k();
Model resnet50();
Model gpt2();

/// `outputs` x `inputs` weights and a bias for each output, used once for each sample.
Layer fully_connected(const std::string& name, int outputs, int inputs);

}  // namespace param_sync::models
