# ./run demo: four nodes on this machine train a model, every gradient pushed from the kernel that computed it.
. scripts/packages.sh

main() {
  local preset program plot options=() results=out/demo
  if in_bundle; then
    program=bin/param_sync plot=data/plot.gp
    preset=$(cat BUNDLE.preset)
  else
    require_packages "${build_packages[@]}" "${demo_packages[@]}"
    preset=$(device_preset)
    program="build/$preset/apps/param_sync/param_sync" plot=apps/param_sync/plot.gp
    say "building for $([ "$preset" = cuda ] && echo 'the GPU' || echo 'the CPU device (no GPU with nvcc here)')"
    build "$preset" param_sync
  fi
  # One GPU serves all nodes as contexts of one process; without one, each node is a process of its own.
  [ "$preset" != cuda ] || options=(--in-process)
  read_data_options
  mkdir -p "$results"
  given --nodes "$@" || options+=(--nodes 4)
  given --epochs "$@" || options+=(--epochs 2)
  given --json "$@" || options+=(--json "$results/param_sync.json")
  given --series "$@" || options+=(--series "$results/param_sync.tsv")
  rm -f "$results"/param_sync.*
  "$program" "${data_options[@]}" "${options[@]}" "$@"
  [ -f "$results/param_sync.json" ] || return 0
  say "results: $results/param_sync.json"
  draw "$plot" "$results"
}

# given OPTION ARGS...: did the user choose it.
given() {
  local option=$1 argument
  shift
  for argument in "$@"; do
    case "$argument" in "$option" | "$option"=*) return 0 ;; esac
  done
  return 1
}

draw() {
  [ -f "$2/param_sync.tsv" ] || return 0
  if ! command -v gnuplot >/dev/null; then
    say "no plot: gnuplot is not installed"
  elif gnuplot -e "series='$2/param_sync.tsv'; picture='$2/param_sync.svg'" "$1"; then
    say "plot of loss and accuracy: $2/param_sync.svg"
  fi
}
