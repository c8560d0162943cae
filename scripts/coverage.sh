# ./run coverage: which lines of ringbuf, host_proxy, rdma and gpusock the tests run; the pages are in out/coverage.
. scripts/packages.sh

# The folders of build/coverage/tests whose programs are run, each in one piece.
coverage_tests=(unit/ringbuf unit/host_proxy unit/rdma unit/fabric unit/tools conformance fuzz)

main() {
  [ $# -eq 0 ] || misuse "coverage takes no arguments"
  needs_sources coverage
  require_packages "${build_packages[@]}" "${test_packages[@]}" gcovr
  with_tests=ON
  local targets=() folder failed=()
  for folder in "${coverage_tests[@]}"; do [ ! -d "tests/$folder" ] || targets+=("tests/$folder/all"); done
  phase "building" build coverage "${targets[@]}"
  find build/coverage -name '*.gcda' -delete
  phase "running the tests" run_counted
  mkdir -p out/coverage
  for folder in ringbuf host_proxy rdma gpusock; do printf '%-12s %s\n' "$folder" "$(lines_of "$folder")"; done
  counted --filter 'ringbuf/' --filter 'host_proxy/' --filter 'rdma/' --filter 'gpusock/' --html-details out/coverage/index.html >/dev/null
  print_phases
  [ ${#failed[@]} -eq 0 ] || fail "failed: ${failed[*]}"
  say "coverage by line: out/coverage/index.html"
}

lines_of() { counted --filter "$1/" --print-summary | sed -n 's/^lines: *//p'; }

# Tools are programs, tested as such; what needs a GPU is not run here.
counted() {
  gcovr --root . -j "$(jobs)" --exclude '.*/tools/.*' --exclude '.*cuda.*' --exclude '.*/compat/.*' --exclude-unreachable-branches build/coverage "$@" 2>/dev/null
}

run_counted() {
  local program arguments
  for program in $(for folder in "${coverage_tests[@]}"; do programs_in "build/coverage/tests/$folder"; done); do
    arguments=(--gtest_brief=1)
    [ "${program##*/}" != fuzz_replay ] || arguments=(tests/fuzz/corpus)
    GPUSOCK_TEST_SCALE=0.05 timeout 300 "$program" "${arguments[@]}" >"$program.log" 2>&1 || { tail -n 40 "$program.log" >&2; failed+=("${program##*/}"); }
  done
}
