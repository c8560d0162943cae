# ./run bench: latency, bandwidth and connections of the links, each beside its raw rival, and a page of it all.
. scripts/packages.sh

main() {
  local preset program results=out/bench
  if in_bundle; then
    program=bin/gpusock-bench preset=$(cat BUNDLE.preset)
    asks_for_help "$@" || require_device "$preset"
  else
    require_packages "${build_packages[@]}"
    [ $# -gt 0 ] || require_packages "${bench_packages[@]}"
    preset=$(device_preset)
    program="build/$preset/microbench/gpusock-bench"
    build "$preset" gpusock-bench
  fi
  if [ $# -gt 0 ]; then
    "$program" "$@"
    return
  fi
  mkdir -p "$results"
  measure_all
  say "results: $results/*.json"
  make_page
}

# The usual runs: what, link, between what, and further options.
usual_runs() {
  local sizes=64,256,1K,4K,16K,64K,256K,1M
  printf '%s\n' 'lat tcp threads --size 64' 'lat tcp kernels --size 64' 'lat p2p kernels --size 64' \
    "bw tcp kernels --size $sizes" "bw p2p kernels --size $sizes" 'conn tcp kernels' 'conn p2p kernels' \
    'rate tcp kernels' 'rate p2p kernels' 'scale tcp kernels --repeat 7' 'scale p2p kernels --repeat 7'
}

# Sets files to the JSON of all runs.
measure_all() {
  local what link between options
  files=()
  while read -r what link between options; do
    files+=("$results/$what-$link-$between.json")
    # shellcheck disable=SC2046,SC2086
    "$program" "$what" --link "$link" --between "$between" $options $(calls_of "$what" "$preset") --json "${files[-1]}" </dev/null
  done < <(usual_runs)
}

make_page() {
  if ! command -v python3 >/dev/null; then
    say "no page: python3 is not installed; install the package python3, then: python3 scripts/bench_page.py $results $results/*.json"
    return
  fi
  python3 -B scripts/bench_page.py "$results" "${files[@]}"
  say "page: $results/index.html"
}
