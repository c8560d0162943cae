# Options and the functions that every folder uses.
set(GPUSOCK_WITH_CUDA auto CACHE STRING "Build programs for CUDA GPUs: auto (if nvcc is found), on, off")
set_property(CACHE GPUSOCK_WITH_CUDA PROPERTY STRINGS auto on off)
set(GPUSOCK_WITH_FABRIC auto CACHE STRING "The fabric link, on libfabric: auto (if its headers are found), on, off")
set_property(CACHE GPUSOCK_WITH_FABRIC PROPERTY STRINGS auto on off)
set(GPUSOCK_WITH_VERBS auto CACHE STRING "Build the verbs link (RDMA, libibverbs): auto (if it is found), on, off")
set_property(CACHE GPUSOCK_WITH_VERBS PROPERTY STRINGS auto on off)
set(GPUSOCK_SANITIZE "" CACHE STRING "Sanitizers for everything built, as in -fsanitize= (address,undefined or thread)")
set(GPUSOCK_TESTS all CACHE STRING "Which tests to build: all, or the share of ./run test: under a sanitizer those that find most in it, elsewhere most, with short studies")
set_property(CACHE GPUSOCK_TESTS PROPERTY STRINGS all share)
option(GPUSOCK_PRECOMPILE "Parse once what most units include: by Clang, under a sanitizer (./run asks for it)" OFF)
set(GPUSOCK_CUDA_ARCHITECTURES "" CACHE STRING "GPU architectures, as CMAKE_CUDA_ARCHITECTURES; empty: machine code for 8.0 and 9.0, and PTX")

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()

if(NOT GPUSOCK_TESTS MATCHES "^(all|share)$")
  message(FATAL_ERROR "GPUSOCK_TESTS is \"${GPUSOCK_TESTS}\": set it to all or share.")
endif()

# CUDA: an option asked for and not to be had is an error; 'auto' takes what there is and says so.
set(GPUSOCK_CUDA OFF)
if(NOT GPUSOCK_WITH_CUDA STREQUAL "off")
  include(CheckLanguage)
  if(NOT CMAKE_CUDA_COMPILER)
    unset(CMAKE_CUDA_COMPILER CACHE) # check_language() remembers that there was none: one may have been installed since
  endif()
  if(NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX} AND EXISTS /usr/local/cuda/bin/nvcc)
    set(CMAKE_CUDA_COMPILER /usr/local/cuda/bin/nvcc)
  endif()
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    set(gpusock_cuda_code "")
    if(GPUSOCK_CUDA_ARCHITECTURES STREQUAL "")
      # All of it from one PTX, that of 8.0: a quarter less of nvcc's time than with one for each. No source of ours has other code for
      # a newer GPU, and what the machine code is made for is the assembler's business.
      set(CMAKE_CUDA_ARCHITECTURES OFF)
      set(gpusock_cuda_code " --generate-code=arch=compute_80,code=[sm_80,sm_90,compute_80]")
    else()
      set(CMAKE_CUDA_ARCHITECTURES "${GPUSOCK_CUDA_ARCHITECTURES}")
    endif()
    enable_language(CUDA)
    string(APPEND CMAKE_CUDA_FLAGS "${gpusock_cuda_code}")
    # A fifth of the machine code's size in programs. What unpacks it is in every driver that runs programs of CUDA 13, not in older ones.
    if(CMAKE_CUDA_COMPILER_ID STREQUAL "NVIDIA" AND CMAKE_CUDA_COMPILER_VERSION VERSION_GREATER_EQUAL 13.0)
      string(APPEND CMAKE_CUDA_FLAGS " --compress-mode=size")
    endif()
    # A kernel that calls a function of the host would fail on a GPU. nvcc only warns of it where the call is in a template.
    if(CMAKE_CUDA_COMPILER_ID STREQUAL "NVIDIA" AND BUILD_TESTING)
      string(APPEND CMAKE_CUDA_FLAGS " --diag-error=20013,20014,20015")
    endif()
    include(gpusockCuda20)
    set(CMAKE_CUDA_STANDARD 20) # behind enable_language: its test program is made before the standards are known
    set(CMAKE_CUDA_STANDARD_REQUIRED ON)
    find_package(CUDAToolkit 12.4 REQUIRED)
    set(GPUSOCK_CUDA ON)
  elseif(GPUSOCK_WITH_CUDA STREQUAL "on")
    message(FATAL_ERROR "GPUSOCK_WITH_CUDA=on, but no nvcc was found. Install the CUDA Toolkit 12.4 or newer, set CUDACXX to its nvcc, "
                        "or configure with GPUSOCK_WITH_CUDA=off to build for the CPU device.")
  endif()
