# ./run fuzz [TARGET...] [--seconds N]: fuzzes the targets of tests/fuzz, each for N seconds, as many at a time as
# there are processors.
. scripts/packages.sh

main() {
  local seconds=60 targets=() target program executions total=0 built=0 failed=()
  while [ $# -gt 0 ]; do
    case "$1" in
      --seconds) [ $# -ge 2 ] || misuse "--seconds takes a number"; seconds=$2; shift 2 ;;
      --seconds=*) seconds=${1#--seconds=}; shift ;;
      -*) misuse "fuzz does not take \"$1\"" ;;
      *) targets+=("$1"); shift ;;
    esac
  done
  [[ "$seconds" =~ ^[1-9][0-9]*$ ]] || misuse "--seconds takes a number of seconds from 1 on, not \"$seconds\""
  for target in "${targets[@]}"; do
    [ -d "tests/fuzz/corpus/$target" ] || misuse "there is no target \"$target\": $(ls tests/fuzz/corpus | tr '\n' ' ')"
  done
  [ ${#targets[@]} -gt 0 ] || mapfile -t targets < <(ls tests/fuzz/corpus)
  needs_sources fuzz
  require_packages "${build_packages[@]}" "${test_packages[@]}" "${fuzz_packages[@]}"
  with_tests=ON
  export LSAN_OPTIONS=${LSAN_OPTIONS:-suppressions=$root/tests/support/lsan.supp:print_suppressions=0}
  phase "building" build fuzz tests/fuzz/all
  phase "fuzzing" fuzz_targets
  for target in "${targets[@]}"; do
    program=build/fuzz/tests/fuzz/fuzz_$target
    [ -x "$program" ] || { say "$target: not built here (it needs libfabric or libibverbs)"; continue; }
    built=$((built + 1))
    executions=$(sed -n 's/^stat::number_of_executed_units: *//p' "build/fuzz/$target.log")
    total=$((total + ${executions:-0}))
    say "$target: ${executions:-0} executions"
    [ "$(cat "build/fuzz/$target.status")" = 0 ] || { tail -n 60 "build/fuzz/$target.log" >&2; failed+=("$target"); }
  done
  print_phases
  [ ${#failed[@]} -eq 0 ] || fail "inputs that break a promise are in build/fuzz/found: ${failed[*]}"
  say "fuzz executions: $total, targets: $built, broken promises: 0"
}

fuzz_targets() {
  local target running=0
  for target in "${targets[@]}"; do
    [ -x "build/fuzz/tests/fuzz/fuzz_$target" ] || continue
    if [ $running -eq "$(jobs)" ]; then
      wait -n
      running=$((running - 1))
    fi
    fuzz_one "$target" "build/fuzz/tests/fuzz/fuzz_$target" &
    running=$((running + 1))
  done
  wait
}

# What is new goes to build/fuzz/new; the corpus stays as it is (tests/fuzz/README.md says how to add to it).
fuzz_one() {
  local target=$1 program=$2 status=0 found="$root/build/fuzz/found"
  mkdir -p "$found" "build/fuzz/new/$target"
  "$program" -max_total_time="$seconds" -max_len=4096 -timeout=25 -rss_limit_mb=3000 -print_final_stats=1 -verbosity=0 \
    -artifact_prefix="$found/$target-" "build/fuzz/new/$target" "tests/fuzz/corpus/$target" >"build/fuzz/$target.log" 2>&1 || status=$?
  echo $status >"build/fuzz/$target.status"
}
