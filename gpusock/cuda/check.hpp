#pragma once
/// @file The CUDA runtime's errors, and the calling thread's current GPU.

#include "gpusock/error.hpp"

#include <cuda_runtime_api.h>

#include <string>

namespace gpusock::cudart {

/// Returns a call's error, and clears it in the runtime, which remembers it for the thread (also cudaErrorNotReady):
/// the program's own next cudaGetLastError() must not report it. (An error that ended the CUDA context stays.)
inline cudaError_t taken(cudaError_t error) {
  if (error != cudaSuccess) (void)cudaGetLastError();
  return error;
}

inline std::string describe(cudaError_t error) {
  return std::string(cudaGetErrorName(error)) + ": " + cudaGetErrorString(error);
}

/// Throws Error with this errno if a call failed.
inline void check(cudaError_t error, int errno_value, const std::string& what) {
  if (taken(error) != cudaSuccess) throw Error(errno_value, what + ": " + describe(error));
}

/// Makes a GPU the calling thread's current one while this object lives. Then the program's own choice is restored. But
/// a thread that had not used CUDA keeps this GPU, because another GPU would get a CUDA context that the program did
/// not ask for.
class CurrentGpu {
 public:
  explicit CurrentGpu(int gpu);
  ~CurrentGpu();
  CurrentGpu(const CurrentGpu&) = delete;
  CurrentGpu& operator=(const CurrentGpu&) = delete;

 private:
  int before_ = 0;
  bool comes_back_ = false;
};

}  // namespace gpusock::cudart
