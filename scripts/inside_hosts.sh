# What run_on_hosts (hosts.sh) starts in namespaces of its own.
#
#   inside_hosts.sh network SIZE RATE DELAY COMMAND...   the first process: makes the network, runs COMMAND on all hosts
#   inside_hosts.sh host RANK SIZE COMMAND...            becomes COMMAND on one host, in the host's network already
set -euo pipefail
export PATH=$PATH:/usr/sbin:/sbin
shopt -s inherit_errexit

self=$(readlink -f -- "${BASH_SOURCE[0]}")
state=/dev/shm  # covered by a file system of our own
port=7000
grace_s=5       # from the request to end until the end

exec {errors}>&2  # standard error itself goes nowhere later, for the shell tells there of every process that a signal ends
say() { printf 'run: cluster: %s\n' "$*" >&"$errors"; }
nothing_to_run_on() { say "$*"; exit 77; }

address() { echo "10.78.0.$(($1 + 1))"; }

peers() {
  local rank
  for ((rank = 0; rank < $1; rank++)); do printf '%s%s:%d' "${separator:-}" "$(address $rank)" $port; local separator=,; done
}

on_host() {
  local rank=$1
  shift
  nsenter "--net=$state/net$rank" "$@"
}

# --- the network ---------------------------------------------------------------------------------------------------------

make_network() {
  local size=$1 rank
  mount -t tmpfs -o mode=1777 hosts "$state"
  ip link set lo up
  ip link add switch type bridge forward_delay 0 mcast_snooping 0 || nothing_to_run_on "this kernel makes no bridges"
  ip link set switch up
  echo '127.0.0.1 localhost' >"$state/hosts"
  for ((rank = 0; rank < size; rank++)); do
    echo "$(address $rank) host$rank" >>"$state/hosts"
    : >"$state/net$rank"
    unshare "--net=$state/net$rank" true
    ip link add "port$rank" type veth peer name eth0 netns "$state/net$rank" ||
      nothing_to_run_on "this kernel makes no veth pairs"
    ip link set "port$rank" master switch up
    on_host $rank ip link set lo up
    on_host $rank ip link set eth0 up
    on_host $rank ip address add "$(address $rank)/24" dev eth0
  done
}

# What is missing in the kernel is said once.
unshaped=()
shape_network() {
  local size=$1 rate=$2 delay=$3 rank
  for ((rank = 0; rank < size; rank++)); do
    if [ -z "$delay" ] || ! delay_packets on_host $rank; then
      [ -z "$delay" ] || unshaped=("no netem: packets are not delayed")
      [ -z "$rate" ] || limit_rate "$rate" on_host $rank tc qdisc add dev eth0 || break
    fi
    [ -z "$rate" ] || limit_rate "$rate" tc qdisc add dev "port$rank" || break
  done
  for rank in "${unshaped[@]}"; do say "the kernel has $rank"; done
}

# delay_packets WHERE...: and limits their rate, where there is one.
delay_packets() { "$@" tc qdisc add dev eth0 root netem limit 100000 delay "$delay" ${rate:+rate "$rate"} 2>/dev/null; }

# limit_rate RATE TC...: a token bucket that holds what passes in 10 ms.
limit_rate() {
  local rate=$1 number=${1%%[a-z]*} unit=1
  shift
  case "$rate" in *gbit) unit=1000000000 ;; *mbit) unit=1000000 ;; *kbit) unit=1000 ;; esac
  local burst=$((number * unit / 8 / 100))
  [ $burst -ge 16000 ] || burst=16000
  "$@" root tbf rate "$rate" burst $burst latency 50ms 2>/dev/null && return 0
  unshaped+=("no tbf: bandwidth is not limited")
  return 1
}

# --- the processes -------------------------------------------------------------------------------------------------------

# Everything that happens is a line in the pipe `events`: "started RANK PROCESS", "ended RANK STATUS", "stop", "grace is over".
processes=()  # by rank; each leads a group
printers=()
stopping=''

