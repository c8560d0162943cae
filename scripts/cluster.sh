# ./run cluster N [--rate R] [--delay D] -- COMMAND: a command on N hosts, which are network namespaces of this machine.
. scripts/hosts.sh

cluster_help() {
  cat <<'HELP'
usage: ./run cluster N [--rate RATE] [--delay DELAY] [--] COMMAND [ARGUMENTS]

Runs COMMAND on N hosts: network namespaces of this machine, joined by a switch. Host K is 10.78.0.(K+1), its name is hostK,
and no two share a network, a loopback interface, a host name, System V memory or /dev/shm. They share files and processors.

  --rate RATE    bandwidth of each host's link, in both directions: 100mbit, 1gbit
  --delay DELAY  added to every packet a host sends: 200us, 1ms

COMMAND finds GPUSOCK_RANK (0 to N-1), GPUSOCK_SIZE (N), GPUSOCK_PEERS (HOST:PORT of every rank, with commas) and
GPUSOCK_SECRET (yours, else made up); in its arguments {rank}, {size}, {address} and {peers} are replaced. Every line that it
prints has its rank in front. When one fails, the others get SIGTERM and 5 s later SIGKILL. Nothing is left behind, however it
ends. Needs root, or user namespaces.

  ./run cluster 4 -- build/host/apps/param_sync/param_sync --epochs 1
  ./run cluster 2 --rate 1gbit -- sh -c 'if [ {rank} = 0 ]; then exec my_server; else exec my_client 10.78.0.1; fi'

Exit status: that of the first command that failed, else 0; 2 misuse; 77 where no namespaces can be made.
HELP
}

main() {
  local size='' rate='' delay=''
  while [ $# -gt 0 ]; do
    case "$1" in
      -h | --help) cluster_help; exit 0 ;;
      --rate | --delay) [ $# -ge 2 ] || misuse "$1 takes a value"; printf -v "${1#--}" %s "$2"; shift 2 ;;
      --rate=*) rate=${1#*=}; shift ;;
      --delay=*) delay=${1#*=}; shift ;;
      --) shift; break ;;
      -*) misuse "cluster does not take \"$1\"" ;;
      *) [ -z "$size" ] || break; size=$1; shift ;;
    esac
  done
  check_hosts "$size"
  [[ -z $rate || $rate =~ ^[1-9][0-9]{0,5}[kmg]bit$ ]] || misuse "--rate is a number with kbit, mbit or gbit, not \"$rate\""
  [[ -z $delay || $delay =~ ^[1-9][0-9]{0,5}[um]?s$ ]] || misuse "--delay is a number with us, ms or s, not \"$delay\""
  [ $# -gt 0 ] || misuse "cluster takes a command to run on the hosts"
  run_on_hosts "$size" "$rate" "$delay" "$@"
}
