#pragma once
/// @file Counts how many nodes a schedule lets send to one owner at the same time.

#include "param_sync/schedule/schedule.hpp"

namespace param_sync::schedule {

/// Returns the largest number of messages that can be in flight at the same time to one rank that adds them to its own
/// data. A message is in flight from when its op could start to send until the rank has added all of it. The result
/// holds for all timings: two messages cannot be in flight together if lanes, `after` and messages ensure that one op
/// starts to send only after the other message was added. It ignores whether rings have room. check() must accept the
/// schedule. Takes memory in proportion to the number of ops times the number of lanes that add.
int senders_at_once(const Schedule& schedule);

}  // namespace param_sync::schedule
