#pragma once
/// @file The state of one socket: the public name of plain_types/socket_info.hpp.

#include "plain_types/socket_info.hpp"
