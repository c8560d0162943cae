#pragma once
/// @file The few functions of libfabric that are not inline, from the library that is found at run time.

#include <cstddef>
#include <cstdint>

#include <rdma/fabric.h>

namespace gpusock::proxy::fabric {

struct Library {
  int (*getinfo)(std::uint32_t version, const char* node, const char* service, std::uint64_t flags,
                 const fi_info* hints, fi_info** info);
  void (*freeinfo)(fi_info* info);
  fi_info* (*dupinfo)(const fi_info* info);
  int (*fabric)(fi_fabric_attr* attributes, fid_fabric** fabric, void* context);
  int (*open)(std::uint32_t version, const char* name, void* attributes, std::size_t attributes_bytes,
              std::uint64_t flags, fid** opened, void* context);
  const char* (*strerror)(int error);
};

/// The version of libfabric's interface that the code uses; newer libraries still support it.
inline constexpr std::uint32_t kApi = FI_MAJOR_VERSION >= 2 ? FI_VERSION(2, 0) : FI_VERSION(1, 17);

/// Returns nullptr if no library fits; library_problem() says why. Any thread may call.
const Library* library();
const char* library_problem();

}  // namespace gpusock::proxy::fabric
