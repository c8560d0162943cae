# ./run coverage: which lines of the libraries below param_sync the tests run; the pages are in out/coverage.
. scripts/packages.sh

main() {
  [ $# -eq 0 ] || misuse "coverage takes no arguments"
  needs_sources coverage
  require_packages "${build_packages[@]}" "${test_packages[@]}" "${coverage_packages[@]}"
  with_tests=ON
  local folder lines=() failed=()
  phase "building" build coverage all tests/fuzz/all
  find build/coverage -name '*.gcda' -delete
  phase "running the tests" run_counted
  mkdir -p out/coverage
  phase "counting" count_lines || failed+=("gcovr (out/coverage/gcovr.log)")
  for folder in "${folders[@]}"; do lines+=("$folder $(lines_of "$folder")"); done
  print_phases
  printf 'lines: %s\n' "$(IFS=,; echo "${lines[*]}" | sed 's/,/, /g')"
  [ ${#failed[@]} -eq 0 ] || fail "failed: ${failed[*]}"
  say "coverage by line: out/coverage/index.html"
}

folders=(ringbuf plain_types socket_table host_proxy rdma gpusock)

# All counts once, and what is made of them. One job: where gcovr fails in one of several, it hangs. What needs a GPU or its driver is not run
# here, and its double defines functions once more, in other lines than the CPU device, which gcovr takes for an error; the older GPUnet
# interface and the tools are programs, tested as such.
count_lines() {
  local folder filters=()
  for folder in "${folders[@]}"; do filters+=(--filter "$folder/"); done
  gcovr --root . --exclude '.*/tools/.*' --exclude '.*cuda.*' --exclude '.*/compat/.*' --exclude-directories '.*cuda.*' --exclude-unreachable-branches \
    "${filters[@]}" --json out/coverage/lines.json build/coverage 2>out/coverage/gcovr.log || { tail -n 20 out/coverage/gcovr.log >&2; return 1; }
  gcovr --root . --add-tracefile out/coverage/lines.json --html-details out/coverage/index.html >/dev/null
}

lines_of() { gcovr --root . --add-tracefile out/coverage/lines.json --filter "$1/" --print-summary 2>/dev/null | sed -n 's/^lines: \([0-9.]*%\).*/\1/p'; }

# All tests but those whose programs hold copies of the sources (model, simulation), are built elsewhere, or run nothing of these folders
# (schedule_test, which is slow without optimization). Processes that a test kills, or that leave by _exit(), write no counts; and what promises
# a time does not keep it without optimization.
run_counted() {
  export GPUSOCK_TEST_SCALE=${GPUSOCK_TEST_SCALE:-0.05}
  (cd build/coverage && ctest --output-on-failure --timeout 300 -j "$(($(jobs) + 1))" -LE '^(rdma|gpu_shape|double)$' -E '^(model|simulation|bundle|package|docs|deploy)\.|^schedule_test$|^param_sync\.(Accuracy|Promptness)$') \
    >build/coverage/tests.log 2>&1 || { tail -n 60 build/coverage/tests.log >&2; failed+=("tests (build/coverage/tests.log)"); }
  build/coverage/tests/fuzz/fuzz_replay tests/fuzz/corpus >build/coverage/fuzz.log 2>&1 || { tail -n 40 build/coverage/fuzz.log >&2; failed+=("fuzz_replay"); }
}
