# ./run prove: everything that shows, without the hardware, that gpusock is right; one page at the end, in out/prove/page.txt.
# A step that fails, or runs past its time, does not keep the others from running. --steps runs some again; what the others said of the same
# commit stays on the page.
. scripts/packages.sh
. scripts/steps.sh

main() {
  # How much of what has no end: executions of the model (times the usual), minutes of fresh seeds, seconds of each fuzz target.
  local scale=20 minutes=2 seconds=20 share=1 quick=no chosen='' of
  while [ $# -gt 0 ]; do
    case "$1" in
      --quick) quick=yes scale=1 minutes=1 seconds=3 share=0.1; shift ;;
      --steps) [ $# -ge 2 ] || misuse "--steps takes names, as in: model,fuzz"; chosen=$2; shift 2 ;;
      --steps=*) chosen=${1#--steps=}; shift ;;
      --minutes) [ $# -ge 2 ] || misuse "--minutes takes a number"; minutes=$2; shift 2 ;;
      --minutes=*) minutes=${1#--minutes=}; shift ;;
      --fuzz-seconds) [ $# -ge 2 ] || misuse "--fuzz-seconds takes a number"; seconds=$2; shift 2 ;;
      --fuzz-seconds=*) seconds=${1#--fuzz-seconds=}; shift ;;
      *) misuse "prove does not take \"$1\"" ;;
    esac
  done
  [[ "$minutes" =~ ^[1-9][0-9]*$ ]] || misuse "--minutes takes a number from 1 on, not \"$minutes\""
  [[ "$seconds" =~ ^[1-9][0-9]*$ ]] || misuse "--fuzz-seconds takes a number from 1 on, not \"$seconds\""
  check_chosen "${all_steps[@]}"
  [ -z "$chosen" ] || chosen+=,gcc # it builds what most others run
  needs_sources prove
  require_packages "${build_packages[@]}" "${test_packages[@]}" "${fuzz_packages[@]}" "${lint_packages[@]}" "${coverage_packages[@]}"
  out=$root/out/prove
  of=$(project_commit)
  { [[ $of != *-dirty ]] && results_stay "$of"; } || rm -rf "$out"
  mkdir -p "$out/logs"
  : >>"$out/results.txt"
  echo "$of" >"$out/of.txt"
  forget_results ${chosen//,/ }
  # What one step has compiled, others need not, in a bare root as well. (Debug information may name the root that came first.)
  export CCACHE_DIR=${CCACHE_DIR:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/ccache} CCACHE_BASEDIR=$root CCACHE_NOHASHDIR=1
  say "steps, in the order in which they end; their output is in out/prove/logs"
  prove_all
  print_page | tee "$out/page.txt"
  ! results | grep -q '^FAIL' || fail "some steps failed (out/prove/logs)"
}

# In the order of the page.
all_steps=(tests gpu-shape cuda-double idle-clients model mutants schedules executor seeds fresh-seeds shortages planted-bugs stale-reads fuzz tidy gcc
  clang coverage bare debian-13)

# As step, if it is chosen.
proof() { ! is_chosen "$1" || step "$@"; }

