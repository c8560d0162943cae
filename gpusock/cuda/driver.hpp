#pragma once
/// @file The few calls of the CUDA driver that have no counterpart in the runtime. The runtime finds them.

#include <cuda.h>

namespace gpusock::cudart {

/// nullptr where the driver has none of that name.
struct Driver {
  CUresult (*ctx_get_current)(CUcontext* context) = nullptr;
  CUresult (*module_get_loading_mode)(CUmoduleLoadingMode* mode) = nullptr;
  CUresult (*kernel_get_library)(CUlibrary* library, CUkernel kernel) = nullptr;  // 12.5
  CUresult (*library_get_kernel_count)(unsigned* count, CUlibrary library) = nullptr;
  CUresult (*library_enumerate_kernels)(CUkernel* kernels, unsigned count, CUlibrary library) = nullptr;
  CUresult (*kernel_get_function)(CUfunction* function, CUkernel kernel) = nullptr;
  CUresult (*func_load)(CUfunction function) = nullptr;
  CUresult (*func_get_attribute)(int* value, CUfunction_attribute attribute, CUfunction function) = nullptr;

  /// That of this machine. Asked for after the first CUDA call.
  static const Driver& get();
};

}  // namespace gpusock::cudart
