# ./run bundle [DIR]: the built programs with the libraries and data they need, for machines without build tools.
. scripts/packages.sh

main() {
  local to="$root/bundle" preset=host
  [ $# -le 1 ] || misuse "bundle takes one folder"
  needs_sources bundle
  [ $# -eq 0 ] || to=$(from_there "$1")
  [ ! -e "$to" ] || [ -f "$to/BUNDLE" ] || [ -z "$(ls -A "$to")" ] || fail "$to exists and is no bundle: name another folder"
  require_packages "${build_packages[@]}" "${test_packages[@]}"
  ! find_nvcc >/dev/null || preset=cuda
  with_tests=ON
  build "$preset"
  scripts/fill_bundle.sh "$to" "build/$preset" "$preset"
  say "bundle: $to ($(du -sh "$to" | cut -f1)), for $([ "$preset" = cuda ] && echo 'GPUs' || echo 'the CPU device')"
  say "there: ./run demo, ./run bench, ./run gpu-check, or bin/param_sync --help"
}
