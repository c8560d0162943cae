# bench_process.sh BENCH ARGUMENTS...: gpusock-bench, whose answering side is in another process of this host.
set -euo pipefail
bench=$1
shift
exec 3< <(exec "$bench" serve --once)
server=$!
trap 'kill "$server" 2>/dev/null || true' EXIT
read -r line <&3
at=${line#gpusock-bench serves at }
"$bench" "$@" --to "${at%%;*}"
