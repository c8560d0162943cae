#!/usr/bin/env bash
# google_test.sh [--silence SECONDS] [--filter FILTER] PROGRAM [WRAPPER...]: runs the tests of a GoogleTest program, through WRAPPER if
# there is one (compute-sanitizer and its options).
#
# A kernel that fails ends the use of the GPU for its process, and one that hangs never comes back. So a test that fails, crashes or prints
# nothing for so long ends its process, and the tests after it run in a new one. The last line is "figure: " and what came of it all.
#
# Exit status: 0 all passed, 1 not, 2 misuse, 77 all tests that ran were skipped.
set -uo pipefail
silence=60 filter='*'
while [ $# -gt 0 ]; do
  case "$1" in
    --silence) silence=$2; shift 2 ;;
    --filter) filter=$2; shift 2 ;;
    -*) sed -n 2,3p "$0" >&2; exit 2 ;;
    *) break ;;
  esac
done
[ $# -gt 0 ] || { sed -n 2,3p "$0" >&2; exit 2; }
program=$1
shift
wrapper=("$@")
bad_max=10 # after so many tests that do not pass, more of them would say nothing new

passed=0 skipped=0 failed=() # "TEST" or "TEST (why)"
left=() began='' reason='' reader='' child=''

# Sets left to the names of all tests, in the order in which they run.
list_tests() {
  local line suite=''
  while IFS= read -r line; do
    line=${line%%  #*}
    case "$line" in
      *DISABLED_*) ;;
      '  '*) left+=("$suite${line#  }") ;;
      *.) suite=$line ;;
    esac
  done < <("$program" --gtest_list_tests "--gtest_filter=$filter" </dev/null)
}

figure() {
  local text="$passed passed"
  [ $skipped -eq 0 ] || text+=", $skipped skipped${reason:+: $reason}"
  [ ${#failed[@]} -eq 0 ] || text+=", ${#failed[@]} not: $(printf '%s, ' "${failed[@]}")"
  text=${text%, }
  [ ${#left[@]} -eq 0 ] || text+=", ${#left[@]} not run"
  printf 'figure: %s\n' "$text"
}

# The limit of the whole step ends this program, and with it the test that runs.
ended_from_outside() {
  trap '' TERM INT HUP # timeout(1) signals this program and then its group
  [ -z "$child" ] || kill_child KILL
  if [ -n "$began" ]; then
    drop_through "$began"
    failed+=("$began (began and did not end)")
  fi
  figure
  exit 1
}
trap ended_from_outside TERM INT HUP

# note LINE: what the program says of its tests.
note() {
  local name
  case "$1" in
    *'[ RUN      ] '*) began=${1##*'[ RUN      ] '} ;; # a test may have left its last line open
    *'[       OK ] '* | *'[  FAILED  ] '* | *'[  SKIPPED ] '*)
      name=${1##*'[       OK ] '}
      name=${name##*'[  FAILED  ] '}
      name=${name##*'[  SKIPPED ] '}
      name=${name%% (*}
      name=${name%%,*} # the parameter of a test that has one
      [ "$name" = "$began" ] || return 0 # the summary at the end
      case "$1" in
        *'[       OK ] '*) passed=$((passed + 1)) ;;
        *'[  FAILED  ] '*) failed+=("$name") ;;
        *) skipped=$((skipped + 1)) ;;
      esac
      drop_through "$name"
      began='' ;;
    *': Skipped') reason=next ;;
    *) [ "$reason" != next ] || reason=$1 ;;
  esac
}

# drop_through TEST: it and those before it have been run.
drop_through() {
  local i
  for i in "${!left[@]}"; do
    if [ "${left[i]}" = "$1" ]; then
      left=("${left[@]:i+1}")
      return
    fi
  done
}

# kill_child SIGNAL: with all that it started; setsid gave them a process group.
kill_child() { kill "-$1" -- "-$child" 2>/dev/null || kill "-$1" "$child" 2>/dev/null; }

# end_child: sets status. A process that waits for a broken driver does not even heed SIGKILL: it is left to itself.
end_child() {
  local tries
  for tries in {1..44}; do
    if ! kill -0 "$child" 2>/dev/null; then
      wait "$child"
      status=$?
      return 0
    fi
    [ "$tries" -ne 26 ] || kill_child TERM
    [ "$tries" -ne 36 ] || kill_child KILL
    if [ "$tries" -lt 26 ]; then sleep 0.01; else sleep 0.25; fi # it has ended its output: most end at once
  done
  return 1
}

# run_left: runs the tests that are left until one does not pass. False where nothing more can be run.
run_left() {
  local line read_status status=0 hung=no
  began=''
  exec {reader}< <(exec setsid "${wrapper[@]}" "$program" --gtest_fail_fast --gtest_color=no "--gtest_filter=$(IFS=:; echo "${left[*]}")" \
    2>&1 </dev/null)
  child=$!
  while :; do
    IFS= read -r -t "$silence" line <&"$reader"
    read_status=$?
    [ -z "$line" ] || printf '%s\n' "$line"
    note "$line"
    [ $read_status -ne 1 ] || break # the end
    if [ $read_status -gt 128 ]; then
      ! kill -0 "$child" 2>/dev/null || hung=yes # else something that it started holds its output
      break
    fi
  done
  exec {reader}<&-
  if ! end_child; then
    drop_through "$began"
    failed+=("${began:-the program} (hangs, and its process cannot be ended: the driver may have failed; reboot)")
    child='' began=''
    return 1
  fi
  kill -KILL -- "-$child" 2>/dev/null # what it may have left behind
  child=''
  if [ -n "$began" ]; then
    drop_through "$began"
    if [ $hung = yes ]; then failed+=("$began (hangs: silent for $silence s)")
    elif [ $status -gt 128 ]; then failed+=("$began (ended by signal $((status - 128)))")
    else failed+=("$began (ended its process with $status)"); fi
    began=''
  elif [ $hung = yes ]; then
    failed+=("the program (hangs beside its tests: silent for $silence s)")
    return 1
  elif [ ${#failed[@]} -eq "$bad_before" ] && [ $status -ne 0 ]; then
    failed+=("the program (ended with $status though no test had failed)")
    return 1
  elif [ ${#failed[@]} -eq "$bad_before" ] && [ ${#left[@]} -gt 0 ]; then
    failed+=("the program (ended with 0 before its tests had run)")
    return 1
  fi
}

list_tests
if [ ${#left[@]} -eq 0 ]; then
  echo "figure: no test of $(basename "$program") is called $filter"
  exit 1
fi
while [ ${#left[@]} -gt 0 ]; do
  bad_before=${#failed[@]}
  run_left || break
  [ ${#failed[@]} -lt $bad_max ] || break
done
figure
[ ${#failed[@]} -eq 0 ] || exit 1
[ $passed -gt 0 ] || exit 77