endif()

# libfabric is loaded when it is first used (see host_proxy/links/fabric/libfabric_port.hpp): what is taken from it here are its headers, and
# which versions of its functions go with them.
set(GPUSOCK_FABRIC OFF)
if(NOT GPUSOCK_WITH_FABRIC STREQUAL "off")
  find_path(GPUSOCK_FABRIC_INCLUDE rdma/fi_rma.h DOC "Folder that holds rdma/fi_rma.h (Debian: libfabric-dev)")
  find_library(GPUSOCK_FABRIC_LIBRARY fabric DOC "libfabric.so, of those headers")
  if(GPUSOCK_FABRIC_INCLUDE AND GPUSOCK_FABRIC_LIBRARY)
    set(GPUSOCK_FABRIC ON)
    execute_process(COMMAND ${CMAKE_READELF} --dyn-syms --wide ${GPUSOCK_FABRIC_LIBRARY}
                    OUTPUT_VARIABLE gpusock_fabric_symbols COMMAND_ERROR_IS_FATAL ANY)
    set(GPUSOCK_FABRIC_DEFINITIONS "")
    foreach(function getinfo freeinfo dupinfo fabric open strerror)
      if(NOT gpusock_fabric_symbols MATCHES " fi_${function}@@([A-Z0-9_.]+)")
        message(FATAL_ERROR "${GPUSOCK_FABRIC_LIBRARY} has no fi_${function}: it is no libfabric. Set GPUSOCK_FABRIC_LIBRARY to the one of "
                            "${GPUSOCK_FABRIC_INCLUDE}/rdma, or configure with GPUSOCK_WITH_FABRIC=off.")
      endif()
      string(TOUPPER ${function} gpusock_fabric_name)
      list(APPEND GPUSOCK_FABRIC_DEFINITIONS "GPUSOCK_FI_${gpusock_fabric_name}=\"${CMAKE_MATCH_1}\"")
    endforeach()
  elseif(GPUSOCK_WITH_FABRIC STREQUAL "on")
    message(FATAL_ERROR "GPUSOCK_WITH_FABRIC=on, but libfabric's headers were not found. Install libfabric-dev, set "
                        "GPUSOCK_FABRIC_INCLUDE and GPUSOCK_FABRIC_LIBRARY, or configure with GPUSOCK_WITH_FABRIC=off.")
  endif()
endif()

# libcu++ (cuda::atomic_ref): from the CUDA Toolkit, else from Debian's libcu++-dev.
find_package(Threads REQUIRED)
if(GPUSOCK_CUDA)
  set(GPUSOCK_LIBCUDACXX_INCLUDE "" CACHE INTERNAL "")
else()
  find_path(GPUSOCK_LIBCUDACXX_INCLUDE cuda/atomic PATHS /usr/include /usr/local/cuda/include/cccl /usr/local/cuda/include
            DOC "Folder that holds cuda/atomic" REQUIRED)
endif()

