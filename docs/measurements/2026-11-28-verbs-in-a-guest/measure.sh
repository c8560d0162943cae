# measure.sh FOLDER: in the guest of ./run rdma-test, perftest and gpusock-bench on link=verbs, by turns. FOLDER has build/host.
set -u
cd "$1"
bench=build/host/microbench/gpusock-bench
read -r -a devices <<<"$RDMA_VM_DEVICES"; read -r -a addresses <<<"$RDMA_VM_ADDRS"
listens() { grep -qE "^ *[0-9]+: [0-9A-F]+:$(printf %04X "$1") 0+:0000 0A " /proc/net/tcp /proc/net/tcp6; }
perftest() {
  local program=$1 port=$((18515 + RANDOM % 2000)); shift
  timeout 60 $program -d ${devices[0]} -x 1 -F -p $port "$@" >/dev/null 2>&1 & local s=$!
  until listens $port; do kill -0 $s || return; done
  timeout 60 $program -d ${devices[1]} -x 1 -F -p $port "$@" ${addresses[0]} 2>&1 | grep -E '^ *[0-9]+ +[0-9]+ +[0-9.]' | tail -1 | sed "s/^/$program /"
  wait $s
}
uname -r; grep -m1 'model name' /proc/cpuinfo; nproc
export GPUSOCK_SECRET=soft-roce
for round in 1 2 3 4 5; do
  perftest ib_write_lat -s 8 -n 2000
  for g in thread "block --block-threads 32" block warp; do
    echo "gpusock verbs 8 $g: $(timeout 100 $bench lat --link verbs --size 8 --group $g --at ${addresses[0]} --repeat 1 2>&1 | grep -E '^ *[0-9]' | tail -1)"
  done
  perftest ib_write_lat -s 65536 -n 500
  perftest ib_write_bw -s 65536 -n 1000
  for g in thread block; do
    echo "gpusock verbs bw 64K $g: $(timeout 100 $bench bw --link verbs --size 64K --group $g --at ${addresses[0]} --repeat 1 2>&1 | grep -E '^ *[0-9]' | tail -1)"
  done
done
