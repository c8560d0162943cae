# Steps with a limit and a verdict each, of which none keeps the next from running; sourced. They write into the folder $out.

# step NAME SECONDS COMMAND...: one line in results.txt, the output in logs/NAME.log. What the output says behind "figure: " is in
# that line, too; or what the sed script $figure_of prints of it. A step that runs past its time is FAIL-time, or $late_verdict.
step() {
  local name=$1 limit_s=$2 start=$SECONDS status=0 verdict
  shift 2
  export -n figure_of late_verdict # "figure_of=... step ..." exports it: a step that has steps must not get it
  set -m  # or who is started in the background would ignore SIGINT for good
  # The outer one ends the inner where that waits for what even SIGKILL does not end: a process that is stuck in a driver.
  timeout --signal=KILL $((limit_s + 20)) timeout --kill-after=10 "$limit_s" "$@" >"$out/logs/$name.log" 2>&1 </dev/null &
  set +m
  : >"$out/logs/$name.$$.$!.pid" # the process is in the name: who sees the file knows it
  wait $! || status=$?
  rm -f "$out/logs/$name.$$.$!.pid"
  case $status in
    0) verdict=PASS ;;
    77) verdict=SKIP ;;
    124 | 137) verdict=${late_verdict:-FAIL-time} ;;
    *) verdict=FAIL-$status ;;
  esac
  verdict "$verdict" $((SECONDS - start)) "$name" "$(sed -n "${figure_of:-s/^figure: //p}" "$out/logs/$name.log" | tail -n 1)"
}

# Programs that take --steps have in $chosen what it names, "A,B,...", or nothing: all steps. check_chosen STEP...: of these.
check_chosen() {
  local name names=()
  [ -n "$chosen" ] || return 0
  for name in ${chosen//,/ }; do
    [[ " $* " = *" $name "* ]] || misuse "there is no step \"$name\"; there are: $*"
    names+=("$name")
  done
  [ ${#names[@]} -gt 0 ] || misuse "--steps names no step; there are: $*"
}
is_chosen() { [ -z "$chosen" ] || [[ ",$chosen," = *",$1,"* ]]; }

# True if the results in $out stay beside those of chosen steps: they are of the same, $1, which the folder notes in of.txt.
results_stay() { [ -n "$chosen" ] && [ "$(cat "$out/of.txt" 2>/dev/null)" = "$1" ]; }

# result_of STEP: its line in results.txt; fails if it has not run.
result_of() { grep -E "^[^ ]+ +[0-9]+ s  $1( |\$)" "$out/results.txt"; }
# Before steps run again.
forget_results() {
  local name
  for name in "$@"; do sed -i -E "/^[^ ]+ +[0-9]+ s  $name( |\$)/d" "$out/results.txt"; done
}

# Who ends the program ends its steps: timeout(1) gives each a process group of its own, which Ctrl-C does not reach. Only its own ($$ is the
# program's in its subshells, too): a step may be a program that sources this as well.
end_steps() {
  local file outer inner
  [ -n "${out:-}" ] || return 0
  trap '' INT TERM # a second signal would end this loop
  for file in "$out"/logs/*.$$.*.pid; do
    [ -f "$file" ] || continue
    outer=${file%.pid}
    outer=${outer##*.}
    # The inner timeout's group gets the signal by itself: timeout ends without its command if a signal comes while it starts that
    # (GNU coreutils before 9.6).
    inner=$(cat "/proc/$outer/task/$outer/children" 2>/dev/null) || true
    end_groups "$outer" ${inner:-}
    rm -f "$file"
  done
}
end_groups() {
  local leader
  for leader in "$@"; do kill -TERM -- "-$leader" 2>/dev/null || true; done
}
trap end_steps EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# verdict WORD SECONDS NAME [FIGURE]
verdict() {
  printf '%-10s %5d s  %s%s\n' "$1" "$2" "$3" "${4:+  ($4)}" | tee -a "$out/results.txt"
}
