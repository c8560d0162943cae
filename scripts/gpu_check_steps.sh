# The steps of ./run gpu-check; sourced. The shortest and most telling come first: what fails early explains what fails later.

# Name, seconds at most, what it shows.
step_table() {
  cat <<'TABLE'
memory             60  ring memory on the GPU: copies, dma-buf, what NICs write
kernels            60  small well-known kernels
bus                90  bytes and positions cross the bus in order, in both directions
p2p-echo           60  a stream between two kernels of one process
tcp-echo           60  the same through TCP
calls             300  conformance: poll, zero-copy, records
connections       300  conformance: streams, failures, options, endurance
compat            120  kernels written for GPUnet
device-rings      180  streams on rings in device memory
device-rings-calls 180 zero-copy and records on rings in device memory
model             120  the demo's kernels against a reference
demo              300  trains on four nodes in one process
TABLE
  local what link size between
  while read -r what link size between; do
    printf '%s 90 %s bytes beside the raw rival\n' "bench-$what-$link-$between" "$size"
  done < <(benchmarks)
  cat <<'TABLE'
echo-server       180  ordinary TCP clients talk to a kernel (needs python3)
faults            300  what each call returns when peers die, links are cut
memcheck-kernels  120  compute-sanitizer: invalid and misaligned accesses
memcheck-p2p-echo 180  the same of a stream
memcheck-tcp-echo 180  the same through TCP
memcheck-bus      240  the same of what crosses the bus
memcheck-calls    300  the same of the conformance tests
TABLE
}

# Cases of connections_test and calls_test. On a GPU a p2p connection is between kernels, or between host threads, not between the two.
echo_of() { echo "StreamPromise/$1_Block_Block.EveryByteArrivesInOrderWhateverTheChunks"; }
bus_cases='Bus.*:BusOfThreads.*'
device_ring_streams='StreamPromise/tcp_*:StreamPromise/p2p_Thread_Thread.*:StreamPromise/p2p_Warp_Warp.*:StreamPromise/p2p_Block_Block.*:Failure/Block.*'
device_ring_calls='ZeroCopy/tcp_*:ZeroCopy/p2p_Block.*:ZeroCopy/p2p_Thread.*:Record/tcp_*:Record/p2p_Block.*'

# command_of NAME: sets command to what the step runs; false, with why_not_run, where it cannot be run here. That is a failure if a program of
# ours is missing, and else none.
command_of() {
  command=() why_not_run='' missing=SKIP
  case "$1" in
    memory) if [ "$device" = cuda ]; then tests_of gpu_memory_test; else skip "it asks a GPU"; fi ;;
    kernels) tests_of kernels_test ;;
    bus) tests_of calls_test "$bus_cases" ;;
    p2p-echo) tests_of connections_test "$(echo_of p2p)" ;;
    tcp-echo) tests_of connections_test "$(echo_of tcp)" ;;
    calls) tests_of calls_test "*-$bus_cases" ;;
    connections) tests_of connections_test ;;
    compat) tests_of gpunet_test ;;
    device-rings) tests_of connections_test "$device_ring_streams" && command=(env GPUSOCK_RING=device "${command[@]}") ;;
    device-rings-calls) tests_of calls_test "$device_ring_calls" && command=(env GPUSOCK_RING=device "${command[@]}") ;;
    model) tests_of param_sync_model_test ;;
    faults) tests_of fault_matrix_test ;;
    demo)
      ! in_bundle || [ -d data/fashion-mnist ] || { skip "this bundle has no images (./run bundle --data)"; return; }
      command=("$param_sync" --nodes 4 --epochs 2 --in-process --json "$out/param_sync.json" "${data_options[@]}") ;;
    bench-*) benchmark_of "${1#bench-}" ;;
    echo-server)
      if command -v python3 >/dev/null; then command=(env GPUSOCK_TEST_SCALE=0.2 python3 tests/integration/echo/test_echo.py "$echo_server")
      else skip "no python3 here"; fi ;;
    memcheck-*) checked_of "${1#memcheck-}" ;;
  esac
}

skip() { why_not_run=$1; return 1; }

# tests_of PROGRAM [FILTER]
tests_of() {
  local program
  program=$(find "$tests" -name "$1" -type f -perm -100 | head -n 1)
  [ -n "$program" ] || { missing=FAIL; skip "there is no $1 in $tests"; return; }
  command=(bash scripts/google_test.sh --silence "$silence_s" --filter "${2:-*}" "$program")
}

benchmark_of() {
  local what link size between
  while read -r what link size between; do
    [ "$1" = "$what-$link-$between" ] || continue
    command=("$bench" "$what" --link "$link" --size "$size" --between "$between" --group thread --json "$out/$1.json")
  done < <(benchmarks)
}

# checked_of STEP: its tests under compute-sanitizer, where everything takes many times as long: a share of their work.
checked_of() {
  local sanitizer silence_s=$((2 * silence_s))
  [ "$device" = cuda ] || { skip "it checks kernels on a GPU"; return; }
  sanitizer=$(find_sanitizer) || { skip "no compute-sanitizer here"; return; }
  command_of "$1" || return
  command=(env "GPUSOCK_TEST_SCALE=${GPUSOCK_CHECKED_SCALE:-0.02}" "${command[@]}" "$sanitizer" --tool memcheck --error-exitcode 1)
}

find_sanitizer() {
  command -v compute-sanitizer || { [ -x /usr/local/cuda/bin/compute-sanitizer ] && echo /usr/local/cuda/bin/compute-sanitizer; }
}
