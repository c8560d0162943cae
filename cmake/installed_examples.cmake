# The examples as a project outside of gpusock's repository: cmake -S . -B BUILD -DCMAKE_PREFIX_PATH=PREFIX, then cmake --build BUILD. For
# GPUs with -DGPUSOCK_DEVICE=cuda, where the package was built with nvcc. Also needs CLI11 and zlib (libcli11-dev, zlib1g-dev).
cmake_minimum_required(VERSION 3.25)
project(gpusock_examples LANGUAGES CXX)
if(GPUSOCK_DEVICE STREQUAL "cuda")
  enable_language(CUDA)
endif()
find_package(gpusock REQUIRED)
find_package(CLI11 REQUIRED)
find_package(ZLIB REQUIRED)

# What the examples share beside gpusock: command lines, signals, and what becomes of their output.
set(shared "${CMAKE_CURRENT_SOURCE_DIR}/../program")
add_library(program STATIC "${shared}/arguments.cpp" "${shared}/run.cpp" "${shared}/stop_signals.cpp" "${shared}/socket_failure.cpp")
target_include_directories(program PUBLIC "${CMAKE_CURRENT_SOURCE_DIR}/..")
target_compile_definitions(program PRIVATE "GPUSOCK_VERSION=\"${gpusock_VERSION}\"")
target_link_libraries(program PUBLIC gpusock::gpusock PRIVATE CLI11::CLI11)

foreach(name all_to_all echo_server file_sender http_client matmul_server http_server redis_client scheduled_lasso)
  set(source ${name}.cu)
  if(IS_DIRECTORY "${CMAKE_CURRENT_SOURCE_DIR}/${name}")
    set(source ${name}/main.cu)
  endif()
  add_executable(${name} ${source})
  gpusock_device_sources(${source})
  target_link_libraries(${name} PRIVATE program gpusock::gpusock)
endforeach()
target_link_libraries(file_sender PRIVATE ZLIB::ZLIB)

foreach(name graph_programs matrix_completion sparse_regression)
  add_executable(${name} ${name}.cu)
  gpusock_device_sources(${name}.cu)
  target_link_libraries(${name} PRIVATE program gpusock::param_sync)
endforeach()

add_executable(all_reduce all_reduce.cpp)
target_link_libraries(all_reduce PRIVATE program gpusock::param_sync)
