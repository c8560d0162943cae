# ./run test: builds and runs the tests, in the build `host` (and, where there is a GPU, those that run kernels on it, in `cuda`).
# --only: in the builds that are named; under a sanitizer each test that finds most there. `clang` is everything compiled by Clang, and the
# tests that take long, or that most changes cannot break (labels simulation and package in tests/CMakeLists.txt). --all: in all builds, each test wherever it can run.
. scripts/packages.sh
. scripts/test_python.sh

builds="builds (host, asan, tsan, clang or cuda), with commas between them, or python alone"

main() {
  tests_wanted=share
  local only='' preset presets built failed=()
  while [ $# -gt 0 ]; do
    case "$1" in
      --only) [ -n "${2:-}" ] || misuse "--only takes $builds"; only=$2; shift 2 ;;
      --all) tests_wanted=all; shift ;;
      --only=*) set -- --only "${1#--only=}" "${@:2}" ;;
      *) misuse "test does not take \"$1\"" ;;
    esac
  done
  [ "$only" != python ] || { needs_sources test; test_python; return; }
  choose_presets
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
  print_left_out
  [ ${#failed[@]} -eq 0 ] || fail "failed: ${failed[*]}"
  say "all tests passed: ${presets[*]}"
}

# Sets `presets`, in the order in which they are built.
choose_presets() {
  if [ -n "$only" ]; then
    IFS=, read -r -a presets <<<"$only"
  elif [ "$tests_wanted" = all ]; then
    presets=(host asan tsan)
    ! find_nvcc >/dev/null || presets+=(cuda)
  else
    presets=(host)
    [ "$(device_preset)" = host ] || presets+=(cuda)
  fi
  for preset in "${presets[@]}"; do
    case "$preset" in host | asan | tsan | clang | cuda) ;; *) misuse "there is no build \"$preset\": --only takes $builds" ;; esac
  done
}

# What the plain build needs is installed first, the rest beside that build.
installing=''
begin_installing() {
  local packages=("${test_packages[@]}")
  [[ " ${presets[*]} " != *" "@([at]san|clang)" "* ]] || packages+=("${sanitizer_packages[@]}")
  if [ "${presets[0]}" = host ] && installs_silently; then
    require_packages "${build_packages[@]}" "${test_build_packages[@]}"
    require_packages "${packages[@]}" </dev/null &
    installing=$!
  else
    require_packages "${build_packages[@]}" "${packages[@]}"
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
}

print_left_out() {
  local left_out="on RDMA devices (./run rdma-test)"
  [ -z "$only" ] || return 0
  if [ "$tests_wanted" != all ]; then left_out="under sanitizers and on the double of CUDA (./run test --only asan,tsan), the simulation, the package, the bundle and the guide's programs (./run test --only clang), $left_out"; fi
  if [[ " ${presets[*]} " != *" cuda "* ]]; then
    if find_nvcc >/dev/null; then left_out+=", what the GPU's build shows without a GPU (./run test --only cuda)"
    else left_out+=", the GPU's build (there is no nvcc)"; fi
  fi
  say "not run here: $left_out"
}

stop_all() {
  [ -z "$installing" ] || wait "$installing" || true # dpkg is not to be stopped half-way
  [ -z "$tested" ] || kill -TERM -- "-$tests" 2>/dev/null || true
}

run_tests() {
  local preset=$1 options=(-LE '^(rdma|gpu_shape|double)$') scale=${GPUSOCK_TEST_SCALE:-1} limit_s=300 at_once=3
  [ "$tests_wanted" != all ] || limit_s=900 # a sanitizer's build of a test that is not made for it
  case "$preset" in
    # Sanitizers cost 5 to 20 times the time: the heavy tests do a share of their work, with every check still made.
    asan | tsan) scale=${GPUSOCK_TEST_SCALE:-0.05} ;;
    clang) options+=(-L '^(simulation|package)$') ;;
    # Tests that run kernels need a GPU; reading PTX does not. Those labelled rdma need RDMA devices: ./run rdma-test has some.
    cuda) have_gpu || options+=(-L no-gpu) ;;
  esac
  # ThreadSanitizer holds every process for a second at its end, in case a thread that is left still races: a moment will do.
  export TSAN_OPTIONS=${TSAN_OPTIONS:-atexit_sleep_ms=50}
  export LSAN_OPTIONS=${LSAN_OPTIONS:-suppressions=$root/tests/support/lsan.supp:print_suppressions=0}
  rm -f "build/$preset/tests.xml"
  # Tests whose result could depend on what runs beside them say so themselves (RUN_SERIAL). Many wait more than they work:
  # it takes several to keep two processors busy.
  [ "${presets[*]}" != host ] || at_once=5 # nothing is built beside them
  (cd "build/$preset" && GPUSOCK_TEST_SCALE=$scale ctest --output-on-failure --timeout "$limit_s" -j"$at_once" --output-junit tests.xml --test-output-size-passed 1000000 \
    "${options[@]}")
}