# start_host RANK SIZE COMMAND...: what it prints comes out with its rank before each line.
start_host() {
  local rank=$1 out err
  exec {out}> >(exec sed -u "s/^/[$rank] /" {control}<&- {events}<&-)
  printers+=($!)
  exec {err}> >(exec sed -u "s/^/[$rank] /" >&"$errors" {control}<&- {events}<&- {out}>&-)
  printers+=($!)
  {
    status=0
    setsid env --default-signal=INT,QUIT nsenter "--net=$state/net$rank" unshare --mount --uts --ipc bash "$self" host "$@" \
      </dev/null >&"$out" 2>&"$err" {control}<&- {errors}>&- {out}>&- {err}>&- || status=$?
    echo "ended $rank $status" >&"$events"
  } &
  exec {out}>&- {err}>&-
}

end_host() { kill "-$1" -- "-$2" || true; }

stop_hosts() {
  local process
  [ -z "$stopping" ] || return 0
  stopping=1
  for process in "${processes[@]}"; do end_host TERM "$process"; done
  { sleep $grace_s; echo "grace is over" >&"$events"; } {control}<&- &
}

# Returns the first status that is not 0.
serve_hosts() {
  local left=$1 status=0 event rank value process
  while [ "$left" -gt 0 ]; do
    read -r -u "$events" event rank value
    case $event in
      started)
        processes[rank]=$value
        [ -z "$stopping" ] || end_host TERM "$value"
        ;;
      ended)
        unset "processes[$rank]"
        left=$((left - 1))
        [ "$value" -ne 0 ] || continue
        [ "$status" -ne 0 ] || status=$value
        [ -n "$stopping" ] || say "rank $rank ended with status $value$(signal_name "$value"); ending the others"
        stop_hosts
        ;;
      stop) stop_hosts ;;
      grace) for process in "${processes[@]}"; do end_host KILL "$process"; done ;;
    esac
  done
  return $status
}

signal_name() { [ "$1" -le 128 ] || printf ' (signal %s)' "$(kill -l $(($1 - 128)) || echo $(($1 - 128)))"; }

# Ends what the commands have left behind, as it may hold their output open; then all of it is printed.
flush() {
  local pid left=1
  while [ -n "$left" ]; do
    left=''
    for pid in /proc/[0-9]*; do
      pid=${pid#/proc/}
      case " 1 $BASHPID ${printers[*]} " in *" $pid "*) continue ;; esac
      [ ! -e "/proc/$pid/exe" ] || ! kill -KILL "$pid" || left=1
    done
  done
  wait "${printers[@]}" || true
}

run_network() {
  local size=$1 rate=$2 delay=$3 rank status=0
  shift 3
  exec {control}<&0 </dev/null
  make_network "$size"
  shape_network "$size" "$rate" "$delay"
  mkfifo "$state/events"
  exec {events}<>"$state/events" 2>/dev/null
  { read -r -u "$control" || echo stop >&"$events"; } &
  for ((rank = 0; rank < size; rank++)); do start_host $rank "$size" "$@"; done
  serve_hosts "$size" || status=$?
  flush
  exit $status
}

run_host() {
  local rank=$1 size=$2 argument arguments=() all
  shift 2
  exec {events}>"$state/events"
  echo "started $rank $$" >&"$events"
  exec {events}>&-
  mount --bind "$state/hosts" /etc/hosts
  mount -t tmpfs -o mode=1777 shm "$state"
  mount -t sysfs sysfs /sys 2>/dev/null || true  # the host's own devices, where the kernel lets us
  hostname "host$rank" 2>/dev/null || true  # other systems than Debian may lack the program
  all=$(peers "$size")
  for argument in "$@"; do
    argument=${argument//'{rank}'/$rank} argument=${argument//'{size}'/$size}
    argument=${argument//'{address}'/$(address "$rank")} argument=${argument//'{peers}'/$all}
    arguments+=("$argument")
  done
  export GPUSOCK_RANK=$rank GPUSOCK_SIZE=$size GPUSOCK_PEERS=$all
  command -v -- "${arguments[0]}" >/dev/null || { echo "there is no program \"${arguments[0]}\"" >&2; exit 127; }
  exec "${arguments[@]}"
}

role=$1
shift
"run_$role" "$@"
