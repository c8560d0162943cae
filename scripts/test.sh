# ./run test: all tests; plainly, under the sanitizers, and (where nvcc is found) what a GPU build can prove without a GPU.
. scripts/packages.sh

main() {
  local only='' preset presets failed=()
  while [ $# -gt 0 ]; do
    case "$1" in
      --only) [ $# -ge 2 ] || misuse "--only takes a preset"; only=$2; shift 2 ;;
      --only=*) only=${1#--only=}; shift ;;
      *) misuse "test does not take \"$1\"" ;;
    esac
  done
  case "$only" in
    '') presets=(host asan tsan); ! find_nvcc >/dev/null || presets+=(cuda) ;;
    host | asan | tsan | cuda) presets=("$only") ;;
    *) misuse "there is no preset \"$only\": host, asan, tsan or cuda" ;;
  esac
  needs_sources test
  require_packages "${build_packages[@]}" "${test_packages[@]}"
  with_tests=ON
  for preset in "${presets[@]}"; do
    phase "building $preset" build "$preset" || { failed+=("$preset"); continue; }
    phase "testing $preset" run_tests "$preset" || failed+=("$preset")
  done
  print_phases
  [ ${#failed[@]} -eq 0 ] || fail "failed: ${failed[*]}"
  [ -n "$only" ] || find_nvcc >/dev/null || say "no nvcc here: the GPU's build was not tested"
  say "all tests passed: ${presets[*]}"
}

run_tests() {
  local preset=$1 options=(-LE '^rdma$') scale=${GPUSOCK_TEST_SCALE:-1}
  case "$preset" in
    # Sanitizers cost 5 to 20 times the time: the heavy tests do a share of their work, with every check still made.
    asan | tsan) scale=${GPUSOCK_TEST_SCALE:-0.05} ;;
    # Tests that run kernels need a GPU; reading PTX does not. Those labelled rdma need RDMA devices: ./run rdma-test has some.
    cuda) have_gpu || options+=(-L no-gpu) ;;
  esac
  # ThreadSanitizer holds every process for a second at its end, in case a thread that is left still races: a moment will do.
  export TSAN_OPTIONS=${TSAN_OPTIONS:-atexit_sleep_ms=50}
  export LSAN_OPTIONS=${LSAN_OPTIONS:-suppressions=$root/tests/support/lsan.supp:print_suppressions=0}
  # Tests whose result could depend on what runs beside them say so themselves (RUN_SERIAL). Many wait more than they work:
  # three at a time keep two processors busy.
  (cd "build/$preset" && GPUSOCK_TEST_SCALE=$scale ctest --output-on-failure --timeout 300 -j3 "${options[@]}")
}
