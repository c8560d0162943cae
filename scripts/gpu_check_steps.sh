# The steps of ./run gpu-check; sourced. What shows most in least time comes first: a person may have a GPU for ten minutes. So the order is: what
# everything rests on, figures (one process, the demo, bandwidth, two processes), and then conformance. docs/testing.md has the same order.

# Name, seconds at most, what it shows.
step_table() {
  cat <<'TABLE'
load              300  loads every program once, so that no later step waits for the driver to translate code
memory             60  ring memory on the GPU: copies, dma-buf, what NICs write
kernels            60  small well-known kernels
bus                90  bytes and positions cross the bus in order, in both directions; requests to a NIC, which a host thread is
kernel-rings       90  the same between two kernels, in the memory of one GPU and of two
two-addresses      60  kernels that reach one page by two addresses, as two processes do, see each other's bytes
p2p-echo           60  a stream between two kernels of one process
tcp-echo           60  the same through TCP
TABLE
  benchmark_steps lat one
  cat <<'TABLE'
model             120  the demo's kernels against a reference
demo              300  trains on four nodes in one process
demo-serial       300  the demo's work without sockets, to compare
TABLE
  benchmark_steps bw one
  benchmark_steps lat two
  cat <<'TABLE'
calls             300  conformance: poll, zero-copy, records
connections       300  conformance: streams, failures, options, endurance
compat            120  kernels written for GPUnet
device-rings      180  streams on rings in device memory
device-rings-calls 180 zero-copy and records on rings in device memory
host-rings        180  streams on rings between processes, in pinned host memory
gpu-processes     180  kernels of two processes on one GPU, on rings in its memory; one is stopped, killed
two-gpus          180  streams between kernels of two GPUs, on rings in the memory of both
two-gpu-processes 180  the same between two processes, of which one is stopped, killed
echo-server       180  ordinary TCP clients talk to a kernel (needs python3)
faults            300  what each call returns when peers die, links are cut
memcheck-kernels  120  compute-sanitizer: invalid and misaligned accesses
memcheck-p2p-echo 180  the same of a stream
memcheck-tcp-echo 180  the same through TCP
memcheck-bus      240  the same of what crosses the bus
memcheck-calls    300  the same of the conformance tests
TABLE
}

# What, link, bytes, between, rings, where the other side is (here, gpu: on another GPU, process: in another process, gpu-process: both; device-words: here, and the proxy's
# words in the GPU's memory, as in none of the others), how many processes, and the step's name. The latencies of one process, then those of two, are in
# the order of docs/performance.md, "What to measure first on a GPU".
gpu_benchmarks() {
  local what link size between rings other processes
  while read -r what link size between rings other; do
    case "$other" in *process) processes=two ;; *) processes=one ;; esac
    echo "$what $link $size $between $rings $other $processes bench-$what-$link-$between$([ "$rings" != device ] || echo -device)$(case "$other" in here) ;; device-words) echo -device-words ;; *) echo "-other-$other" ;; esac)"
  done < <(printf '%s\n' 'lat p2p 64 kernels host here' 'lat p2p 64 kernels device here' 'lat p2p 64 kernels device gpu' \
             'lat tcp 64 kernels host here' 'lat tcp 64 threads host here' 'lat tcp 64 kernels host device-words' 'lat tcp 64 kernels device here' \
             'lat p2p 64 kernels host process' 'lat p2p 64 kernels device process' 'lat p2p 64 kernels device gpu-process'
           printf '%s\n' 'bw tcp 65536 kernels auto here' 'bw p2p 65536 kernels auto here')
}

# benchmark_steps WHAT PROCESSES: their lines of the table.
benchmark_steps() {
  gpu_benchmarks | awk -v what="$1" -v processes="$2" '$1 == what && $7 == processes { print $8, 90, $3 " bytes, rings: " $5 ", beside the raw rival" }'
}

# What of a step's output is its figure, as sed scripts: the row of a benchmark's table, the result of a training.
figure_of_latency='s/^ *[0-9]\{1,\}  *\([0-9.]*\)  *\([0-9.]*\)  *\([0-9.]*\) .*/round trip p50 \1 us, p99 \2 us; raw p50 \3 us/p'
figure_of_bandwidth='s/^ *[0-9]\{1,\}  *\([0-9.]*\)  *[0-9.]*  *\([0-9.]*\) .*/\1 GB\/s; raw \2 GB\/s/p'
figure_of_training='s/^\(test accuracy .*samples\/s\).*/\1/p'

