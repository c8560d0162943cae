#pragma once
/// @file What the kinds of layers (layer.hpp) compute: a row for each.

#include "layers/dense.cuh"
#include "layers/layer.hpp"
