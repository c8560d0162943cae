#pragma once
// A peer process that does with its connections what it is told.

namespace gpusock::fault {

/// Does what Peer::say() describes until standard input ends. `plain`: on TCP connections of the operating system's,
/// else on gpusock's.
int obey(bool plain);

}  // namespace gpusock::fault