# Cases of connections_test and calls_test. On a GPU a p2p connection is between kernels, or between host threads, not between the two.
echo_of() { echo "StreamPromise/$1_Block_Block.EveryByteArrivesInOrderWhateverTheSizes"; }
bus_cases='Bus.*:BusOfBarWrites.*:BusOfThreads.*:BusToNic.*'
kernel_ring_cases='OneGpu/BetweenKernels.*:TwoGpus/BetweenKernels.*'
two_address_cases='TwoAddresses/BetweenKernels.*:TwoAddresses/WithAliasFence.*'
device_ring_streams='StreamPromise/tcp_*:StreamPromise/p2p_Thread_Thread.*:StreamPromise/p2p_Warp_Warp.*:StreamPromise/p2p_Block_Block.*:Failure/Block.*'
device_ring_calls='ZeroCopy/tcp_*:ZeroCopy/p2p_Block.*:ZeroCopy/p2p_Thread.*:Record/tcp_*:Record/p2p_Block.*'

# command_of NAME: sets command to what the step runs; false, with why_not_run, where it cannot be run here. That is a failure if a program of
# ours is missing, and else none.
command_of() {
  local shape=() # in a rehearsal: as a GPU has them
  [ "$device" = cuda ] || shape=(GPUSOCK_CPU_SHAPE=gpu)
  command=() why_not_run='' missing=SKIP figure_of=''
  case "$1" in
    load) load_of ;;
    memory) if [ "$device" = cuda ]; then tests_of gpu_memory_test; else skip "it asks a GPU"; fi ;;
    kernels) tests_of kernels_test ;;
    bus) tests_of calls_test "$bus_cases" ;;
    kernel-rings) tests_of calls_test "$kernel_ring_cases" && command=(env "${shape[@]}" "${command[@]}") ;;
    two-addresses) tests_of calls_test "$two_address_cases" && command=(env "${shape[@]}" "${command[@]}") ;;
    p2p-echo) tests_of connections_test "$(echo_of p2p)" ;;
    tcp-echo) tests_of connections_test "$(echo_of tcp)" ;;
    calls) tests_of calls_test "*-$bus_cases:$kernel_ring_cases:$two_address_cases" ;;
    connections) tests_of connections_test ;;
    compat) tests_of gpunet_test ;;
    device-rings) tests_of connections_test "$device_ring_streams" && command=(env GPUSOCK_RING=device "${command[@]}") ;;
    device-rings-calls) tests_of calls_test "$device_ring_calls" && command=(env GPUSOCK_RING=device "${command[@]}") ;;
    host-rings) tests_of connections_test 'StreamPromise/p2p_Thread_Thread.*:StreamPromise/p2p_Block_Block.*' &&
      command=(env GPUSOCK_TEST_HOST_RINGS=apart GPUSOCK_RING=host "${shape[@]}" "${command[@]}") ;;
    gpu-processes) tests_of fault_matrix_test '*GpuProcesses*' && command=(env GPUSOCK_TEST_HOST_RINGS=shared GPUSOCK_RING=device "${shape[@]}" "${command[@]}") ;;
    two-gpus) has_two_gpus && tests_of connections_test 'StreamPromise/p2p_*:Failure/Block.*' && command=(env GPUSOCK_TEST_GPUS=2 "${shape[@]}" "${command[@]}") ;;
    two-gpu-processes) has_two_gpus && tests_of fault_matrix_test '*GpuProcesses*' &&
      command=(env GPUSOCK_TEST_HOST_RINGS=shared GPUSOCK_TEST_GPUS=2 "${shape[@]}" "${command[@]}") ;;
    model) tests_of param_sync_model_test ;;
    faults) tests_of fault_matrix_test ;;
    demo)
      figure_of=$figure_of_training
      ! in_bundle || [ -d data/fashion-mnist ] || { skip "this bundle has no images (./run bundle --data)"; return; }
      command=("$param_sync" --nodes 4 --epochs 2 --in-process --json "$out/param_sync.json" "${data_options[@]}") ;;
    demo-serial) command_of demo && command=("$param_sync" --nodes 4 --epochs 2 --serial --json "$out/$1.json" "${data_options[@]}") ;;
    bench-*) benchmark_of "$1" ;;
    echo-server)
      if command -v python3 >/dev/null; then command=(env GPUSOCK_TEST_SCALE=0.2 python3 tests/integration/echo/test_echo.py "$echo_server")
      else skip "no python3 here"; fi ;;
    memcheck-*) checked_of "${1#memcheck-}" ;;
  esac
}

skip() { why_not_run=$1; return 1; }

# program_of NAME: where the test program is.
program_of() { find "$tests" -name "$1" -type f -perm -100 | head -n 1; }

