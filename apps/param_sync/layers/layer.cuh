#pragma once
/// @file What the kinds of layers (layer.hpp) compute. Each kind has an include here.

#include "layers/dense.cuh"
#include "layers/layer.hpp"
