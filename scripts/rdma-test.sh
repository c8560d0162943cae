# ./run rdma-test: what needs RDMA, in a virtual machine with soft-RoCE devices (see rdma-vm).
. scripts/packages.sh

rdma_help() {
  cat <<'HELP'
usage: ./run rdma-test [--kernel VERSION] [--limit SECONDS] [--out DIR] [--plain] [-- COMMAND [ARGUMENTS]]

Boots Debian's kernel in QEMU with two soft-RoCE devices (rxe0 at 10.77.0.1, rxe1 at 10.77.0.2) and runs there, from this
folder's own build: perftest between the two devices, every test that has the label rdma (also under AddressSanitizer and
ThreadSanitizer), gpusock-doctor, gpusock-bench, and param_sync trained across the two. Neither root nor /dev/kvm is needed once the packages
are installed. Without KVM everything is emulated in software: its figures say nothing about a real NIC.

  --kernel VERSION  6.1 (default) or 6.12, or the name of a Debian package; downloaded once into ~/.cache/gpusock
  --limit SECONDS   for the whole run in the virtual machine (default 2400)
  --plain           not under the sanitizers, and without building for them
  --out DIR         results.txt, logs/ and machine.txt (default out/rdma-test)
  -- COMMAND        run this there instead, as root; what it writes is lost

Exit status: 0 when nothing failed, 1 failure, 2 misuse, 124 past the limit; with COMMAND, its own.
HELP
}

main() {
  local out=$root/out/rdma-test kernel=6.1 limit_s=2400 sanitized='asan tsan' preset
  while [ $# -gt 0 ]; do
    case "$1" in
      -h | --help) rdma_help; exit 0 ;;
      --kernel | --limit | --out) [ $# -ge 2 ] || misuse "$1 takes a value"; take_value "${1#--}" "$2"; shift 2 ;;
      --kernel=* | --limit=* | --out=*) set -- "${1%%=*}" "${1#*=}" "${@:2}" ;;
      --plain) sanitized=; shift ;;
      --) shift; break ;;
      *) misuse "rdma-test does not take \"$1\": put -- before a command" ;;
    esac
  done
  require_packages "${rdma_packages[@]}"
  kernel=$(kernel_package "$kernel")
  require_kernel "$kernel"
  if [ $# -gt 0 ]; then
    cd "$invoked_from" || fail "there is no folder $invoked_from any more"
    exec "$root/scripts/rdma-vm" -k "$kernel" -t "$limit_s" -- "$@"
  fi
  needs_sources rdma-test
  require_packages "${build_packages[@]}" "${test_packages[@]}" ${sanitized:+"${sanitizer_packages[@]}"}
  with_tests=ON
  build host
  for preset in $sanitized; do build "$preset" connections_test calls_test; done
  test_in_guest
}

take_value() {
  case "$1" in
    kernel) kernel=$2 ;;
    limit) [[ $2 =~ ^[1-9][0-9]{0,5}$ ]] || misuse "--limit is a number of seconds, not \"$2\""; limit_s=$2 ;;
    out) out=$(from_there "$2") ;;
  esac
}

kernel_package() {
  case "$1" in
    6.1) echo linux-image-amd64 ;;
    [0-9]*) echo "linux-image-$1-amd64" ;;
    *) echo "$1" ;;
  esac
}

# The virtual machine downloads it with apt-get, which needs a list of packages that is not too old to be true.
require_kernel() {
  ! compgen -G "${GPUSOCK_VM_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/gpusock/rdma-vm}/$1-*" >/dev/null || return 0
  [ -z "$(apt-cache show "$1" 2>/dev/null)" ] || return 0
  say "looking for the package $1"
  update_packages
  [ -n "$(apt-cache show "$1" 2>/dev/null)" ] || fail "this system has no package $1: soft-RoCE needs a Debian kernel (--kernel)"
}

test_in_guest() {
  local status=0
  mkdir -p "$out/logs"
  rm -f "$out"/results.txt "$out"/logs/*
  RDMA_TEST_SANITIZED=$sanitized scripts/rdma-vm -k "$kernel" -t "$limit_s" -w "$out" -- bash scripts/inside_rdma_guest.sh "$out" || status=$?
  say "results: $out (results.txt, machine.txt, logs/)"
  case $status in
    0) say "all steps passed" ;;
    124) exit 124 ;;  # it has said so
    125) fail "the virtual machine failed" ;;
    *) fail "some steps failed" ;;
  esac
}
