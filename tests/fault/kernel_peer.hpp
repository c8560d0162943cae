#pragma once
// A peer process whose kernel answers.
#include <string>

namespace gpusock::fault {

/// Listens at the endpoint, in a kernel, says where on standard output, and echoes what the first client says.
int echo_in_kernel(const std::string& endpoint);

}  // namespace gpusock::fault
