# CMake older than 3.26 does not know that nvcc 12 and newer compile C++20. Included behind enable_language(CUDA).
if(CMAKE_CUDA_COMPILER_ID STREQUAL "NVIDIA" AND NOT "cuda_std_20" IN_LIST CMAKE_CUDA_COMPILE_FEATURES)
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
  set(CMAKE_CUDA20_COMPILE_FEATURES "cuda_std_20")
  list(APPEND CMAKE_CUDA_COMPILE_FEATURES "cuda_std_20")
endif()
