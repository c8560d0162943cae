# ./run gpu-check: everything that only a GPU can answer, with the machine's facts, in one folder. Results are written as they come: a step
# that fails, hangs or runs past its time does not keep the others from running, and what has been found is kept however the command ends.
. scripts/packages.sh
. scripts/steps.sh
. scripts/gpu_machine.sh
. scripts/gpu_check_steps.sh

gpu_check_help() {
  cat <<'HELP'
usage: ./run gpu-check [--steps A,B,...] [--minutes N] [--out DIR] [--device cuda|cpu] [--list]

Runs tests, benchmarks and the demo on this machine's GPU. A few short tests come first, then figures (latencies, the demo, bandwidths), then
the long tests, each step with a limit of at most five minutes. In a bundle it needs no network, no package and no compiler; where the sources
are it builds them first.

  --list         the steps in their order, each with its limit in seconds; runs nothing
  --steps A,B    these alone; the results of others, of the same programs on the same machine, stay in DIR
  --minutes N    ends after N minutes: the steps for which no time was left are named, with the command that runs them
  --device cpu   a rehearsal on the CPU device: shows what will run, and says nothing about a GPU
  --out DIR      where results go (default: gpu-check; of a rehearsal out/gpu-check-cpu)

DIR/summary.txt is the page to read. Beside it: results.txt, machine.txt, doctor.txt, the JSON of the demo and the benchmarks,
and logs/STEP.log. DIR.tar.gz has all of them: the file to send. Of a test that hangs or crashes the name is in the summary; the tests after it run in a new process.
GPUSOCK_TEST_SCALE (0 to 1, default 0.2) says how much the tests do, GPUSOCK_CHECKED_SCALE (0.02) how much under compute-sanitizer,
GPUSOCK_TEST_SILENCE (45) after how many seconds without a line a test counts as hanging.

Exit status: 0 all steps passed (or were skipped, with the reason), 1 a step failed or was not run, 2 misuse, 77 no GPU here.
HELP
}

main() {
  out='' # global: the steps are ended, however this command ends, by what is in that folder
  local device=cuda chosen='' minutes='' deadline='' steps=() left=() now='' gpu=''
  local param_sync bench echo_server tests doctor silence_s=${GPUSOCK_TEST_SILENCE:-45}
  take_arguments "$@"
  choose_steps
  [ -z "$minutes" ] || deadline=$((SECONDS + $(awk -v minutes="$minutes" 'BEGIN { print int(60 * minutes) }'))) # building included
  require_gpu
  [ "$device" = cpu ] || hold_gpus
  provide_programs
  [ -z "$out" ] || mkdir -p "$out"
  open_results
  require_driver
  read_data_options
  export GPUSOCK_TEST_SCALE=${GPUSOCK_TEST_SCALE:-0.2}
  export CUDA_CACHE_PATH=${CUDA_CACHE_PATH:-$out/code} # what the driver translates is kept, also where the home folder cannot be written
  run_steps
  print_summary
  say "results: $out (summary.txt is this page; logs/ has each step's output), and all of it in $out.tar.gz"
  ! grep -qE '^(FAIL|CUT)' "$out/results.txt" || fail "some steps failed"
  [ ${#left[@]} -eq 0 ] || fail "not all steps were run"
  say "all steps passed"
}

take_arguments() {
  while [ $# -gt 0 ]; do
    case "$1" in
      -h | --help) gpu_check_help; exit 0 ;;
      --list) step_table; exit 0 ;;
      --out | --steps | --minutes | --device) [ $# -ge 2 ] || misuse "$1 takes a value"; take_value "${1#--}" "$2"; shift 2 ;;
      --out=* | --steps=* | --minutes=* | --device=*) set -- "${1%%=*}" "${1#*=}" "${@:2}" ;;
      *) misuse "gpu-check does not take \"$1\"" ;;
    esac
  done
  [ -n "$out" ] || out=$root/$([ "$device" = cpu ] && echo out/gpu-check-cpu || echo gpu-check)
}

take_value() {
  case "$1" in
    out) out=$(from_there "$2") ;;
    steps) chosen=$2 ;;
    minutes) [[ $2 =~ ^[0-9]{1,4}(\.[0-9]{1,3})?$ && ! $2 =~ ^[0.]*$ ]] || misuse "--minutes is a number above 0, not \"$2\""; minutes=$2 ;;
    device) [[ $2 =~ ^(cpu|cuda)$ ]] || misuse "--device is cuda or cpu, not \"$2\""; device=$2 ;;
  esac
}

# Sets steps to the names of what was asked for, in the table's order.
choose_steps() {
  local name all
  mapfile -t all < <(step_table | awk '{ print $1 }')
  check_chosen "${all[@]}"
  for name in "${all[@]}"; do
    ! is_chosen "$name" || steps+=("$name")
  done
}

require_gpu() {
  [ "$device" = cuda ] || return 0
  ! have_gpu && ! compgen -G '/dev/nvidia[0-9]*' >/dev/null || return 0
  say "no NVIDIA GPU here (nvidia-smi -L lists none): nothing to check. A rehearsal without one: ./run gpu-check --device cpu"
  exit 77
}

