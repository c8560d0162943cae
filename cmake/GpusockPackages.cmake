# Debian packages, made by `./run package`: libgpusock-dev and gpusock-tools. The libraries are static, so there is no package of shared ones.
# The man pages come from each program's --help, so that they say what it says.
find_program(GPUSOCK_HELP2MAN help2man)
mark_as_advanced(GPUSOCK_HELP2MAN)
if(GPUSOCK_HELP2MAN)
  set(pages "")
  # What `apropos` prints; ends the line "NAME".
  set(gpusock_about_param_sync "train a model across nodes; kernels push the gradients")
  set(gpusock_about_gpusock-doctor "show what this machine can do for gpusock, and what to change")
  set(gpusock_about_gpusock-top "live table of the gpusock contexts and sockets of this machine")
  set(gpusock_about_gpusock-bench "latency and bandwidth of gpusock's links, beside raw rivals")
  set(gpusock_help_gpusock-bench --help-option=--help-all) # its commands' options as well
  foreach(program IN LISTS gpusock_programs)
    set(page "${PROJECT_BINARY_DIR}/man/${program}.1.gz")
    add_custom_command(
      OUTPUT "${page}"
      COMMAND "${CMAKE_COMMAND}" -E make_directory "${PROJECT_BINARY_DIR}/man"
      COMMAND "${GPUSOCK_HELP2MAN}" --no-info --manual=gpusock --source "gpusock ${PROJECT_VERSION}"
              --name "${gpusock_about_${program}}" ${gpusock_help_${program}} --output "${PROJECT_BINARY_DIR}/man/${program}.1" "$<TARGET_FILE:${program}>"
      COMMAND gzip -9nf "${PROJECT_BINARY_DIR}/man/${program}.1"
      DEPENDS ${program} VERBATIM)
    list(APPEND pages "${page}")
  endforeach()
  add_custom_command(OUTPUT "${PROJECT_BINARY_DIR}/changelog.gz" DEPENDS "${PROJECT_SOURCE_DIR}/CHANGELOG.md"
                     COMMAND sh -c "gzip -9nc CHANGELOG.md >${PROJECT_BINARY_DIR}/changelog.gz"
                     WORKING_DIRECTORY "${PROJECT_SOURCE_DIR}" VERBATIM)
  set(with_all ALL)
  if(GPUSOCK_SANITIZE)
    set(with_all "")
  endif()
  add_custom_target(man_pages ${with_all} DEPENDS ${pages}) # for `cmake --install`, too
  add_custom_target(package_documents DEPENDS ${pages} "${PROJECT_BINARY_DIR}/changelog.gz")
else()
  message(STATUS "gpusock: no man pages (no help2man found)")
endif()

foreach(package libgpusock-dev gpusock-tools)
  string(REPLACE "libgpusock-dev" "development" component "${package}")
  string(REPLACE "gpusock-tools" "tools" component "${component}")
  install(FILES cmake/copyright "${PROJECT_BINARY_DIR}/changelog.gz" DESTINATION "${CMAKE_INSTALL_DATADIR}/doc/${package}"
          COMPONENT ${component} OPTIONAL)
endforeach()

# What a program that links the static libraries needs. libfabric is loaded when it is there.
set(gpusock_dev_depends libboost-context-dev libspdlog-dev libssl-dev libcu++-dev)
if(GPUSOCK_VERBS)
  list(APPEND gpusock_dev_depends libibverbs-dev librdmacm-dev)
endif()
list(JOIN gpusock_dev_depends ", " gpusock_dev_depends)

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_CONTACT "the gpusock authors")
set(CPACK_PACKAGE_NAME gpusock)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_COMPONENTS_ALL development tools)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION libs)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_NAME libgpusock-dev)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS "${gpusock_dev_depends}")
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_RECOMMENDS "libfabric1")
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SUGGESTS "gpusock-tools")
set(CPACK_COMPONENT_DEVELOPMENT_DESCRIPTION "Sockets for GPU kernels: headers and static libraries
 Kernels open sockets, connect, accept, send and receive.")
set(CPACK_DEBIAN_TOOLS_PACKAGE_NAME gpusock-tools)
set(CPACK_DEBIAN_TOOLS_PACKAGE_SECTION net)
set(CPACK_DEBIAN_TOOLS_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_TOOLS_PACKAGE_RECOMMENDS "libfabric1")
set(CPACK_DEBIAN_TOOLS_PACKAGE_SUGGESTS "dataset-fashion-mnist, ibverbs-providers")
set(CPACK_COMPONENT_TOOLS_DESCRIPTION "Sockets for GPU kernels: tools and the parameter-sync demo
 gpusock-doctor, gpusock-top, gpusock-bench and param_sync, with man pages.")
include(CPack)
