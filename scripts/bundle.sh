# ./run bundle [--device cpu|cuda] [DIR]: the built programs with the libraries and data they need, for machines without build tools.
. scripts/packages.sh

main() {
  local to="$root/bundle" preset='' named=no
  while [ $# -gt 0 ]; do
    case "$1" in
      --device) [ $# -ge 2 ] || misuse "--device takes cpu or cuda"; preset=$(preset_of "$2"); shift 2 ;;
      --device=*) preset=$(preset_of "${1#--device=}"); shift ;;
      -*) misuse "bundle does not take \"$1\"" ;;
      *) [ $named = no ] || misuse "bundle takes one folder"; to=$(from_there "$1") named=yes; shift ;;
    esac
  done
  needs_sources bundle
  [ ! -e "$to" ] || [ -f "$to/BUNDLE" ] || [ -z "$(ls -A "$to")" ] || fail "$to exists and is no bundle: name another folder"
  [ "$preset" != cuda ] || find_nvcc >/dev/null ||
    fail "--device cuda needs nvcc: install the CUDA Toolkit 12.4 or newer, or set CUDACXX to its nvcc"
  [ -n "$preset" ] || preset=$(device_preset)
  require_packages "${build_packages[@]}" "${test_packages[@]}"
  with_tests=ON
  build "$preset"
  fill_bundle "$to" "$preset"
  say "bundle: $to ($(du -sh "$to" | cut -f1)), for $([ "$preset" = cuda ] && echo 'GPUs' || echo 'the CPU device')"
  if [ "$preset" = host ] && find_nvcc >/dev/null; then
    say "there is no GPU here; for a machine with one: ./run bundle --device cuda DIR"
  fi
  say "there: ./run demo, ./run bench, ./run gpu-check, or bin/param_sync --help"
}

preset_of() {
  case "$1" in
    cpu) echo host ;;
    cuda) echo cuda ;;
    *) misuse "--device is cpu or cuda, not \"$1\"" ;;
  esac
}

fill_bundle() { scripts/fill_bundle.sh "$1" "build/$2" "$2"; }