# Sets where the built programs are, and tests to the folder that holds the test programs. Where the sources are they are built.
provide_programs() {
  local preset=host folder
  [ "$device" = cpu ] || preset=cuda
  if in_bundle; then
    [ "$(cat BUNDLE.preset)" = $preset ] || [ $preset = host ] || fail "this bundle was built without nvcc: its programs do not use the GPU"
    [ "$(cat BUNDLE.preset)" = $preset ] || fail "this bundle's programs run on GPUs; for a rehearsal: ./run bundle --device cpu DIR, there"
    param_sync=bin/param_sync bench=bin/gpusock-bench echo_server=bin/echo_server tests=tests
    doctor=bin/gpusock-doctor
    unpack_bundle
    return
  fi
  [ $preset = host ] || find_nvcc >/dev/null ||
    fail "there is a GPU, but no nvcc: install the CUDA Toolkit, or bring a bundle made where it is (./run bundle --device cuda DIR)"
  with_tests=ON
  tests_wanted=all
  # A machine may have what is needed from elsewhere than its packages: only what keeps the build from being configured is installed.
  (configure $preset) >/dev/null 2>&1 || require_packages "${build_packages[@]}" "${check_packages[@]}"
  build $preset
  folder=build/$preset
  param_sync=$folder/apps/param_sync/param_sync bench=$folder/microbench/gpusock-bench
  echo_server=$folder/examples/echo_server tests=$folder/tests doctor=$folder/gpusock/tools/gpusock-doctor
}

# The folder for results. What is in it stays only beside chosen steps, and only if it is of the same programs on the same machine.
open_results() {
  local of
  out=$(cd "$out" && pwd)
  mkdir -p "$out/logs"
  gpu=$(timeout 30 nvidia-smi -L 2>/dev/null | head -n 1 || true)
  of="$(project_commit) $device $(uname -n) $gpu"
  if ! results_stay "$of"; then
    rm -f "$out"/{results,summary,machine,doctor}.txt "$out"/*.json "$out"/logs/*.log
    : >"$out/results.txt"
    echo "$of" >"$out/of.txt"
  fi
  machine_facts >"$out/machine.txt" 2>&1 || true
  ask_doctor "$out/doctor.txt" || say "gpusock-doctor does not end: see doctor.txt"
}

# Ends at once where the driver cannot run these programs: every step would fail, and say less.
require_driver() {
  local driver toolkit capability why of
  [ "$device" = cuda ] || return 0
  driver=$(driver_cuda "$out/doctor.txt") toolkit=$(toolkit_cuda) capability=$(capabilities "$out/doctor.txt" | sed -n "$((${GPUSOCK_GPU:-0} + 1))p")
  if [ -z "$driver" ] || [ -z "$capability" ]; then
    tail -n 20 "$out/doctor.txt" >&2
    fail "the driver shows no GPU to programs (above is what gpusock-doctor finds)"
  fi
  [ -n "$gpu" ] || gpu="a GPU of sm_$capability"
  say "sm_$capability, driver for CUDA $driver; programs built with CUDA ${toolkit:-?} for $(built_code code)"
  [ -n "$toolkit" ] || return 0
  for of in code tests; do
    # shellcheck disable=SC2046
    why=$(why_not "$driver" "$toolkit" "$capability" $(built_code $of))
    [ -z "$why" ] || fail "driver and programs do not go together: $why"
  done
}

run_steps() {
  local name limit_s left_s command why_not_run missing
  forget_results "${steps[@]}"
  for name in "${steps[@]}"; do
    limit_s=$(step_table | awk -v name="$name" '$1 == name { print $2 }')
    left_s=$([ -z "$deadline" ] && echo "$limit_s" || echo $((deadline - SECONDS)))
    if [ "$left_s" -lt 3 ]; then
      left+=("$name")
      continue
    fi
    now="$name, since $(date -u '+%H:%M:%S UTC'), at most $limit_s s"
    keep_results
    if ! command_of "$name"; then
      verdict "$missing" 0 "$name" "$why_not_run"
    elif [ "$left_s" -lt "$limit_s" ]; then
      late_verdict=CUT step "$name" "$left_s" "${command[@]}"
      ! grep -qE "^CUT .*  $name( |\$)" "$out/results.txt" || left+=("$name")
    else
      step "$name" "$limit_s" "${command[@]}"
    fi
  done
  now=''
  keep_results
}

# The page so far, and the archive: also if this command is killed in the next step.
keep_results() {
  print_summary >"$out/summary.txt"
  tar -czf "$out.tar.gz.new" --exclude=code -C "$(dirname "$out")" "$(basename "$out")" && mv -f "$out.tar.gz.new" "$out.tar.gz" ||
    say "there is no archive of the results: $out.tar.gz cannot be written"
}

print_summary() {
  local name
  printf '\ngpusock %s, %s, %s\n' "$(project_commit)" "$(date -u '+%Y-%m-%d %H:%M UTC')" \
    "$([ "$device" = cuda ] && echo "${gpu%% (UUID*}" || echo 'a rehearsal on the CPU device: nothing here is about a GPU')"
  cat "$out/results.txt"
  while read -r name; do
    [ -f "$out/logs/$name.log" ] || continue
    printf '\n-- %s: the end of logs/%s.log\n' "$name" "$name"
    grep -v '^figure: ' "$out/logs/$name.log" | tail -n 12
  done < <(sed -n -E 's/^(FAIL|CUT)[^ ]* +[0-9]+ s  ([^ ]*).*/\2/p' "$out/results.txt")
  [ -z "$now" ] || printf '\nrunning: %s\n' "$now"
  [ ${#left[@]} -eq 0 ] || printf '\nno time was left for: %s\nthe rest: ./run gpu-check --steps %s\n' "${left[*]}" "$(IFS=,; echo "${left[*]}")"
}
