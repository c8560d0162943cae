# ./run bench: latency and bandwidth of both links, each beside its raw rival.
. scripts/packages.sh

main() {
  local preset program what link size between results=out/bench
  if in_bundle; then
    program=bin/gpusock-bench preset=$(cat BUNDLE.preset)
    asks_for_help "$@" || require_device "$preset"
  else
    require_packages "${build_packages[@]}"
    preset=$(device_preset)
    program="build/$preset/microbench/gpusock-bench"
    build "$preset" gpusock-bench
  fi
  if [ $# -gt 0 ]; then
    "$program" "$@"
    return
  fi
  mkdir -p "$results"
  while read -r what link size between; do
    # shellcheck disable=SC2046
    "$program" "$what" --link "$link" --size "$size" --between "$between" $(calls_of "$what" "$preset") --json "$results/$what-$link-$between.json" </dev/null
  done < <(benchmarks)
  say "results: $results/*.json"
}
