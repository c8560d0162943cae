# What ./run rdma-test runs in the virtual machine: inside_rdma_guest.sh OUT. Exit status 0 when no step failed.
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."
. scripts/common.sh
. scripts/steps.sh

out=$1
build=build/host
param_sync=$build/apps/param_sync/param_sync
bench=$build/microbench/gpusock-bench
doctor=$build/gpusock/tools/gpusock-doctor
read -r -a devices <<<"$RDMA_VM_DEVICES"
read -r -a addresses <<<"$RDMA_VM_ADDRS"
gid_index=1  # RoCE v2 over IPv4

main() {
  : >"$out/results.txt"
  machine_facts >"$out/machine.txt" 2>&1
  in_step devices 30 check_devices
  in_step ib_write_lat 60 perftest ib_write_lat -s 8 -n 1000
  in_step ib_write_bw 60 perftest ib_write_bw -s 65536 -n 1000
  run_labelled_tests tests host -LE '^fault$'
  in_step doctor 60 doctor_with_rdma
  in_step doctor-memlock 60 with_little_locked_memory doctor_without_memory
  in_step verbs-memlock 60 with_little_locked_memory refuse_verbs
  for link in tcp fabric verbs; do
    if ! supports "$param_sync" "$link"; then
      verdict SKIP 0 "param_sync-$link" "this build has no link $link"
    else
      in_step "param_sync-$link" 300 train_across "$link"
    fi
  done
  for link in tcp fabric verbs; do
    if ! supports "$bench" "$link" lat; then
      verdict SKIP 0 "bench-$link" "gpusock-bench has no link $link in this build"
    else
      in_step "bench-lat-$link" 120 measure lat "$link" 8
      in_step "bench-bw-$link" 120 measure bw "$link" 65536
    fi
  done
  for preset in ${RDMA_TEST_SANITIZED:-}; do run_labelled_tests "tests-$preset" "$preset" -LE '^fault$'; done
  run_labelled_tests faults host -L '^fault$'  # last: an interface that was down has lost its routes
  ! grep -q '^FAIL' "$out/results.txt"
}

# A step that is a function of this script.
in_step() {
  local name=$1 limit_s=$2
  shift 2
  step "$name" "$limit_s" bash scripts/inside_rdma_guest.sh "$out" "$@"
}

# Does the program know this link, by its --help.
supports() {
  local program=$1 link=$2
  shift 2
  [ -x "$program" ] && "$program" "$@" --help | grep -A2 -e '--link' | grep -qw "$link"
}

machine_facts() {
  uname -srvm
  grep -m1 'model name' /proc/cpuinfo
  nproc
  rdma link
  ibv_devinfo
}

check_devices() {
  ibv_devices
  local device
  for device in "${devices[@]}"; do ibv_devinfo -d "$device" | grep -q PORT_ACTIVE; done
  echo "figure: ${#devices[@]} devices, $(uname -r)"
}

# perftest PROGRAM OPTIONS...: between the first two devices.
perftest() {
  local program=$1 port=18515 server line
  shift
  "$program" -d "${devices[0]}" -x $gid_index -F -p $port "$@" &
  server=$!
  until listens $port; do kill -0 $server; done
  "$program" -d "${devices[1]}" -x $gid_index -F -p $port "$@" "${addresses[0]}" | tee "$out/logs/.client"
  wait $server
  line=$(grep -E '^ *[0-9]+ +[0-9]+ +[0-9.]' "$out/logs/.client" | tail -n 1)
  rm -f "$out/logs/.client"
  case $program in
    *_lat) awk '{ print "figure: " $1 " bytes: typically " $5 " us, 99 % " $8 " us" }' <<<"$line" ;;
    *_bw) awk '{ print "figure: " $1 " bytes: " $4 " MB/s" }' <<<"$line" ;;
  esac
}

listens() { grep -qE "^ *[0-9]+: [0-9A-F]+:$(printf %04X "$1") 0+:0000 0A " /proc/net/tcp /proc/net/tcp6; }

# run_labelled_tests NAME PRESET OPTIONS...: each test with the label that the options of ctest leave is a line of the table.
run_labelled_tests() {
  local name=$1 preset=$2 log=$out/logs/$1.log status=0
  local select=(--test-dir "build/$2" -L '^rdma$' "${@:3}")
  if ctest "${select[@]}" -N | grep -q 'Total Tests: 0'; then
    verdict SKIP 0 "$name" "this build has no such tests"
    return
  fi
  # Emulated processors: heavy tests do a share of their work.
  GPUSOCK_TEST_SCALE=${GPUSOCK_TEST_SCALE:-0.05} FI_UNIVERSE_SIZE=16 \
    ctest "${select[@]}" --output-on-failure --timeout 300 >"$log" 2>&1 || status=$?
  test_verdicts "$preset" <"$log"
  [ $status -eq 0 ] || grep -q '^FAIL' "$out/results.txt" || verdict FAIL 0 "$name: ctest ended with status $status"
}

