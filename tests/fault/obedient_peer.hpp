#pragma once
// A peer process that does with its connections what it is told.

#include <gpusock/gpusock.hpp>

namespace gpusock::fault {

/// Does what Peer::say() describes until standard input ends. `plain`: on TCP connections of the operating system's,
/// else on gpusock's.
int obey(bool plain);

/// Of a peer's context. The tests' contexts have the same patience: the first connection after a machine's start, on
/// which both processes load the libraries of RDMA devices, may take longer than the default allows.
Options patient_options();

}  // namespace gpusock::fault