# RDMA: libibverbs and librdmacm of rdma-core.
set(GPUSOCK_VERBS OFF)
if(NOT GPUSOCK_WITH_VERBS STREQUAL "off")
  find_library(GPUSOCK_IBVERBS_LIBRARY ibverbs)
  find_library(GPUSOCK_RDMACM_LIBRARY rdmacm)
  find_path(GPUSOCK_RDMACM_INCLUDE rdma/rdma_cma.h) # looked for again while it is missing, which a compiler's check is not
  mark_as_advanced(GPUSOCK_IBVERBS_LIBRARY GPUSOCK_RDMACM_LIBRARY GPUSOCK_RDMACM_INCLUDE)
  if(GPUSOCK_IBVERBS_LIBRARY AND GPUSOCK_RDMACM_LIBRARY AND GPUSOCK_RDMACM_INCLUDE)
    set(GPUSOCK_VERBS ON)
  elseif(GPUSOCK_WITH_VERBS STREQUAL "on")
    message(FATAL_ERROR "GPUSOCK_WITH_VERBS=on, but libibverbs and librdmacm were not found. Install libibverbs-dev and librdmacm-dev, "
                        "or configure with GPUSOCK_WITH_VERBS=off to build without the verbs link.")
  endif()
endif()

# Programs look for libraries in ../lib beside their own folder first: this is what makes the folder of `./run bundle` run
# anywhere. RPATH, not RUNPATH, since it must hold for the libraries' libraries too.
set(CMAKE_BUILD_RPATH "\$ORIGIN/../lib")
add_link_options(LINKER:--disable-new-dtags)

