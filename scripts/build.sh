# ./run build [PRESET]: everything of one preset (clang: by Clang, a warning is an error).
. scripts/packages.sh

main() {
  local preset=${1:-$(device_preset)}
  [ $# -le 1 ] || misuse "build takes one preset"
  case "$preset" in host | asan | tsan | cuda | clang) ;; *) misuse "there is no preset \"$preset\"" ;; esac
  needs_sources build
  require_packages "${build_packages[@]}" "${test_packages[@]}" "${sanitizer_packages[@]}"
  with_tests=ON
  tests_wanted=all
  build "$preset"
  say "built: build/$preset"
}