prove_all() {
  proof tests 3600 ./run test --all
  local simulation=build/host/tests/simulation/simulation model=build/host/tests/model/model_check running=0
  with_tests=ON
  tests_wanted=all
  configure host
  configure clang
  build_step gcc host
  beside model 1800 's/^model: //p' "$model" --scale "$scale" --source .
  beside mutants 1800 's/^mutants: //p' "$model" --mutants --source .
  beside schedules 1200 's/^\([0-9]* mutants\), /\1 of schedules, /p' env SCHEDULE_TEST_ALL=1 \
    build/host/tests/unit/schedule/schedule_test --gtest_brief=1
  beside executor 1200 's/^\[  PASSED  \] \([0-9]* tests\)\.$/\1/p' env SCHEDULE_TEST_ALL=1 \
    build/host/tests/unit/executor/executor_test --gtest_brief=1
  beside seeds 600 's/ from 1 on: ok; \([0-9]* connections\),.* \([0-9]* s simulated\).*/, \1, \2/p' "$simulation" --seeds 1..10000
  beside fresh-seeds $((minutes * 60 + 300)) 's/ on: ok; \([0-9]* connections\),.* \([0-9]* s simulated\).*/ on, \1, \2/p' \
    "$simulation" --minutes "$minutes"
  [ $quick = yes ] || beside shortages 900 's/ from 1 on: ok; \([0-9]* shortages\),.*/, \1/p' "$simulation" --shortages --seeds 1..1000 --seconds-max 300
  [ $quick = yes ] || beside planted-bugs 1800 's/^planted bugs //p' "$simulation" --planted-bugs --seeds 1..50000
  all_beside
  [ $quick = yes ] || figure_of='s/^stale reads: //p' proof stale-reads 1800 env PARAM_SYNC=build/host/apps/param_sync/param_sync \
    python3 -B tests/integration/param_sync/stale_reads.py
  figure_of='s/^100% tests passed, 0 tests failed out of \([0-9]*\)$/\1 suites/p' proof gpu-shape 1800 env GPUSOCK_TEST_SCALE="$share" \
    ctest --test-dir build/host -L '^gpu_shape$' -j2 --output-on-failure --timeout 600
  figure_of='s/^100% tests passed, 0 tests failed out of \([0-9]*\)$/\1 runs of suites and demo/p' proof cuda-double 1800 bash -c \
    'cmake --build build/host --target on_double && ctest --test-dir build/host -L "^double$" --output-on-failure'
  figure_of='s/^100% tests passed, 0 tests failed out of \([0-9]*\)$/\1 servers, 10000 idle clients each/p' proof idle-clients 600 env GPUSOCK_TEST_IDLE=10000 \
    ctest --test-dir build/host -R '^(integration[.](echo|http)|io_test)$' --output-on-failure --timeout 300
  build_step clang clang
  figure_of='s/^== clang-tidy: \(.*\), [0-9]* s$/\1/p' proof tidy 1800 ./run tidy
  figure_of='s/^== fuzz executions: \([0-9]*\), \(.*\)/\1 executions, \2/p' proof fuzz $((seconds * 20 + 1800)) ./run fuzz --seconds "$seconds"
  figure_of='s/^lines: //p' proof coverage 3600 ./run coverage
  [ $quick = yes ] || proof bare 18000 ./run bare bash tests/bare/commands.sh
  [ $quick = yes ] || proof debian-13 7200 ./run bare --release trixie ./run test --only host,asan,tsan,clang
}

# build_step NAME PRESET: all of the tree, its tests as well.
build_step() {
  local compiler=c++ warnings="warnings are errors"
  [ "$2" != clang ] || compiler=clang++
  [ "$(warnings_option "$2")" = ON ] || warnings="warnings are no errors: not the compiler that .ci has"
  proof "$1" 3600 bash -c './run build "$1" && echo "figure: all of the tree by $2, $3"' _ "$2" "$($compiler --version | head -n 1)" "$warnings"
}

# beside NAME SECONDS SED COMMAND...: a step that needs one processor, beside others.
beside() {
  local figure_of=$3
  is_chosen "$1" || return 0
  if [ $running -eq "$(jobs)" ]; then
    wait -n || true
    running=$((running - 1))
  fi
  step "$1" "$2" "${@:4}" &
  running=$((running + 1))
}
all_beside() {
  wait
  running=0
}

print_page() {
  local failed missing name what=promised
  printf '\ngpusock %s, %s, %s processors, %d s\n' "$(project_commit)" "$(date -u '+%Y-%m-%d %H:%M UTC')" "$(jobs)" $SECONDS
  results
  if [ -s "$out/logs/planted-bugs.log" ]; then
    printf '  planted bugs, and the seed that catches each:%s\n' \
      "$(sed -n 's/^bug *\([0-9]*\): caught at seed \([0-9]*\)[ ,].*/ \1@\2/p' "$out/logs/planted-bugs.log" | tr -d '\n')"
  fi
  failed=$(results | grep -c '^FAIL' || true)
  missing=$(for name in "${all_steps[@]}"; do result_of "$name" >/dev/null || printf ' %s' "$name"; done)
  [ -z "$missing" ] || what=run
  [ -z "$missing" ] || printf 'not run:%s\n' "$missing"
  printf '%s\n' "$([ "$failed" = 0 ] && echo "all that was $what holds" || echo "$failed FAILED")"
}

# In the page's order.
results() {
  local name
  for name in "${all_steps[@]}"; do
    result_of "$name" || true
  done
}
