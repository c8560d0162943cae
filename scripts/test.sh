# ./run test: the tests; plainly, under the sanitizers, and (where nvcc is found) what a GPU build can prove without a GPU. Each test
# runs in the builds where it finds most, so that all takes less than ten minutes on two processors; --all: in each build where it can.
. scripts/packages.sh
. scripts/test_python.sh

main() {
  tests_wanted=share
  local only='' preset presets built failed=()
  while [ $# -gt 0 ]; do
    case "$1" in
      --only) [ $# -ge 2 ] || misuse "--only takes a preset"; only=$2; shift 2 ;;
      --all) tests_wanted=all; shift ;;
      --only=*) only=${1#--only=}; shift ;;
      *) misuse "test does not take \"$1\"" ;;
    esac
  done
  case "$only" in
    '') presets=(host asan tsan); ! find_nvcc >/dev/null || presets+=(cuda) ;;
    host | asan | tsan | cuda) presets=("$only") ;;
    python) needs_sources test; test_python; return ;;
    *) misuse "there is no preset \"$only\": host, asan, tsan, cuda or python" ;;
  esac
  needs_sources test
  begin_installing
  with_tests=ON
  trap stop_all EXIT
  # Tests wait more than they work: the next preset is built beside them, with what they leave of the processors.
  for preset in "${presets[@]}"; do
    if phase "building $preset" build "$preset"; then built=yes; else built=no failed+=("$preset"); fi
    finish_tests
    finish_installing
    [ $built = no ] || begin_tests "$preset"
  done
  finish_tests
  print_phases
  print_skipped
  [ ${#failed[@]} -eq 0 ] || fail "failed: ${failed[*]}"
  [ -n "$only" ] || find_nvcc >/dev/null || say "no nvcc here: the GPU's build was not tested"
  say "all tests passed: ${presets[*]}"
}

# What the plain build needs is installed first, the rest beside that build.
installing=''
begin_installing() {
  if [ "${presets[0]}" = host ] && installs_silently; then
    require_packages "${build_packages[@]}" "${test_build_packages[@]}"
    require_packages "${test_packages[@]}" </dev/null &
    installing=$!
  else
    require_packages "${build_packages[@]}" "${test_packages[@]}"
  fi
}

finish_installing() {
  local status=0
  [ -n "$installing" ] || return 0
  wait "$installing" || status=$?
  installing=''
  [ $status -eq 0 ] || fail "the tests' packages were not installed (see above)"
}

# begin_tests PRESET: in the background, and in a process group of their own, which can be ended as a whole.
tested=''
begin_tests() {
  tested=$1
  began=$SECONDS
  say "testing $tested"
  set -m
  run_tests "$tested" >"build/$tested/tests.log" 2>&1 </dev/null &
  set +m
  tests=$!
  build_priority=10
}

# finish_tests: waits for those that were begun, if any, shows what they said, and notes how they ended in `failed` and `phases`.
finish_tests() {
  local status=0
  [ -n "$tested" ] || return 0
  wait "$tests" || status=$?
  cat "build/$tested/tests.log"
  [ $status -eq 0 ] || failed+=("$tested")
  note_phase "testing $tested" "$began" $status
  tested=''
}

# The last lines say what was not tested here, and why.
print_skipped() {
  local preset results=() skipped
  for preset in "${presets[@]}"; do
    [ ! -f "build/$preset/tests.xml" ] || results+=("$preset=build/$preset/tests.xml")
  done
  [ ${#results[@]} -eq 0 ] || skipped=$(scripts/skipped.py "${results[@]}")
  [ -z "${skipped:-}" ] || say "tests that were skipped, and why"$'\n'"$skipped"
  [ "${presets[*]}" = cuda ] || say "not run here: tests on RDMA devices (./run rdma-test runs them)"
}

stop_all() {
  [ -z "$installing" ] || wait "$installing" || true # dpkg is not to be stopped half-way
  [ -z "$tested" ] || kill -TERM -- "-$tests" 2>/dev/null || true
}

run_tests() {
  local preset=$1 options=(-LE '^(rdma|gpu_shape|double)$') scale=${GPUSOCK_TEST_SCALE:-1} limit_s=300
  [ "$tests_wanted" != all ] || limit_s=900 # a sanitizer's build of a test that is not made for it
  case "$preset" in
    # Sanitizers cost 5 to 20 times the time: the heavy tests do a share of their work, with every check still made.
    asan | tsan) scale=${GPUSOCK_TEST_SCALE:-0.05} ;;
    # Tests that run kernels need a GPU; reading PTX does not. Those labelled rdma need RDMA devices: ./run rdma-test has some.
    cuda) have_gpu || options+=(-L no-gpu) ;;
  esac
  # ThreadSanitizer holds every process for a second at its end, in case a thread that is left still races: a moment will do.
  export TSAN_OPTIONS=${TSAN_OPTIONS:-atexit_sleep_ms=50}
  export LSAN_OPTIONS=${LSAN_OPTIONS:-suppressions=$root/tests/support/lsan.supp:print_suppressions=0}
  rm -f "build/$preset/tests.xml"
  # Tests whose result could depend on what runs beside them say so themselves (RUN_SERIAL). Many wait more than they work:
  # three at a time keep two processors busy.
  (cd "build/$preset" && GPUSOCK_TEST_SCALE=$scale ctest --output-on-failure --timeout "$limit_s" -j3 --output-junit tests.xml --test-output-size-passed 1000000 \
    "${options[@]}")
}
