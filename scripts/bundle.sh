# ./run bundle [DIR]: the built programs with the libraries and data they need, for machines without build tools.
. scripts/packages.sh

main() {
  local to=bundle preset=host
  [ $# -le 1 ] || misuse "bundle takes one folder"
  needs_sources bundle
  [ $# -eq 0 ] || to=$(from_there "$1")
  [ ! -e "$to" ] || [ -f "$to/BUNDLE" ] || [ -z "$(ls -A "$to")" ] || fail "$to exists and is no bundle: name another folder"
  require_packages "${build_packages[@]}" "${test_packages[@]}"
  ! find_nvcc >/dev/null || preset=cuda
  with_tests=ON
  build "$preset"
  fill_bundle "$to" "$preset"
  say "bundle: $to ($(du -sh "$to" | cut -f1)), for $([ "$preset" = cuda ] && echo 'GPUs' || echo 'the CPU device')"
  say "there: ./run demo, ./run bench, ./run gpu-check, or bin/param_sync --help"
}

fill_bundle() {
  local to=$1 preset=$2 from="build/$2" file
  rm -rf "$to"
  mkdir -p "$to"/{bin,tests,lib,data/fashion-mnist,scripts}
  while read -r file; do copy_program "$file" "$to/bin"; done < <(programs_in "$from"/{apps,examples,microbench,gpusock})
  while read -r file; do copy_program "$file" "$to/tests"; done < <(programs_in "$from/tests")
  copy_libraries "$to"
  install -m 644 /usr/share/datasets/fashion-mnist/*.gz "$to/data/fashion-mnist/"
  install -m 644 apps/param_sync/plot.gp "$to/data/"
  install -m 644 -D tests/integration/echo/test_echo.py "$to/tests/integration/echo/test_echo.py"
  install -m 755 run "$to/run"
  install -m 644 scripts/*.sh "$to/scripts/"
  install -m 644 LICENSE README.md "$to/"
  project_commit >"$to/BUNDLE"
  echo "$preset" >"$to/BUNDLE.preset"
}

# Programs are linked to look for libraries in ../lib beside their folder (see GpusockBuild.cmake).
programs_in() {
  local folder
  for folder in "$@"; do
    [ ! -d "$folder" ] || find "$folder" -type f -executable ! -path '*/CMakeFiles/*' -exec sh -c 'readelf -h "$1" >/dev/null 2>&1' _ {} \; -print
  done
}

copy_program() {
  install -m 755 "$1" "$2/"
  strip "$2/$(basename "$1")"
}

# Everything but glibc and the GPU's driver, which belong to the machine.
copy_libraries() {
  local to=$1 library
  while read -r library; do
    install -m 644 "$library" "$to/lib/"
    strip --strip-unneeded "$to/lib/$(basename "$library")"
  done < <(ldd "$to"/bin/* "$to"/tests/* 2>/dev/null | awk '$2 == "=>" && $3 ~ "^/" { print $3 }' | sort -u |
    grep -vE '/(ld-linux[^/]*|lib(c|m|dl|rt|pthread|resolv|util|anl|nsl|nss_[a-z]*|cuda|nvidia-[a-z]*))\.so[.0-9]*$')
}
