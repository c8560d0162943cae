# ./run bundle [--device cpu|cuda] [--arch N,M] [--data part|all|none] [DIR]: the built programs with the libraries and data they need, for machines without build tools.
. scripts/packages.sh
. scripts/bundle_programs.sh

main() {
  local to="$root/bundle" preset='' named=no architectures='' data=part
  while [ $# -gt 0 ]; do
    case "$1" in
      --device) [ $# -ge 2 ] || misuse "--device takes cpu or cuda"; preset=$(preset_of "$2"); shift 2 ;;
      --device=*) preset=$(preset_of "${1#--device=}"); shift ;;
      --arch) [ $# -ge 2 ] || misuse "--arch takes numbers, as in 80,90"; architectures=$2; shift 2 ;;
      --arch=*) architectures=${1#--arch=}; shift ;;
      --data) [ $# -ge 2 ] || misuse "--data takes part, all or none"; data=$2; shift 2 ;;
      --data=*) data=${1#--data=}; shift ;;
      -*) misuse "bundle does not take \"$1\"" ;;
      *) [ $named = no ] || misuse "bundle takes one folder"; to=$(from_there "$1") named=yes; shift ;;
    esac
  done
  [[ $data =~ ^(part|all|none)$ ]] || misuse "--data is part, all or none, not \"$data\""
  needs_sources bundle
  [ ! -e "$to" ] || [ -f "$to/BUNDLE" ] || [ -z "$(ls -A "$to")" ] || fail "$to exists and is no bundle: name another folder"
  [ "$preset" != cuda ] || find_nvcc >/dev/null ||
    fail "--device cuda needs nvcc: install the CUDA Toolkit 12.4 or newer, or set CUDACXX to its nvcc"
  [ -n "$preset" ] || preset=$(device_preset)
  [ "$preset" != cuda ] || architectures=${architectures:-90}
  [ -z "$architectures" ] || choose_architectures
  require_packages "${build_packages[@]}" "${check_packages[@]}"
  with_tests=ON
  tests_wanted=all
  build_programs
  fill_bundle "$to" "$preset" "$data"
  say "bundle: $to ($(du -sh "$to" | cut -f1)), for $([ "$preset" = cuda ] && echo 'GPUs' || echo 'the CPU device')"
  if [ "$preset" = host ] && find_nvcc >/dev/null; then
    say "there is no GPU here; for a machine with one: ./run bundle --device cuda DIR"
  fi
  [ "$data" != part ] || say "with a part of the images: ./run bundle --data all takes 22 MB more, and the demo learns more"
  say "there: ./run demo, ./run bench, ./run gpu-check, or bin/param_sync --help; ./run unpack for all programs"
}

build_programs() {
  local programs=("${bundle_programs[@]}" "${bundle_seldom[@]}" "${bundle_tests[@]}") test
  configure "$preset"
  for test in "${bundle_verbs_tests[@]}"; do
    ! grep -q "$test" "${build_folder:-build/$preset}/build.ninja" || programs+=("$test")
  done
  build "$preset" "${programs[@]}"
}

# A build of its own, with machine code for these GPUs alone and for the tests as well: nothing is translated when it starts.
choose_architectures() {
  local architecture makes
  [ "$preset" = cuda ] || misuse "--arch is for --device cuda"
  [[ $architectures =~ ^[0-9]{2,3}a?(,[0-9]{2,3}a?)*$ ]] || misuse "--arch takes numbers as in 80,90, not \"$architectures\""
  makes=$("$(find_nvcc)" --list-gpu-code | tr '\n' ' ')
  for architecture in ${architectures//,/ }; do
    [[ " $makes" = *" sm_$architecture "* ]] || fail "this nvcc makes no code for sm_$architecture; it makes: $makes"
  done
  build_folder=build/cuda-${architectures//,/-}
  build_options=("-DGPUSOCK_CUDA_ARCHITECTURES=${architectures//,/-real;}-real")
}

fill_bundle() { scripts/fill_bundle.sh "$1" "${build_folder:-build/$2}" "$2" "$3"; }
