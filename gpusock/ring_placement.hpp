#pragma once
/// @file Where rings lie: the public name of plain_types/ring_placement.hpp.

#include "plain_types/ring_placement.hpp"