# load_of: all programs that later steps run.
load_of() {
  local name program
  command=(bash scripts/load_programs.sh)
  for name in kernels_test calls_test connections_test param_sync_model_test fault_matrix_test gpunet_test; do
    program=$(program_of "$name")
    [ -z "$program" ] || command+=("$program")
  done
  command+=("$bench")
  in_bundle && [ ! -d data/fashion-mnist ] || command+=("$param_sync")
}

# tests_of PROGRAM [FILTER]
tests_of() {
  local program
  program=$(program_of "$1")
  [ -n "$program" ] || { missing=FAIL; skip "there is no $1 in $tests"; return; }
  # Host rings only where a step asks for them (GPUSOCK_TEST_HOST_RINGS): other processes of this user may use those of the default name.
  command=(env GPUSOCK_HOST_RINGS=off bash scripts/google_test.sh --silence "$silence_s" --filter "${2:-*}" "$program")
}

# In a rehearsal there are two: the CPU device in the shape of a GPU has as many.
has_two_gpus() {
  [ "$device" != cuda ] || [ "$(nvidia-smi -L 2>/dev/null | grep -c '^GPU')" -ge 2 ] || skip "there is one GPU"
}

has_gdrcopy() {
  [ "$device" != cuda ] || [ -e /dev/gdrdrv ] || skip "there is no GDRCopy (/dev/gdrdrv)"
}

benchmark_of() {
  local what link size between rings other processes name
  while read -r what link size between rings other processes name; do
    [ "$1" = "$name" ] || continue
    [ "$what" = bw ] && figure_of=$figure_of_bandwidth || figure_of=$figure_of_latency
    # shellcheck disable=SC2046
    command=("$what" --link "$link" --size "$size" --between "$between" $(calls_of "$what" cuda) --limit 30 --json "$out/$1.json")
    case "$other" in
      here) command=(env "GPUSOCK_RING=$rings" GPUSOCK_WORDS=host "$bench" "${command[@]}") ;;
      device-words) has_gdrcopy || return; command=(env "GPUSOCK_RING=$rings" GPUSOCK_WORDS=device "${shape[@]}" "$bench" "${command[@]}") ;;
      gpu) has_two_gpus || return; command=(env "GPUSOCK_RING=$rings" "${shape[@]}" "$bench" "${command[@]}" --answer-gpu 1) ;;
      process) command=(env "GPUSOCK_RING=$rings" "GPUSOCK_HOST_RINGS=gpu-check-$$,connections=8" "${shape[@]}" bash scripts/bench_process.sh "${GPUSOCK_GPU:-0}" "$bench" "${command[@]}") ;;
      gpu-process) has_two_gpus || return
        command=(env "GPUSOCK_RING=$rings" "GPUSOCK_HOST_RINGS=gpu-check-$$,connections=8" "${shape[@]}" bash scripts/bench_process.sh 1 "$bench" "${command[@]}") ;;
    esac
  done < <(gpu_benchmarks)
}

# checked_of STEP: its tests under compute-sanitizer, where everything takes many times as long: a share of their work.
checked_of() {
  local sanitizer silence_s=$((2 * silence_s))
  [ "$device" = cuda ] || { skip "it checks kernels on a GPU"; return; }
  sanitizer=$(find_sanitizer) || { skip "no compute-sanitizer here"; return; }
  sanitizer_works "$sanitizer" || return
  command_of "$1" || return
  command=(env "GPUSOCK_TEST_SCALE=${GPUSOCK_CHECKED_SCALE:-0.02}" "${command[@]}" "$sanitizer" --tool memcheck --error-exitcode 1)
}

find_sanitizer() {
  command -v compute-sanitizer || { [ -x /usr/local/cuda/bin/compute-sanitizer ] && echo /usr/local/cuda/bin/compute-sanitizer; }
}

# sanitizer_works SANITIZER: does it check a program here. A sandbox may keep it from attaching to one; it then ends without its summary. Asked once.
sanitizer_refused=unknown
sanitizer_works() {
  local said=$out/logs/compute-sanitizer.log
  if [ "$sanitizer_refused" = unknown ]; then
    timeout --kill-after=5 90 "$1" --tool memcheck bash scripts/first_test.sh "$(program_of kernels_test)" >"$said" 2>&1 </dev/null || true
    sanitizer_refused=''
    grep -q 'ERROR SUMMARY' "$said" || sanitizer_refused="compute-sanitizer cannot check a program here: $(tail -n 1 "$said" | sed 's/^=* *//')"
  fi
  [ -z "$sanitizer_refused" ] || skip "$sanitizer_refused"
}
