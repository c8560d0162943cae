# turns.sh FOLDER: in the guest of ./run rdma-test, what a round trip on link=verbs consists of: packets, switches between threads, and how long
# threads wait for a processor; and what ib_write_lat takes while two other processes are busy. FOLDER has build/host.
set -u
bench=$1/build/host/microbench/gpusock-bench
cd "$(mktemp -d)"
read -r -a devices <<<"$RDMA_VM_DEVICES"; read -r -a addresses <<<"$RDMA_VM_ADDRS"
export GPUSOCK_SECRET=soft-roce
listens() { grep -qE "^ *[0-9]+: [0-9A-F]+:$(printf %04X "$1") 0+:0000 0A " /proc/net/tcp /proc/net/tcp6; }
counts() { echo "$(cat "/sys/class/infiniband/${devices[0]}/ports/1/hw_counters/sent_pkts") $(awk '/^ctxt/ {print $2}' /proc/stat)"; }
# per_round_trip N COMMAND...: what COMMAND, which makes N round trips, prints last, and what one of them took.
per_round_trip() {
  local n=$1 before after; shift
  before=$(counts); "$@" | tail -1; after=$(counts)
  echo "$before $after $n" | awk '{printf "    a round trip: %.1f packets sent by one side, %.1f switches\n", ($3 - $1) / $5, ($4 - $2) / $5}'
}
write_lat() {
  local port=$((18515 + RANDOM % 2000)) server
  timeout 60 ib_write_lat -d "${devices[0]}" -x 1 -F -p $port -s 8 -n "$1" >server.log 2>&1 & server=$!
  until listens $port; do kill -0 $server || return; done
  timeout 60 ib_write_lat -d "${devices[1]}" -x 1 -F -p $port -s 8 -n "$1" "${addresses[0]}" 2>&1 | grep -E '^ *8 +[0-9]'
  wait $server
}
lat() { timeout 100 "$bench" lat --link "$1" --iterations "$2" --size 8 --group thread --at "${addresses[0]}" --repeat 1; }
uname -r; nproc
for round in 1 2 3; do
  echo "ib_write_lat (bytes, n, least, most, typical, ...)"; per_round_trip 5000 write_lat 5000
  echo "gpusock, verbs (bytes, p50, p99; raw TCP p50, p99)"; per_round_trip 3000 lat verbs 3000
  echo "gpusock, tcp"; per_round_trip 3000 lat tcp 3000
done
echo "ib_write_lat beside two busy processes"
for i in 1 2; do timeout 30 sh -c 'while :; do :; done' & done
write_lat 1000
wait
echo "gpusock, verbs: who waits for a processor"
lat verbs 6000 >lat.log & measured=$!
until grep -q "cpu_device" /proc/$(pgrep -n gpusock-bench)/task/*/comm 2>/dev/null; do :; done
perf sched record -o s.perf -- sleep 1 >/dev/null 2>&1
perf sched latency -i s.perf 2>/dev/null | grep -E 'Task|cpu_device|gpusock|TOTAL'
wait $measured
