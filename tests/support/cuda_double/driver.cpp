// The functions of the driver that the runtime hands out.
#include "tests/support/cuda_double/machine.hpp"

#include <string_view>

namespace {

using namespace cuda_double;

CUkern_st& kernel_in(CUfunction function) { return *reinterpret_cast<CUkern_st*>(function); }

CUresult ctx_get_current(CUcontext* context) {
  *context = t_has_context ? reinterpret_cast<CUcontext>(&t_has_context) : nullptr;
  return CUDA_SUCCESS;
}

CUresult module_get_loading_mode(CUmoduleLoadingMode* mode) {
  *mode = loads_lazily() ? CU_MODULE_LAZY_LOADING : CU_MODULE_EAGER_LOADING;
  return CUDA_SUCCESS;
}

CUresult kernel_get_library(CUlibrary* library, CUkernel kernel) {
  *library = kernel->library;
  return CUDA_SUCCESS;
}

CUresult library_get_kernel_count(unsigned* count, CUlibrary library) {
  *count = static_cast<unsigned>(library->kernels.size());
  return CUDA_SUCCESS;
}

CUresult library_enumerate_kernels(CUkernel* kernels, unsigned count, CUlibrary library) {
  if (count > library->kernels.size()) return CUDA_ERROR_INVALID_VALUE;
  for (unsigned i = 0; i < count; ++i) kernels[i] = library->kernels[i];
  return CUDA_SUCCESS;
}

/// Of the calling thread's context; where the GPU does not have the kernel yet, this loads it.
CUresult kernel_get_function(CUfunction* function, CUkernel kernel) {
  Call call("cuKernelGetFunction");
  if (!t_has_context) return CUDA_ERROR_INVALID_CONTEXT;
  if (call.ends()) return CUDA_ERROR_UNKNOWN;
  call.machine().load(call.lock(), call.gpu(), *kernel, call.name());
  *function = reinterpret_cast<CUfunction>(kernel);
  return CUDA_SUCCESS;
}

CUresult func_load(CUfunction function) {
  Call call("cuFuncLoad");
  if (call.ends()) return CUDA_ERROR_UNKNOWN;
  call.machine().load(call.lock(), call.gpu(), kernel_in(function), call.name());
  return CUDA_SUCCESS;
}

CUresult func_get_attribute(int* value, CUfunction_attribute, CUfunction function) {
  *value = static_cast<int>(kernel_in(function).stack_bytes);
  return CUDA_SUCCESS;
}

template <class Function>
void* address_of(Function* function) {
  return reinterpret_cast<void*>(function);
}

}  // namespace

extern "C" cudaError_t cudaGetDriverEntryPointByVersion(const char* symbol, void** function, unsigned int,
                                                        unsigned long long,
                                                        enum cudaDriverEntryPointQueryResult* result) {
  Call call("cudaGetDriverEntryPointByVersion");
  if (call.ends()) return call.error();
  constexpr struct {
    std::string_view name;
    void* (*address)();
  } kFunctions[] = {
      {"cuCtxGetCurrent", [] { return address_of(ctx_get_current); }},
      {"cuModuleGetLoadingMode", [] { return address_of(module_get_loading_mode); }},
      {"cuKernelGetLibrary", [] { return address_of(kernel_get_library); }},
      {"cuLibraryGetKernelCount", [] { return address_of(library_get_kernel_count); }},
      {"cuLibraryEnumerateKernels", [] { return address_of(library_enumerate_kernels); }},
      {"cuKernelGetFunction", [] { return address_of(kernel_get_function); }},
      {"cuFuncLoad", [] { return address_of(func_load); }},
      {"cuFuncGetAttribute", [] { return address_of(func_get_attribute); }},
  };
  *function = virtual_memory_function(symbol);
  for (const auto& each : kFunctions) {
    if (each.name == symbol) *function = each.address();
  }
  if (result != nullptr)
    *result = *function != nullptr ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
  return call.end(cudaSuccess);
}
