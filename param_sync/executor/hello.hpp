#pragma once
/// @file What two ranks tell each other on each of their channels.

#include "param_sync/executor/failure.hpp"
#include "param_sync/wire/hello.hpp"

namespace param_sync::executor {

/// Of each side of a channel.
using ChannelHello = Hello<ChannelHelloField, kChannelHelloFields, 0x65786563536d6150, 3>;  // "PaScexe"

}  // namespace param_sync::executor