# From what ctest prints, one line for each test, as "3/7 Test #12: name .....***Failed  1.25 sec".
test_verdicts() {
  local word seconds name
  sed -nE 's/^ *[0-9]+\/[0-9]+ Test +#[0-9]+: (.*) \.\.\.+ *(.*) ([0-9]+)\.[0-9]+ sec.*/\2|\3|\1/p' |
    while IFS='|' read -r word seconds name; do
      case $word in *Passed*) word=PASS ;; *Skipped*) word=SKIP ;; *Timeout*) word=FAIL-time ;; *) word=FAIL ;; esac
      verdict $word "$seconds" "$1: $name"
    done
}

# says TEXT...: does the doctor say each of these, whatever the lines it takes.
says() {
  local page text
  page=$("$doctor" || [ $? -eq 1 ])
  echo "$page"
  for text in "$@"; do
    tr -s ' \n' ' ' <<<"$page" | grep -qF -e "$text" || { echo "gpusock-doctor does not say: $text"; return 1; }
  done
}

doctor_with_rdma() {
  says 'rxe0 (Ethernet' 'memory may be locked without limit' 'other host verbs' 'export GPUSOCK_SECRET'
  GPUSOCK_SECRET=soft-roce says 'other host verbs rings in host memory that the NICs write'
}

doctor_without_memory() {
  says 'rxe0 (Ethernet' '64 KiB may be locked: too little for a connection on the verbs link' 'ulimit -l unlimited' 'other host tcp' \
    "not verbs: only 64 KiB of memory may be locked, and a connection's rings need 4224"
}

# With 64 KiB, as on most machines where nobody has raised the limit; root needs none unless it is told to.
with_little_locked_memory() {
  ulimit -l 64
  exec setpriv --bounding-set=-ipc_lock --inh-caps=-ipc_lock bash scripts/inside_rdma_guest.sh "$out" "$@"
}

# What the doctor says is true, and ends in an error that says why.
refuse_verbs() {
  local status=0 text
  text=$(GPUSOCK_LOG=info "$bench" lat --link verbs --size 8 --between threads --repeat 1 2>&1) || status=$?
  echo "$text"
  [ $status -eq 1 ] || { echo "exit status $status, not 1"; return 1; }
  grep -q 'ulimit -l' <<<"$text" || { echo "it does not say what to do"; return 1; }
}

# Two nodes, one at each device, end with the weights of a run without sockets.
train_across() {
  local link=$1 peers rank nodes=() small=(--epochs 1 --limit 1280 --hidden 32) wanted
  export FI_UNIVERSE_SIZE=16 GPUSOCK_SECRET=soft-roce
  [ "$link" != fabric ] || export GPUSOCK_FABRIC_PROVIDER='verbs;ofi_rxm'
  peers="${addresses[0]}:7000,${addresses[1]}:7000"
  wanted=$("$param_sync" --serial --nodes 2 "${small[@]}" | grep -o '^weights [0-9a-f]*')
  for rank in 0 1; do
    "$param_sync" --nodes 2 --rank $rank --peers "$peers" --link "$link" "${small[@]}" >"$out/logs/.rank$rank" 2>&1 &
    nodes+=($!)
  done
  for rank in 0 1; do
    wait "${nodes[rank]}" || { cat "$out/logs/.rank$rank"; return 1; }
    cat "$out/logs/.rank$rank"
    grep -q "^$wanted" "$out/logs/.rank$rank" || { echo "rank $rank does not end with $wanted"; return 1; }
    rm -f "$out/logs/.rank$rank"
  done
  echo "figure: $wanted, as without sockets"
}

measure() {
  local what=$1 link=$2 bytes=$3
  [ "$link" != fabric ] || export FI_UNIVERSE_SIZE=16 GPUSOCK_FABRIC_PROVIDER='verbs;ofi_rxm'
  GPUSOCK_SECRET=soft-roce "$bench" "$what" --link "$link" --size "$bytes" --between threads --repeat 5 --at "${addresses[0]}" \
    --json "$out/$what-$link.json" | tee "$out/logs/.bench"
  case $what in  # perftest's latency is half a round trip
    lat) awk '/^ *[0-9]/ { print "figure: " $1 " bytes: round trip " $2 " us, 99 % " $3 " us; raw TCP " $4 " us" }' ;;
    bw) awk '/^ *[0-9]/ { print "figure: " $1 " bytes: " 1000 * $2 " MB/s; raw TCP " 1000 * $4 " MB/s" }' ;;
  esac <"$out/logs/.bench"
  rm -f "$out/logs/.bench"
}

shift
if [ $# -gt 0 ]; then "$@"; else main; fi
