# ./run demo: four nodes on this machine train a model, every gradient pushed from the kernel that computed it.
. scripts/packages.sh

main() {
  local preset program mode=() results=out/demo
  if in_bundle; then
    program=bin/param_sync
    preset=$(cat BUNDLE.preset)
  else
    require_packages "${build_packages[@]}" "${demo_packages[@]}"
    preset=$(device_preset)
    program="build/$preset/apps/param_sync/param_sync"
    say "building for $([ "$preset" = cuda ] && echo 'the GPU' || echo 'the CPU device (no GPU with nvcc here)')"
    build "$preset" param_sync
  fi
  # One GPU serves all nodes as contexts of one process; without one, each node is a process of its own.
  [ "$preset" != cuda ] || mode=(--in-process)
  read_data_options
  mkdir -p "$results"
  "$program" --nodes 4 --epochs 2 --json "$results/param_sync.json" "${data_options[@]}" "${mode[@]}" "$@"
  say "results: $results/param_sync.json"
}
