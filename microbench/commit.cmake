# Writes the commit of the tree in SOURCE to HEADER, if it differs from the commit there.
cmake_minimum_required(VERSION 3.25)
execute_process(COMMAND git -C "${SOURCE}" describe --always --abbrev=40 --dirty --match ""
                OUTPUT_VARIABLE commit RESULT_VARIABLE status OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
if(NOT status EQUAL 0 OR commit STREQUAL "")
  set(commit unknown)
endif()
file(CONFIGURE OUTPUT "${HEADER}" CONTENT "#pragma once\n#define GPUSOCK_BENCH_COMMIT \"@commit@\"\n" @ONLY)
