#pragma once
/// @file Which directions of which channels the ops of a lane use.

#include "param_sync/executor/program.hpp"

namespace param_sync::executor {

/// Calls `use(channel, sends)` for each message of each op: `sends` is false if the op receives the message.
template <class Use>
void for_each_channel_use(const schedule::Lane& lane, Use use) {
  for (const schedule::Op& op : lane) {
    if (op.receives()) use(Channel{op.from, op.channel}, false);
    if (op.sends()) use(Channel{op.to, op.channel}, true);
  }
}

}  // namespace param_sync::executor
