#pragma once
// A peer process whose kernel answers.
#include <string>

namespace gpusock::fault {

/// Listens at the endpoint, in a kernel, says where on standard output, and echoes what the first client says. Takes
/// "stop" and "go_on" from standard input, and says when that is done: the host's threads do nothing between them. So
/// a GPU sees a process that was stopped (SIGSTOP): its kernels run on. Those of the CPU device are threads of the
/// process, which the signal would stop.
int echo_in_kernel(const std::string& endpoint);

}  // namespace gpusock::fault
