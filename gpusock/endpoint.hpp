#pragma once
/// @file Endpoints: the public name of plain_types/endpoint.hpp.

#include "plain_types/endpoint.hpp"
