# bench_process.sh GPU BENCH ARGUMENTS...: gpusock-bench, whose answering side is in another process of this host, on this GPU.
set -euo pipefail
gpu=$1 bench=$2
shift 2
exec 3< <(exec env GPUSOCK_GPU="$gpu" "$bench" serve --once)
server=$!
trap 'kill "$server" 2>/dev/null || true' EXIT
read -r line <&3
at=${line#gpusock-bench serves at }
"$bench" "$@" --to "${at%%;*}"
