#pragma once
/// @file How many nodes a schedule lets send to one owner at a time.

#include "param_sync/schedule/schedule.hpp"

namespace param_sync::schedule {

/// The most messages that can be on their way, at the same time, to one rank that adds them to its own data. A message
/// is on its way from when its op could start to send until the rank has added all of it. It is found for all timings:
/// two messages cannot be on their way together if one starts to be sent only after the other was taken, which lanes,
/// `after` and messages ensure; whether rings have room does not count. The schedule is one that check() passes. Takes
/// memory for ops times ranks.
int senders_at_once(const Schedule& schedule);

}  // namespace param_sync::schedule
