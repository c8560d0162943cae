# ./run coverage: which lines of the libraries below param_sync the tests run; the pages are in out/coverage.
. scripts/packages.sh

main() {
  [ $# -eq 0 ] || misuse "coverage takes no arguments"
  needs_sources coverage
  require_packages "${build_packages[@]}" "${test_packages[@]}" gcovr
  with_tests=ON
  local folder lines=() failed=()
  phase "building" build coverage all tests/fuzz/all
  find build/coverage -name '*.gcda' -delete
  phase "running the tests" run_counted
  mkdir -p out/coverage
  for folder in ringbuf plain_types socket_table host_proxy rdma gpusock; do lines+=("$folder $(lines_of "$folder")"); done
  counted --filter 'ringbuf/' --filter 'plain_types/' --filter 'socket_table/' --filter 'host_proxy/' --filter 'rdma/' --filter 'gpusock/' --html-details out/coverage/index.html >/dev/null
  print_phases
  printf 'lines: %s\n' "$(IFS=,; echo "${lines[*]}" | sed 's/,/, /g')"
  [ ${#failed[@]} -eq 0 ] || fail "failed: ${failed[*]}"
  say "coverage by line: out/coverage/index.html"
}

lines_of() { counted --filter "$1/" --print-summary | sed -n 's/^lines: \([0-9.]*%\).*/\1/p'; }

# What needs a GPU or its driver is not run here; the older GPUnet interface and the tools are programs, tested as such.
counted() {
  gcovr --root . -j "$(jobs)" --exclude '.*/tools/.*' --exclude '.*cuda.*' --exclude '.*/compat/.*' --exclude-unreachable-branches build/coverage "$@" 2>/dev/null
}

# All tests but those whose programs hold copies of the sources (model, simulation) or are built elsewhere. Processes that a test
# kills, or that leave by _exit(), write no counts; and what promises a time does not keep it without optimization.
run_counted() {
  export GPUSOCK_TEST_SCALE=${GPUSOCK_TEST_SCALE:-0.05}
  (cd build/coverage && ctest --output-on-failure --timeout 300 -j "$(($(jobs) + 1))" -LE '^(rdma|gpu_shape|double)$' -E '^(model|simulation|bundle|package|docs|deploy)\.|^param_sync\.(Accuracy|Promptness)$') \
    >build/coverage/tests.log 2>&1 || { tail -n 60 build/coverage/tests.log >&2; failed+=("tests (build/coverage/tests.log)"); }
  build/coverage/tests/fuzz/fuzz_replay tests/fuzz/corpus >build/coverage/fuzz.log 2>&1 || { tail -n 40 build/coverage/fuzz.log >&2; failed+=("fuzz_replay"); }
}
