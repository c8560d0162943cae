# Installs the libraries, their public headers, the programs, and what find_package(gpusock) and pkg-config read.
include(CMakePackageConfigHelpers)

# Two components: `development` (libraries and headers) and `tools` (programs and their man pages). GpusockPackages makes a .deb of each.
set(CMAKE_INSTALL_DEFAULT_COMPONENT_NAME development)

set(gpusock_package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/gpusock")
set(gpusock_headers_dir "${CMAKE_INSTALL_INCLUDEDIR}/gpusock") # the folder that consumers search: <gpusock/gpusock.hpp> is in it

set(gpusock_programs "")
set(gpusock_libraries gpusock_ringbuf cpu_device gpusock_cuda_driver gpusock_types gpusock_table gpusock_host_proxy gpusock_cpu)
if(GPUSOCK_CUDA)
  list(APPEND gpusock_libraries gpusock_cuda)
endif()
if(GPUSOCK_VERBS)
  list(APPEND gpusock_libraries gpusock_rdma)
endif()
if(NOT GPUSOCK_SANITIZE) # there only what tests need is built of it
  list(APPEND gpusock_libraries param_sync_schedule param_sync_cost param_sync_executor param_sync_bootstrap param_sync_membership param_sync_group)
  get_property(headers GLOBAL PROPERTY PARAM_SYNC_API)
  foreach(header IN LISTS headers)
    cmake_path(GET header PARENT_PATH folder)
    install(FILES "${header}" DESTINATION "${gpusock_headers_dir}/${folder}")
  endforeach()
endif()
add_custom_target(gpusock_development DEPENDS ${gpusock_libraries}) # what the component `development` installs
install(TARGETS ${gpusock_libraries} EXPORT gpusockTargets ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}")
foreach(program param_sync gpusock-doctor gpusock-top gpusock-bench)
  if(TARGET ${program}) # sanitized builds have only those that a sanitizer has something to say about
    install(TARGETS ${program} RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}" COMPONENT tools)
    list(APPEND gpusock_programs ${program})
  endif()
endforeach()
foreach(rival param_sync-mpi param_sync-gloo) # `param_sync bench --beside` looks for them beside itself
  if(TARGET ${rival})
    install(TARGETS ${rival} RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}" COMPONENT tools)
  endif()
endforeach()
install(DIRECTORY "${PROJECT_BINARY_DIR}/man/" DESTINATION "${CMAKE_INSTALL_MANDIR}/man1" COMPONENT tools OPTIONAL
        FILES_MATCHING PATTERN "*.1.gz")
install(EXPORT gpusockTargets NAMESPACE gpusock:: DESTINATION "${gpusock_package_dir}")

install(DIRECTORY ringbuf plain_types socket_table cpu_device gpusock DESTINATION "${gpusock_headers_dir}"
        FILES_MATCHING PATTERN "*.hpp" PATTERN "*.cuh" PATTERN "*.inl" PATTERN "*.cu.h" PATTERN "cuda_runtime.h"
        PATTERN context EXCLUDE PATTERN cpu EXCLUDE PATTERN cuda EXCLUDE PATTERN tools EXCLUDE)

# What a user reads: as in the repository, so that the links from one document to another lead somewhere.
set(gpusock_documents_dir "${CMAKE_INSTALL_DATADIR}/doc/gpusock")
install(FILES README.md DESTINATION "${gpusock_documents_dir}")
install(DIRECTORY docs examples DESTINATION "${gpusock_documents_dir}" PATTERN api EXCLUDE PATTERN CMakeLists.txt EXCLUDE)
# The examples are a project of their own there, with the helpers that they share.
install(FILES cmake/installed_examples.cmake DESTINATION "${gpusock_documents_dir}/examples" RENAME CMakeLists.txt)
install(DIRECTORY program DESTINATION "${gpusock_documents_dir}" PATTERN CMakeLists.txt EXCLUDE)
install(CODE "set(folder \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${gpusock_documents_dir}\")
  set(headers \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${gpusock_headers_dir}\")
  include(\"${PROJECT_SOURCE_DIR}/cmake/InstallDocuments.cmake\")")

configure_package_config_file(cmake/gpusockConfig.cmake.in "${PROJECT_BINARY_DIR}/gpusockConfig.cmake"
                              INSTALL_DESTINATION "${gpusock_package_dir}")
write_basic_package_version_file("${PROJECT_BINARY_DIR}/gpusockConfigVersion.cmake" COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/gpusockConfig.cmake" "${PROJECT_BINARY_DIR}/gpusockConfigVersion.cmake"
              cmake/gpusockCuda20.cmake
        DESTINATION "${gpusock_package_dir}")

file(RELATIVE_PATH gpusock_pc_to_prefix "/prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/prefix") # so that it may be moved
set(gpusock_pc_verbs "")
if(GPUSOCK_VERBS)
  set(gpusock_pc_verbs "-lgpusock_rdma -lrdmacm -libverbs")
endif()
configure_file(cmake/gpusock.pc.in "${PROJECT_BINARY_DIR}/gpusock.pc" @ONLY)
install(FILES "${PROJECT_BINARY_DIR}/gpusock.pc" DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig")
if(NOT GPUSOCK_SANITIZE AND NOT GPUSOCK_CUDA) # else gpusock::param_sync is for GPUs, which need CMake
  configure_file(cmake/gpusock-param_sync.pc.in "${PROJECT_BINARY_DIR}/gpusock-param_sync.pc" @ONLY)
  install(FILES "${PROJECT_BINARY_DIR}/gpusock-param_sync.pc" DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig")
endif()