set(gpusock_warnings -Wall -Wextra -Wshadow -Wnon-virtual-dtor -Woverloaded-virtual -Wno-unknown-pragmas)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  list(APPEND gpusock_warnings -Wno-restrict) # GCC 12 sees overlaps in operator+ of std::string where there are none
endif()
add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:${gpusock_warnings}>")
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_UNITY_BUILD)
  # A unit takes a gigabyte then, not three quarters of one, and GCC no tenth of its time to look for memory that it may reuse.
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:--param=ggc-min-heapsize=524288>)
endif()
if(GPUSOCK_SANITIZE)
  # Tests compile once and run for seconds: with a sanitizer's checks, the optimizer takes longer than it saves. Fuzzers run for
  # long. Null pointers fault by themselves. (Clang instruments in half of GCC's time, and so the presets asan and tsan have it,
  # which also shows that the project compiles with Clang.)
  set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O0 -g1")
  if(GPUSOCK_SANITIZE MATCHES "fuzzer")
    set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O1 -g1")
  endif()
  add_compile_options(-fsanitize=${GPUSOCK_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  if(GPUSOCK_SANITIZE MATCHES "undefined")
    add_compile_options(-fno-sanitize=null,vptr)
  endif()
  add_link_options(-fsanitize=${GPUSOCK_SANITIZE})
  if(GPUSOCK_SANITIZE MATCHES "thread")
    # ThreadSanitizer does not model stand-alone fences. Ours guard no data: they decide who wakes the proxy (E1, E2 in
    # host_proxy/proxy/sleeper.hpp), or are a kernel's own __threadfence().
    add_compile_options($<$<CXX_COMPILER_ID:GNU>:-Wno-tsan>)
  endif()
endif()

# gpusock_headers(TARGET SCOPE PATHS...): the target, and for PUBLIC or INTERFACE those that link it, may include these folders and
# files of the source tree, as "ringbuf/atomics.hpp". They get an include directory that holds nothing else, so that what includes a
# header of a target that it does not link is not compiled.
file(REMOVE_RECURSE "${PROJECT_BINARY_DIR}/include") # what it holds are links
function(gpusock_headers target scope)
  string(TOLOWER "${scope}" directory)
  set(directory "${PROJECT_BINARY_DIR}/include/${target}/${directory}")
  foreach(path IN LISTS ARGN)
    cmake_path(GET path PARENT_PATH folder)
    file(MAKE_DIRECTORY "${directory}/${folder}")
    file(CREATE_LINK "${PROJECT_SOURCE_DIR}/${path}" "${directory}/${path}" SYMBOLIC)
  endforeach()
  target_include_directories(${target} ${scope} "$<BUILD_INTERFACE:${directory}>")
  if(CMAKE_CXX_FLAGS MATCHES "--coverage") # lines are counted in the headers, not in the links to them
    target_compile_options(${target} ${scope} "$<BUILD_INTERFACE:-fprofile-prefix-map=${directory}=${PROJECT_SOURCE_DIR}>")
  endif()
endfunction()

# gpusock_optimize_less(TARGET...): they plan, start and print. More optimization would cost more of the compiler's time than it saves.
function(gpusock_optimize_less)
  foreach(target IN LISTS ARGN)
    target_compile_options(${target} PRIVATE $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<CONFIG:Release>>:-O1>)
  endforeach()
endfunction()

# gpusock_polls(TARGET...): they look at memory again and again, which under ThreadSanitizer takes most of the tests' time. Optimizing them
# there costs the compiler less than it saves.
function(gpusock_polls)
  if(NOT GPUSOCK_SANITIZE MATCHES "thread")
    return()
  endif()
  foreach(target IN LISTS ARGN)
    target_compile_options(${target} PRIVATE $<$<CONFIG:RelWithDebInfo>:-O1>)
    set_target_properties(${target} PROPERTIES DISABLE_PRECOMPILE_HEADERS ON) # which are for code that is not optimized
  endforeach()
endfunction()

# gpusock_add_program(NAME SOURCES... [LIBRARIES ...]): a program whose kernels are compiled for this build's device.
# .cu sources are C++ for the CPU device and CUDA for GPUs.
function(gpusock_add_program name)
  cmake_parse_arguments(arg "" "" "SOURCES;LIBRARIES" ${ARGN})
  add_executable(${name} ${arg_SOURCES})
  gpusock_device_sources(${arg_SOURCES})
  target_link_libraries(${name} PRIVATE gpusock::gpusock ${arg_LIBRARIES})
endfunction()

function(gpusock_device_sources)
  foreach(source IN LISTS ARGN)
    if(source MATCHES "\\.cu$" AND NOT GPUSOCK_CUDA)
      set_source_files_properties(${source} PROPERTIES LANGUAGE CXX)
    endif()
  endforeach()
endfunction()

# gpusock_unite(VARIABLE NAME SOURCES...): sets VARIABLE to the path of a file NAME that includes all the .cu sources. CMake itself
# unites CUDA sources from 3.31 on only, and most of nvcc's time goes to the headers that all of them include.
function(gpusock_unite variable name)
  list(TRANSFORM ARGN REPLACE "(.+)" "#include \"${CMAKE_CURRENT_SOURCE_DIR}/\\1\"\n")
  list(JOIN ARGN "" includes)
  file(CONFIGURE OUTPUT ${name} CONTENT "${includes}")
  set(${variable} "${CMAKE_CURRENT_BINARY_DIR}/${name}" PARENT_SCOPE)
endfunction()

function(gpusock_print_summary)
  if(GPUSOCK_VERBS)
    message(STATUS "gpusock: with the verbs link (${GPUSOCK_IBVERBS_LIBRARY})")
  elseif(GPUSOCK_WITH_VERBS STREQUAL "auto")
    message(STATUS "gpusock: without the verbs link (no libibverbs and librdmacm found)")
  else()
    message(STATUS "gpusock: without the verbs link (GPUSOCK_WITH_VERBS=${GPUSOCK_WITH_VERBS})")
  endif()
  if(GPUSOCK_CUDA)
    message(STATUS "gpusock: programs are built for CUDA GPUs (${CMAKE_CUDA_COMPILER_VERSION})")
  elseif(GPUSOCK_WITH_CUDA STREQUAL "auto")
    message(STATUS "gpusock: programs are built for the CPU device (no nvcc found)")
  else()
    message(STATUS "gpusock: programs are built for the CPU device (GPUSOCK_WITH_CUDA=${GPUSOCK_WITH_CUDA})")
  endif()
  if(GPUSOCK_FABRIC)
    message(STATUS "gpusock: the fabric link is built in (${GPUSOCK_FABRIC_LIBRARY}, loaded when it is first used)")
  elseif(GPUSOCK_WITH_FABRIC STREQUAL "auto")
    message(STATUS "gpusock: no fabric link (no libfabric found; Debian: libfabric-dev)")
  else()
    message(STATUS "gpusock: no fabric link (GPUSOCK_WITH_FABRIC=off)")
  endif()
endfunction()
