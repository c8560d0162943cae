#pragma once
/// @file Errors: the public name of plain_types/error.hpp.

#include "plain_types/error.hpp"
