#pragma once
/// @file libfabric's few functions that are not inline, from the library as it is found at run time.

#include <cstdint>

#include <rdma/fabric.h>

namespace gpusock::proxy::fabric {

struct Library {
  int (*getinfo)(std::uint32_t version, const char* node, const char* service, std::uint64_t flags, const fi_info* hints,
                 fi_info** info);
  void (*freeinfo)(fi_info* info);
  fi_info* (*dupinfo)(const fi_info* info);
  int (*fabric)(fi_fabric_attr* attributes, fid_fabric** fabric, void* context);
  const char* (*strerror)(int error);
};

/// nullptr where there is none that fits; library_problem() says why. Any thread.
const Library* library();
const char* library_problem();

}  // namespace gpusock::proxy::fabric
