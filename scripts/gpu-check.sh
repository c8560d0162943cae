# ./run gpu-check: everything that only a GPU can answer, with the machine's facts, in one folder. A step that fails or
# runs past its time does not keep the others from running.
. scripts/packages.sh
. scripts/steps.sh

main() {
  local out=gpu-check
  while [ $# -gt 0 ]; do
    case "$1" in
      --out) [ $# -ge 2 ] || misuse "--out takes a folder"; out=$(from_there "$2"); shift 2 ;;
      --out=*) out=$(from_there "${1#--out=}"); shift ;;
      *) misuse "gpu-check does not take \"$1\"" ;;
    esac
  done
  if ! have_gpu; then
    say "no NVIDIA GPU here (nvidia-smi -L lists none): nothing to check"
    exit 77
  fi
  provide_programs
  mkdir -p "$out/logs"
  out=$(cd "$out" && pwd)
  : >"$out/results.txt"
  machine_facts >"$out/machine.txt" 2>&1
  check_everything
  say "results: $out (results.txt, machine.txt, doctor.txt, logs/)"
  column -t "$out/results.txt" 2>/dev/null || cat "$out/results.txt"
  ! grep -q '^FAIL' "$out/results.txt" || fail "some steps failed"
  say "all steps passed"
}

# Sets programs (the built programs) and tests (a folder that holds the test programs).
provide_programs() {
  if in_bundle; then
    [ "$(cat BUNDLE.preset)" = cuda ] || fail "this bundle was built without nvcc: its programs do not use the GPU"
    param_sync=bin/param_sync bench=bin/gpusock-bench echo_server=bin/echo_server tests=tests
    doctor=bin/gpusock-doctor
    return
  fi
  find_nvcc >/dev/null || fail "there is a GPU, but no nvcc: install the CUDA Toolkit, or bring a bundle made where it is"
  require_packages "${build_packages[@]}" "${test_packages[@]}"
  with_tests=ON
  build cuda
  param_sync=build/cuda/apps/param_sync/param_sync bench=build/cuda/microbench/gpusock-bench
  echo_server=build/cuda/examples/echo_server tests=build/cuda/tests doctor=build/cuda/gpusock/tools/gpusock-doctor
}

check_everything() {
  local program name link size between sanitizer
  "$doctor" >"$out/doctor.txt" 2>&1 || true  # what there is to mend is no failure of what is checked here
  while read -r program; do
    step "$(basename "$program")" 600 "$program" "--gtest_output=xml:$out/$(basename "$program").xml"
  done < <(test_programs)
  if command -v python3 >/dev/null; then
    step echo 300 python3 tests/integration/echo/test_echo.py "$echo_server"
  fi
  read_data_options
  step demo 300 "$param_sync" --nodes 4 --epochs 2 --in-process --json "$out/param_sync.json" "${data_options[@]}"
  while read -r name link size between; do
    step "bench-$name-$link-$between" 300 "$bench" "$name" --link "$link" --size "$size" --between "$between" \
      --json "$out/$name-$link-$between.json"
  done < <(benchmarks)
  if sanitizer=$(find_sanitizer); then
    while read -r program; do
      name=$(basename "$program")
      step "memcheck-$name" 1800 "$sanitizer" --tool memcheck --error-exitcode 1 "$program"
    done < <(test_programs)
  fi
}

test_programs() { programs_in "$tests" | sort; }

find_sanitizer() {
  command -v compute-sanitizer || { [ -x /usr/local/cuda/bin/compute-sanitizer ] && echo /usr/local/cuda/bin/compute-sanitizer; }
}

machine_facts() {
  date -u '+%Y-%m-%d %H:%M:%S UTC'
  printf 'commit: %s\n' "$(project_commit)"
  uname -srm
  grep -h '^PRETTY_NAME=' /etc/os-release || true
  nvidia-smi -L
  nvidia-smi --query-gpu=name,driver_version,memory.total,pcie.link.gen.current,pcie.link.width.current,compute_cap --format=csv
  nvidia-smi -q -d MEMORY,CLOCK,COMPUTE,ECC,PERFORMANCE || true
  nvidia-smi topo -m || true
  lscpu || true
  grep -E '^(MemTotal|MemAvailable)' /proc/meminfo
  if find_nvcc >/dev/null; then "$(find_nvcc)" --version; fi
}
