# ./run demo: four nodes on this machine train a model, every gradient pushed from the kernel that computed it. With --hosts N
# each node is on a host of its own: a network namespace of this machine (see ./run cluster --help).
. scripts/hosts.sh

main() {
  local preset program plot options=() results=out/demo hosts='' status=0
  take_hosts "$@"
  set -- "${left[@]}"
  if in_bundle; then
    program=bin/param_sync plot=data/plot.gp
    preset=$(cat BUNDLE.preset)
    asks_for_help "$@" || require_device "$preset"
  else
    require_packages "${build_packages[@]}" "${demo_packages[@]}"
    preset=$(device_preset)
    program="build/$preset/apps/param_sync/param_sync" plot=tools/schedule_lab/figures/plot.gp
    say "building for $([ "$preset" = cuda ] && echo 'the GPU' || echo 'the CPU device (no GPU with nvcc here)')"
    build "$preset" param_sync
  fi
  read_data_options
  mkdir -p "$results"
  if [ -n "$hosts" ]; then
    run_across_hosts "$@"
    return
  fi
  # One GPU serves all nodes as contexts of one process; without one, each node is a process of its own.
  [ "$preset" != cuda ] || options=(--in-process)
  given --nodes "$@" || options+=(--nodes 4)
  choose_options "$@"
  "$program" "${data_options[@]}" "${options[@]}" "$@" || status=$?
  keep_results
  [ $status -eq 0 ] || exit $status
  show_results
}

# Sets hosts to what --hosts says, and left to the other arguments.
take_hosts() {
  left=()
  while [ $# -gt 0 ]; do
    case "$1" in
      --hosts) [ $# -ge 2 ] || misuse "--hosts takes a number"; hosts=$2; shift 2 ;;
      --hosts=*) hosts=${1#*=}; shift ;;
      *) left+=("$1"); shift ;;
    esac
  done
  [ -z "$hosts" ] || check_hosts "$hosts"
}

# Adds what the user has left open to options. Results are written into a folder of their own, `fresh`: those of the last run
# are not lost to a run that has none.
fresh=''
choose_options() {
  fresh=$(mktemp -d "$results/new.XXXXXX")
  trap 'rm -rf "$fresh"' EXIT
  given --epochs "$@" || options+=(--epochs 2)
  given --json "$@" || options+=(--json "$fresh/param_sync.json")
  given --series "$@" || options+=(--series "$fresh/param_sync.tsv")
}

# Puts this run's results, if it has any, in the place of the last run's.
keep_results() {
  compgen -G "$fresh/param_sync.*" >/dev/null || return 0
  rm -f "$results"/param_sync.*
  mv "$fresh"/* "$results/"
  has_results=yes
}
has_results=no

run_across_hosts() {
  local option printed printer weights output invoked_from=$root
  for option in --nodes --rank --peers --serial --in-process; do
    ! given "$option" "$@" || misuse "demo --hosts N starts a node on each host: it does not go with $option"
  done
  [ "$preset" != cuda ] || say "all hosts share this machine's GPU: their kernels may wait for their turns"
  require_hosts
  choose_options "$@"
  output=$fresh/output.txt
  say "$hosts hosts: network namespaces of this machine"
  exec {printed}> >(exec tee -i "$output")
  printer=$!
  run_on_hosts "$hosts" '' '' "$program" "${data_options[@]}" "${options[@]}" "$@" >&"$printed" || status=$?
  exec {printed}>&-
  wait "$printer"
  keep_results
  [ $status -eq 0 ] || exit $status
  [ -f "$output" ] || output=$results/output.txt
  weights=$(sed -n 's/^\[[0-9]*\] weights \([0-9a-f]*\).*/\1/p' "$output")
  [ "$(wc -l <<<"$weights")" -eq "$hosts" ] && [ "$(sort -u <<<"$weights" | wc -l)" -eq 1 ] || fail "the hosts' weights differ"
  say "the same weights on all $hosts hosts: ${weights%%$'\n'*}"
  show_results
}

show_results() {
  [ $has_results = yes ] && [ -f "$results/param_sync.json" ] || return 0
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
    say "plot of loss, accuracy, bytes and waiting: $2/param_sync.svg"
  fi
}
