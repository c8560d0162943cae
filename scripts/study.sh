# ./run study NAME: trains in many ways, draws a picture, and writes a page that says what it shows (studies/).
. scripts/packages.sh

main() {
  needs_sources study
  require_packages "${build_packages[@]}" "${demo_packages[@]}" python3
  if [ $# -eq 0 ]; then
    python3 -B studies/study.py
    return
  fi
  build host param_sync
  mkdir -p out/studies
  python3 -B studies/study.py "$root/build/host/apps/param_sync/param_sync" out/studies "$@"
}
